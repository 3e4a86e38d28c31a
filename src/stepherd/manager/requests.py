"""What was asked of envs and what became of it: the requests of one pool and the ledger they end up in.

Every action ends as exactly one of: delivered, discarded with a cause, never begun. Nothing here waits or blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from stepherd.manager.env_worker import EnvWorker
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.step_queue import EnvState, StepQueue
from stepherd.transport.bell import BellBroken, Kind
from stepherd.transport.control import Command

log = logging.getLogger(__name__)


class Requests:
    """The requests to all envs of a pool."""

    def __init__(self, workers: Sequence[EnvWorker], queue: StepQueue, recycle: RecyclePolicy) -> None:
        self._workers, self._queue, self._recycle = workers, queue, recycle
        self._envs_per_worker = len(workers[0].env_ids)
        self.asked = [Command.RESET] * len(queue)
        """The last command to each env."""

    def ask(
        self,
        env_ids: Iterable[int],
        command: Command,
        seed_of: Callable[[int], int | None],
        now: float,
        *,
        returning: bool,
    ) -> None:
        """Ask some free envs of living workers for a command, and ring each of their workers once. Never blocks."""
        rung: dict[int, EnvWorker] = {}
        for env_id in env_ids:
            worker = self.worker_of(env_id)
            assert worker.memory is not None
            index = env_id - worker.env_ids.start
            if not worker.owed():
                worker.asked_at = now
            worker.memory.control.ask(index, command, seed_of(env_id))
            self.asked[env_id] = command
            if command is Command.STEP:
                worker.ledger.sent += 1
                worker.sent_to_env[index] += 1
            if returning:
                self._queue.mark_returning(env_id)
            else:
                self._queue.mark_busy(env_id)
            rung[worker.worker_id] = worker
        for worker in rung.values():
            try:
                assert worker.link is not None
                worker.link.ring(Kind.RING)
            except BellBroken:
                log.debug("worker %d cannot be reached; its end will be noticed", worker.worker_id)

    def take(self, delivered: bool) -> list[tuple[int, bool]]:
        """Take all answers: (env id, lost) in ascending order; count them as delivered, or as discarded by a reset."""
        taken = self._queue.take()
        for env_id, _ in taken:
            if self.asked[env_id] is Command.STEP:
                ledger = self.worker_of(env_id).ledger
                if delivered:
                    ledger.delivered += 1
                else:
                    ledger.discarded["a reset came before its outcome was taken"] += 1
        return taken

    def refuse(self, env_ids: Iterable[int]) -> None:
        """Count actions for envs whose worker failed before it could get them."""
        for env_id in env_ids:
            ledger = self.worker_of(env_id).ledger
            ledger.sent += 1
            ledger.unbegun += 1

    def worker_of(self, env_id: int) -> EnvWorker:
        """Return the worker an env lives in."""
        return self._workers[env_id // self._envs_per_worker]

    def mark_answers(self, worker: EnvWorker) -> None:
        """See which envs have answered; rings only say that it is worth looking."""
        assert worker.memory is not None
        control = worker.memory.control
        for index, env_id in enumerate(worker.env_ids):
            if self._queue.is_asked(env_id) and control.done(index) == control.request(index):
                self._queue.mark_ready(env_id)
                if not self._recycle.is_off:
                    worker.note_episode(index, self._recycle)

    def write_off(self, worker: EnvWorker, cause: str, *, keep_answers: bool) -> None:
        """Account for all that a failed or ended worker still held."""
        if worker.memory is None:
            return
        self.mark_answers(worker)  # what it had answered before it failed, it has answered
        for index, env_id in enumerate(worker.env_ids):
            state = self._queue.state(env_id)
            if keep_answers and state is EnvState.READY:
                continue
            if state in (EnvState.BUSY, EnvState.READY) and self.asked[env_id] is Command.STEP:
                worker.write_off(index, cause)
            self._queue.mark_down(env_id)
