"""A pool of envs in worker processes, as learning code and adapters use it.

    caller ──send──▶ pool rows ──▶ block ──ring──▶ worker
    caller ◀─recv─── pool rows ◀── block ◀─ring─── worker

Batches and the ledger are here; the processes are the supervisor's. Knows no simulator, no tensor, no learning.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType

import numpy as np

from stepherd.core.deadline import Deadline, Timeouts
from stepherd.core.errors import ManagerClosed, TooFewReady
from stepherd.core.waiting import TICK_S
from stepherd.manager.env_manager import WorkerStatus
from stepherd.manager.env_worker import EnvWorker, WorkerState
from stepherd.manager.pool_rows import PoolRows
from stepherd.manager.report import CloseReport
from stepherd.manager.step_queue import EnvState
from stepherd.manager.supervisor import Supervisor
from stepherd.spec.batch import Actions, StepBatch
from stepherd.spec.specs import EnvSpec
from stepherd.transport.control import Command, Phase


class SubprocessEnvManager:
    """Keeps the `EnvManager` protocol; made by `open_env_manager`. Workers live from `__enter__` to `close`."""

    def __init__(self, supervisor: Supervisor, seeds: EnvSeeds, patience_s: float, grace_s: float) -> None:
        self._supervisor = supervisor
        self._seeds = seeds
        self._patience_s = patience_s
        self._grace_s = grace_s
        self._rows: PoolRows | None = None
        self._report: CloseReport | None = None
        self._owner_pid = os.getpid()

    def __enter__(self) -> SubprocessEnvManager:
        self._check_open()
        assert self._rows is None, "a pool is entered once"
        try:
            self._supervisor.start()
        except Exception:
            self.close()
            raise
        except BaseException:  # Ctrl-C, or whatever else wants to be gone at once: nothing has been done yet
            self.close(grace_s=0.0)
            raise
        assert self._supervisor.spec is not None
        self._rows = PoolRows(self._supervisor.spec, self.n_envs, len(self._supervisor.workers[0].env_ids))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and os.getpid() != self._owner_pid:
            return  # a forked copy of the owner on its way out, which must not be told something else now
        self.close()

    @property
    def spec(self) -> EnvSpec:
        """See `EnvManager`."""
        return self._open_rows().spec

    @property
    def n_envs(self) -> int:
        """See `EnvManager`."""
        return len(self._supervisor.queue)

    @property
    def seed(self) -> int:
        """The root of all env seeds: the one given, or the one that was drawn."""
        return self._seeds.root

    def reset(self, seed: int | None = None) -> StepBatch:
        """See `EnvManager`."""
        rows, supervisor = self._open_rows(), self._supervisor
        seeded = seed is not None or not supervisor.was_reset
        if seed is not None:
            self._seeds.root = seed
        deadline = Deadline.after(self._patience_s, supervisor.clock)
        while any(supervisor.queue.is_asked(env_id) for env_id in range(self.n_envs)) and not deadline.passed:
            supervisor.turn(deadline)
        supervisor.requests.take(delivered=False)
        supervisor.let_held_leave()
        supervisor.was_reset = True
        free = [env_id for env_id in range(self.n_envs) if supervisor.queue.state(env_id) is EnvState.FREE]
        supervisor.ask(free, Command.RESET, lambda env_id: self._seeds.of(env_id, 0) if seeded else None)
        self._wait_for(self.n_envs, Deadline.after(self._patience_s, supervisor.clock))
        batch = rows.gather(supervisor.workers, supervisor.requests.take(delivered=True))
        batch.lost[:] = False  # everything begins anew; there is no transition that could straddle a restart
        return batch

    def send(self, actions: Actions | Mapping[str, Actions], env_ids: Sequence[int] | None = None) -> None:
        """See `EnvManager`."""
        rows, supervisor = self._open_rows(), self._supervisor
        ids = list(range(self.n_envs)) if env_ids is None else [int(env_id) for env_id in env_ids]
        supervisor.queue.check_sendable(ids)
        if len(set(ids)) < len(ids):
            raise ValueError(f"an env takes one action at a time, but env_ids repeats: {ids}")
        if isinstance(actions, Actions):
            actions = {rows.spec.names[0]: actions}
        rows.write_actions(actions, ids)
        supervisor.hold(ids)
        free = [env_id for env_id in ids if supervisor.queue.state(env_id) is EnvState.FREE]
        if len(free) < len(ids):
            supervisor.requests.refuse(env_id for env_id in ids if supervisor.queue.state(env_id) is not EnvState.FREE)
        for env_id in free:
            rows.hand_over(supervisor.requests.worker_of(env_id), env_id)
        supervisor.ask(free, Command.STEP, lambda _: None)

    def recv(self, min_envs: int | None = None, within_s: float | None = None) -> StepBatch:
        """See `EnvManager`."""
        rows, supervisor = self._open_rows(), self._supervisor
        if min_envs is not None and not 0 <= min_envs <= self.n_envs:
            raise ValueError(f"min_envs must be between 0 and {self.n_envs}, not {min_envs}")
        self._wait_for(min_envs, self._deadline(within_s))
        return rows.gather(supervisor.workers, supervisor.requests.take(delivered=True))

    def drain(self, within_s: float | None = None) -> StepBatch:
        """See `EnvManager`."""
        rows, supervisor = self._open_rows(), self._supervisor
        supervisor.draining = True
        deadline, last_look = self._deadline(within_s), False
        while supervisor.queue.counts().busy and not last_look:
            last_look = deadline.passed
            supervisor.turn(deadline)
        return rows.gather(supervisor.workers, supervisor.requests.take(delivered=True))

    def statuses(self) -> list[WorkerStatus]:
        """See `EnvManager`."""
        return [_status(worker) for worker in self._supervisor.workers]

    def close(self, grace_s: float | None = None) -> CloseReport:
        """See `EnvManager`; `grace_s` replaces the pool's, and 0 means now: ask, SIGTERM and kill in one breath."""
        if self._report is None:
            if os.getpid() != self._owner_pid:
                raise ManagerClosed("this is a forked copy of the process that owns the pool; only the owner closes it")
            supervisor = self._supervisor
            begun_at = supervisor.clock()
            try:
                supervisor.end(self._grace_s if grace_s is None else grace_s)
            finally:
                took_s = supervisor.clock() - begun_at
                self._report = CloseReport(tuple(worker.report() for worker in supervisor.workers), took_s)
        return self._report

    def _wait_for(self, min_envs: int | None, deadline: Deadline) -> None:
        supervisor = self._supervisor
        if supervisor.broken is not None:
            raise supervisor.broken
        if min_envs == 0:
            supervisor.turn(Deadline.after(0.0, supervisor.clock))  # whatever lies there
        last_look = False
        while True:
            counts = supervisor.queue.counts()
            # By default everybody in flight, but nobody waits for a worker that is being replaced.
            wanted = max(1, counts.ready + counts.busy) if min_envs is None else min_envs
            if counts.ready >= wanted:
                return
            n_held = supervisor.n_held()
            if counts.ready + counts.busy + counts.down - n_held < wanted:
                held = f"; {n_held} of these wait until the other envs of their worker end an episode" if n_held else ""
                raise TooFewReady(f"{wanted} answers were asked for, but there are only {counts}{held}")
            if last_look:
                raise TooFewReady(f"{wanted} answers were asked for; when time ran out there were {counts}")
            last_look = deadline.passed  # even without any time, what lies there already is taken in
            supervisor.turn(deadline)

    def _deadline(self, within_s: float | None) -> Deadline:
        return Deadline.after(self._patience_s if within_s is None else within_s, self._supervisor.clock)

    def _open_rows(self) -> PoolRows:
        self._check_open()
        if self._rows is None:
            raise ManagerClosed("the pool is not open yet; use it in a `with` block")
        return self._rows

    def _check_open(self) -> None:
        if self._report is not None:
            raise ManagerClosed("the pool was closed")
        if os.getpid() != self._owner_pid:
            raise ManagerClosed("this is a forked copy of the process that owns the pool; open a pool of its own here")


class EnvSeeds:
    """Seeds for every env from one root, each different, and different again after every restart."""

    def __init__(self, root: int | None) -> None:
        self.root = int(np.random.SeedSequence().generate_state(1)[0] >> 1) if root is None else root

    def of(self, env_id: int, generation: int) -> int:
        """Return the seed of an env for its n-th process; below 2**31, which every simulator accepts."""
        return int(np.random.SeedSequence((self.root, env_id, generation)).generate_state(1)[0] >> 1)


def patience_s(timeouts: Timeouts, backoff_s: float, envs_per_worker: int) -> float:
    """Return a bound within which every env has answered or its worker has been given up.

    The longest way round: every env of a worker takes all of its time for a step and for the reset after it, the last
    of them too much; then the back-off, a new process and the resets of all its envs.
    """
    first = envs_per_worker * (timeouts.step_s + timeouts.reset_s)
    return first + backoff_s + timeouts.spawn_s + envs_per_worker * timeouts.reset_s + 4 * TICK_S


def _status(worker: EnvWorker) -> WorkerStatus:
    state, busy_s = "down" if worker.state is WorkerState.GOING else worker.state.value, 0.0
    if worker.state is WorkerState.UP and worker.memory is not None:
        phase, _, _ = worker.memory.control.phase()
        state = Phase(phase).name.lower()
        busy_s = worker.memory.control.busy_s()
    return WorkerStatus(
        worker_id=worker.worker_id,
        pid=worker.pid,
        state=state,
        n_restarts=worker.restarts.n_restarts,
        n_steps=worker.ledger.delivered,
        busy_s=busy_s,
    )
