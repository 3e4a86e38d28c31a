"""Keeps the workers of one pool: starts them, hears them, notices whoever dies or is late, replaces, ends.

Everything waits in `turn`, which always has a deadline and wakes on messages, on deaths and on time alike. Nothing
else here blocks. The order of things that can happen to a worker is drawn in `env_worker.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from stepherd.core import events
from stepherd.core.deadline import Deadline, Timeouts
from stepherd.core.errors import EnvNeverReady, WorkerError, WorkerFailed
from stepherd.core.waiting import TICK_S
from stepherd.manager import failures
from stepherd.manager.ending import end_workers, last_problems
from stepherd.manager.env_worker import Cause, EnvWorker, WorkerState
from stepherd.manager.lateness import EXIT_KNOWN_S, STACK_S, limit_of
from stepherd.manager.launch import Backend, Link
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.requests import Requests
from stepherd.manager.restarts import RestartHistory, RestartPolicy
from stepherd.manager.step_queue import EnvState, StepQueue
from stepherd.spec.specs import EnvSpec
from stepherd.transport.bell import BellBroken, Kind, Message
from stepherd.transport.control import Command
from stepherd.transport.layout import Layout
from stepherd.transport.notes import Job, Ready, read_note, write_note

log = logging.getLogger(__name__)

CAUSES = {
    "died": "the worker died",
    "raised": "the env raised",
    "late": "the worker was late",
    "protocol": "the worker broke the protocol",
}


class Supervisor:
    """The workers of one pool and the state of their envs."""

    def __init__(
        self,
        backend: Backend,
        job_of: Callable[[range], Job],
        workers: Sequence[range],
        *,
        env_name: str,
        seed_of: Callable[[int, int], int],
        timeouts: Timeouts,
        restarts: RestartPolicy,
        on_event: events.EventHook,
        recycle: RecyclePolicy = RecyclePolicy(),  # noqa: B008 - frozen
    ) -> None:
        """Prepare one worker for each range of env ids; `seed_of(env id, generation)` seeds a restarted env."""
        self.workers = [EnvWorker(i, ids, RestartHistory(restarts)) for i, ids in enumerate(workers)]
        self.queue = StepQueue(sum(len(ids) for ids in workers))
        self.requests = Requests(self.workers, self.queue, recycle)
        self.spec: EnvSpec | None = None
        self.was_reset = False
        """Whether envs that come back from a restart are to be reset at once."""
        self.draining = False
        """Whether the run is ending: failures are noted, nobody is replaced."""
        self.broken: WorkerError | None = None
        """The failure that spent a restart budget."""
        self._backend, self._job_of, self._seed_of = backend, job_of, seed_of
        self.clock = backend.clock
        self._env_name, self._timeouts, self._on_event = env_name, timeouts, on_event
        self._recycle = recycle
        self._layout: Layout | None = None
        self._corpses: dict[Link, EnvWorker] = {}
        """Processes that were killed and have not ended yet, and whose they were."""
        self._worker_of: dict[Link, EnvWorker] = {}
        self._next_check = 0.0

    def start(self) -> None:
        """Start all workers and wait until each has built its envs. Blocks for `spawn_s`.

        Raises:
            EnvNeverReady: one could not, or not in time.
        """
        for worker in self.workers:
            self._spawn(worker)
        while not all(worker.was_ready for worker in self.workers):  # one that has died since is replaced as ever
            self.turn(Deadline.after(self._timeouts.spawn_s, self.clock))

    def ask(
        self, env_ids: Iterable[int], command: Command, seed_of: Callable[[int], int | None], returning: bool = False
    ) -> None:
        """Ask some free envs of living workers for a command, and ring each of their workers once. Never blocks."""
        now = self.clock()
        self.requests.ask(env_ids, command, seed_of, now, returning=returning)
        self._next_check = min(self._next_check, now + min(self._timeouts.step_s, self._timeouts.reset_s))

    def turn(self, deadline: Deadline) -> None:
        """Wait once, and deal with whatever has happened. Blocks until `deadline` at the latest.

        Raises:
            EnvNeverReady: a worker could not build its envs.
            WorkerFailed: a worker failed and its restart budget is spent.
        """
        for link in self._backend.wait(deadline.or_earlier(self._next_check)):
            worker = self._worker_of.get(link)
            if worker is not None:
                self._hear(worker)
            else:  # somebody killed has ended, and would wake every wait until he is reaped
                self._reap_corpses()
        now = self.clock()
        if now >= self._next_check:
            self._check(now)

    def end(self, grace_s: float) -> None:
        """End all workers and settle all accounts. Blocks for at most `2 * grace_s + kill_s`."""
        self.draining = True
        try:
            end_workers(self.workers, self._corpses, self._backend, grace_s, self._timeouts.kill_s)
        finally:
            for worker in self.workers:
                self.requests.write_off(worker, "it was not taken before the close", keep_answers=False)
                worker.drop_block()
            self._sweep()
            self._backend.close()
        for worker in self.workers:
            for pid in worker.leaked_pids:
                self._on_event(events.WorkerLeaked(worker.worker_id, pid))

    # What happens to workers.

    def _spawn(self, worker: EnvWorker) -> None:
        link = self._backend.spawn(worker.worker_id, worker.generation + 1)
        worker.begin_life(link, self.clock())
        self._worker_of[link] = worker
        self._on_event(events.WorkerStarted(worker.worker_id, link.pid, worker.generation))
        try:
            link.ring(Kind.JOB, write_note(self._job_of(worker.env_ids)))
        except BellBroken:
            log.debug("worker %d ended before it got its job; its end will be noticed", worker.worker_id)

    def _hear(self, worker: EnvWorker) -> None:
        """Take in what a worker has said, or see whether it has ended.

        It rings at most once for each env that was asked; whoever hears less at a time lets rings pile up until its
        last words find no room.
        """
        assert worker.link is not None
        for n_heard in range(len(worker.env_ids)):
            message = worker.link.hear()
            if message is None or message.kind is Kind.GONE:
                if message is not None or not n_heard:
                    self._look(worker, gone=message is not None)
                return
            self._take_in(worker, message)
            if worker.state is WorkerState.DOWN:
                return

    def _take_in(self, worker: EnvWorker, message: Message) -> None:
        if worker.state is WorkerState.LEAVING:
            worker.problems.extend(last_problems(message))
            worker.has_closed = worker.has_closed or message.kind is Kind.CLOSED
            if message.kind is Kind.FAILED:
                worker.problems.append(f"while {worker.doing()}, it {failures.said(message).what}")
        elif message.kind is Kind.RING and worker.state is WorkerState.UP:
            self.requests.mark_answers(worker)
        elif message.kind is Kind.READY and worker.state is WorkerState.SPAWNING:
            self._welcome(worker, message)
        elif message.kind is Kind.FAILED:
            self._fail(worker, failures.said(message))
        elif worker.verdict is not None:
            log.debug("worker %d has answered after it was given up", worker.worker_id)
        else:
            self._fail(worker, failures.out_of_step(f"{message.kind.name} while {worker.state.value}"))

    def _welcome(self, worker: EnvWorker, message: Message) -> None:
        try:
            spec = read_note(message.note, Ready).spec
        except failures.UNREADABLE as error:
            self._fail(worker, failures.unreadable(message, error))
            return
        if self.spec is None or self._layout is None:
            self.spec, self._layout = spec, Layout.of(spec)
        if spec != self.spec:
            self._fail(worker, failures.out_of_step(f"its envs are {spec}, those of the other workers {self.spec}"))
            return
        worker.take_block(spec, self._layout, message.block_fd)
        took_s = self.clock() - worker.spawned_at
        self._on_event(events.WorkerReady(worker.worker_id, worker.pid, worker.generation, took_s))
        for env_id in worker.env_ids:
            self.queue.mark_free(env_id)
        if self.was_reset:
            generation = worker.generation
            self.ask(worker.env_ids, Command.RESET, lambda env_id: self._seed_of(env_id, generation), returning=True)

    def _look(self, worker: EnvWorker, gone: bool) -> None:
        """See whether a worker has ended. A closed bell alone is not the end yet: how it ended is known in a moment."""
        assert worker.link is not None
        if gone:
            worker.link.hang_up()
            if worker.state not in (WorkerState.GOING, WorkerState.LEAVING):
                worker.state, worker.going_since = WorkerState.GOING, self.clock()
                self._next_check = min(self._next_check, worker.going_since + EXIT_KNOWN_S / 10)
        exit_status = worker.link.look()
        if exit_status is None:
            return
        # It can have spoken since we last listened, and says nothing more now.
        while (message := worker.link.hear()) is not None and message.kind is not Kind.GONE:
            self._take_in(worker, message)
            if worker.state is WorkerState.DOWN:
                return
        worker.exit = exit_status
        if worker.state is WorkerState.LEAVING:
            if not (worker.has_closed and exit_status.clean):
                worker.problems.append(
                    f"it ended badly when it was to be recycled, while {worker.doing()}: {exit_status}"
                )
            self._retire(worker)
        else:
            self._fail(worker, worker.verdict or failures.died(exit_status))

    def _check(self, now: float) -> None:
        """Look at everything that may change without a message: lateness, silent deaths, respawns, corpses."""
        self._reap_corpses()
        self._next_check = now + TICK_S
        for worker in self.workers:
            if worker.state is WorkerState.DOWN:
                if worker.respawn_at is not None and not self.draining:
                    self._respawn_if_due(worker, now)
                continue
            self._look(worker, gone=False)
            if worker.link is not None:
                worker.link.trim_log()
            if worker.state is WorkerState.UP:
                self.requests.mark_answers(worker)  # it may have stopped between its last answer and the ring
            self._check_lateness(worker, now)

    def _reap_corpses(self) -> None:
        for link, worker in list(self._corpses.items()):
            if link.reap():
                del self._corpses[link]
                if worker.state is WorkerState.DOWN:  # its next process is another story, with helpers of its own
                    self._sweep(worker.worker_id)

    def _sweep(self, worker_id: int | None = None) -> None:
        for whose, what in self._backend.sweep(worker_id):
            self.workers[whose].problems.append(f"it left {what} behind, which was killed")

    def _respawn_if_due(self, worker: EnvWorker, now: float) -> None:
        assert worker.respawn_at is not None
        if now < worker.respawn_at:
            self._next_check = min(self._next_check, worker.respawn_at)
            return
        try:
            self._spawn(worker)
        except OSError as error:  # no more processes or memory just now: the next attempt costs budget as well
            before = f"\nBefore that: {worker.error}" if worker.error is not None else ""
            text = f"Worker {worker.worker_id} could not be started again: {error}{before}"
            worker.error = worker.error or text
            self._decide(worker, "died", text, now)
            if worker.respawn_at is not None:
                worker.respawn_at = max(worker.respawn_at, now + TICK_S)

    def _check_lateness(self, worker: EnvWorker, now: float) -> None:
        limit = limit_of(worker, self.requests.asked, self._timeouts)
        if limit is None:
            return
        if now < limit.due:
            self._next_check = min(self._next_check, limit.due)
        elif worker.state is WorkerState.LEAVING:
            worker.problems.append(f"it did not end when it was to be recycled, while {worker.doing()}; it was killed")
            self._retire(worker)
        elif worker.state is WorkerState.GOING:
            self._fail(worker, worker.verdict or failures.died(None))
        else:
            assert worker.link is not None
            worker.verdict = failures.late(limit.name, limit.seconds, now - limit.since)
            worker.state, worker.going_since = WorkerState.GOING, now
            worker.link.ask_for_stack()
            self._next_check = min(self._next_check, now + STACK_S)

    # Recycling: a healthy worker gets a new process.

    def hold(self, env_ids: Iterable[int]) -> None:
        """Keep those envs from acting whose worker is to be recycled and whose episode is over.

        A worker whose envs are all held leaves.
        """
        if self._recycle.is_off:
            return
        for env_id in env_ids:
            worker = self.requests.worker_of(env_id)
            is_free = self.queue.state(env_id) is EnvState.FREE and worker.state is WorkerState.UP
            if is_free and worker.recycle_why is not None and worker.is_between_episodes(env_id):
                self.queue.mark_down(env_id)
                if all(self.queue.state(each) is EnvState.DOWN for each in worker.env_ids):
                    self._let_leave(worker)

    def n_held(self) -> int:
        """Return how many envs are held by workers that go on: no wait brings those back, only the others' steps."""
        if self._recycle.is_off:
            return 0
        held = (worker for worker in self.workers if worker.state is WorkerState.UP)
        return sum(self.queue.state(env_id) is EnvState.DOWN for worker in held for env_id in worker.env_ids)

    def let_held_leave(self) -> None:
        """Recycle the workers that were waiting for episodes to end; a reset has ended them all."""
        for worker in self.workers:
            states = [self.queue.state(env_id) for env_id in worker.env_ids]
            if worker.state is WorkerState.UP and EnvState.DOWN in states:
                for env_id in worker.env_ids:
                    self.queue.mark_down(env_id)
                self._let_leave(worker)

    def _let_leave(self, worker: EnvWorker) -> None:
        assert worker.link is not None
        worker.state, worker.going_since = WorkerState.LEAVING, self.clock()
        self._next_check = min(self._next_check, worker.going_since + self._timeouts.grace_s)
        try:
            worker.link.ring(Kind.CLOSE)
        except BellBroken:
            log.debug("worker %d ended before it was recycled; its end will be noticed", worker.worker_id)

    def _retire(self, worker: EnvWorker) -> None:
        """Bury a recycled worker and book its next process at once."""
        assert worker.link is not None
        self._on_event(events.WorkerRecycled(worker.worker_id, worker.pid, worker.generation, worker.recycle_why or ""))
        self._let_go(worker)
        worker.n_recycled += 1
        worker.was_recycled = True
        worker.respawn_at = self.clock()
        self._next_check = min(self._next_check, worker.respawn_at)

    def _fail(self, worker: EnvWorker, cause: Cause) -> None:
        """Let go of a failed worker at once, account for what it held, and decide what comes next. Never blocks."""
        assert worker.link is not None
        text = failures.report_of(worker, cause, self._env_name)
        worker.error = text
        worker.link.kill()  # before the accounts are settled, so that it begins no step after they were
        self.requests.write_off(worker, CAUSES[cause.kind], keep_answers=self.draining)
        self._let_go(worker)
        self._decide(worker, cause.kind, text, self.clock())

    def _let_go(self, worker: EnvWorker) -> None:
        """Kill what is left of a worker's process and leave the corpse to be reaped."""
        assert worker.link is not None
        worker.link.kill()
        worker.link.hang_up()
        if not self.draining:
            worker.drop_block()
        self._worker_of.pop(worker.link, None)
        self._corpses[worker.link] = worker
        worker.state = WorkerState.DOWN
        self._reap_corpses()

    def _decide(self, worker: EnvWorker, cause: str, text: str, now: float) -> None:
        respawn_at = None
        if worker.was_ready and not self.draining:
            respawn_at = worker.restarts.book(now)
        worker.respawn_at = respawn_at
        restart_in_s = None if respawn_at is None else respawn_at - now
        self._on_event(events.WorkerFailed(worker.worker_id, worker.pid, worker.generation, cause, text, restart_in_s))
        if respawn_at is not None:
            log.warning("%s\nIt is replaced by a new process.", text)
            self._next_check = min(self._next_check, respawn_at)
        elif self.draining:
            log.warning("%s", text)
        elif not worker.was_ready:
            self.broken = EnvNeverReady(worker.worker_id, text)
            raise self.broken
        else:
            self.broken = WorkerFailed(
                worker.worker_id, f"{text}\nIt is not replaced again: {worker.restarts.spent()}."
            )
            raise self.broken
