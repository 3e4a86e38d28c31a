"""Bugs to put into a manager, to prove that the simulation would find them. Some of them it has had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest

import simulation.seed
from stepherd.core.deadline import Deadline, Timeouts
from stepherd.core.errors import EnvBusy
from stepherd.manager import ending, failures, supervisor
from stepherd.manager.env_worker import Cause, EnvWorker, WorkerState
from stepherd.manager.lateness import Limit, limit_of
from stepherd.manager.launch import Backend, Link
from stepherd.manager.pool_rows import PoolRows
from stepherd.manager.requests import Requests
from stepherd.manager.restarts import RestartHistory
from stepherd.manager.step_queue import StepQueue
from stepherd.manager.subprocess_env_manager import EnvSeeds, SubprocessEnvManager, patience_s
from stepherd.manager.supervisor import Supervisor
from stepherd.spec.batch import StepBatch
from stepherd.transport.bell import Message
from stepherd.transport.control import Command, Control
from stepherd.transport.notes import Failure, read_note

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]


def takes_a_ring_for_an_answer(patch: Patch) -> None:
    """It does not look whether the number of the answer is that of the request."""

    def mark_answers(self: Requests, worker: EnvWorker) -> None:
        for env_id in worker.env_ids:
            if self._queue.is_asked(env_id):
                self._queue.mark_ready(env_id)

    patch.setattr(Requests, "mark_answers", mark_answers)


def lets_a_transition_span_a_restart(patch: Patch) -> None:
    """It does not mark the envs of a restarted worker lost."""
    patch.setattr(StepQueue, "mark_returning", StepQueue.mark_busy)


def drains_nothing(patch: Patch) -> None:
    """It takes what lies there at the end of a run, and does not wait for what is on its way."""
    drain = SubprocessEnvManager.drain

    def drain_at_once(self: SubprocessEnvManager, within_s: float | None = None) -> StepBatch:
        return drain(self, 0.0)

    patch.setattr(SubprocessEnvManager, "drain", drain_at_once)


def counts_a_delivered_step_twice(patch: Patch) -> None:
    """It counts a step when it is taken, and again."""
    take = Requests.take

    def take_and_count_again(self: Requests, delivered: bool) -> list[tuple[int, bool]]:
        taken = take(self, delivered)
        for env_id, lost in taken[:1]:
            self.worker_of(env_id).ledger.delivered += delivered and not lost
        return taken

    patch.setattr(Requests, "take", take_and_count_again)


def forgets_what_a_failed_worker_held(patch: Patch) -> None:
    """It counts no step whose answer nobody gets."""
    patch.setattr(EnvWorker, "write_off", lambda self, index, cause: None)


def takes_every_step_for_begun(patch: Patch) -> None:
    """It does not look how many steps a failed worker has really begun."""
    patch.setattr(Control, "begun", lambda self, env: 2**60)


def forgets_that_workers_can_be_late(patch: Patch) -> None:
    """It waits for a frozen worker as long as for any other."""
    patch.setattr(Supervisor, "_check_lateness", lambda self, worker, now: None)


def holds_idleness_against_a_worker(patch: Patch) -> None:
    """It counts a limit from when the worker was last busy, not from when it was asked."""

    def limit_since_ever(worker: EnvWorker, asked: Sequence[Command], timeouts: Timeouts) -> Limit | None:
        worker.asked_at = 0.0
        return limit_of(worker, asked, timeouts)

    patch.setattr(supervisor, "limit_of", limit_since_ever)


def trusts_that_every_death_is_told(patch: Patch) -> None:
    """It never looks at a worker that says nothing."""
    look = Supervisor._look

    def look_if_told(self: Supervisor, worker: EnvWorker, gone: bool) -> None:
        if gone:
            look(self, worker, gone)

    patch.setattr(Supervisor, "_look", look_if_told)


def listens_to_one_message_of_a_dead_worker(patch: Patch) -> None:
    """It believes the exit status of a worker before it has heard what the worker said."""
    look = Supervisor._look

    def look_first(self: Supervisor, worker: EnvWorker, gone: bool) -> None:
        link = worker.link
        if link is not None and not gone and link.look() is not None:
            link.hang_up()
        look(self, worker, gone)

    patch.setattr(Supervisor, "_look", look_first)


def spins_until_the_dead_are_reaped(patch: Patch) -> None:
    """It leaves a killed process that has ended in the set that it waits for."""
    patch.setattr(Supervisor, "_reap_corpses", lambda self: None)


def restarts_once_too_often(patch: Patch) -> None:
    """It compares a limit with what came before, not with what comes."""
    book = RestartHistory.book

    def book_with_one_more(self: RestartHistory, now: float) -> float | None:
        respawn_at = book(self, now)
        if respawn_at is None and self.n_restarts == self.policy.max_lifetime_restarts:
            self.n_restarts += 1
            return now
        return respawn_at

    patch.setattr(RestartHistory, "book", book_with_one_more)


def forgets_the_back_off(patch: Patch) -> None:
    """It restarts at once, whatever the policy says."""
    book = RestartHistory.book
    patch.setattr(RestartHistory, "book", lambda self, now: None if book(self, now) is None else now)


def replays_the_past_of_a_restarted_env(patch: Patch) -> None:
    """It seeds a restarted env as the one before."""
    of = EnvSeeds.of
    patch.setattr(EnvSeeds, "of", lambda self, env_id, generation: of(self, env_id, 0))


def forgets_to_reset_who_comes_back(patch: Patch) -> None:
    """It leaves the envs of a restarted worker alone."""
    welcome = Supervisor._welcome

    def welcome_only(self: Supervisor, worker: EnvWorker, message: Message) -> None:
        was_reset, self.was_reset = self.was_reset, False
        welcome(self, worker, message)
        self.was_reset = was_reset

    patch.setattr(Supervisor, "_welcome", welcome_only)


def lets_one_failure_cost_the_answers_of_others(patch: Patch) -> None:
    """It throws away what lies there when a worker fails."""
    fail = Supervisor._fail

    def fail_all(self: Supervisor, worker: EnvWorker, cause: Cause) -> None:
        self.requests.take(delivered=False)
        fail(self, worker, cause)

    patch.setattr(Supervisor, "_fail", fail_all)


def ends_workers_one_after_the_other(patch: Patch) -> None:
    """It gives every worker a grace of its own."""

    def end_each(
        workers: Sequence[EnvWorker], corpses: Mapping[Link, EnvWorker], backend: Backend, grace_s: float, kill_s: float
    ) -> None:
        for worker in workers:
            its_own = {link: whose for link, whose in corpses.items() if whose is worker}
            ending.end_workers([worker], its_own, backend, grace_s, kill_s)

    patch.setattr(supervisor, "end_workers", end_each)


def forgets_who_was_killed_earlier_at_the_close(patch: Patch) -> None:
    """It ends the last process of each worker only."""

    def end_the_last(
        workers: Sequence[EnvWorker], corpses: Mapping[Link, EnvWorker], backend: Backend, grace_s: float, kill_s: float
    ) -> None:
        ending.end_workers(workers, {}, backend, grace_s, kill_s)

    patch.setattr(supervisor, "end_workers", end_the_last)


def hides_who_was_left_behind_earlier(patch: Patch) -> None:
    """It reports a process that could not be ended only if it is the last of its worker."""

    def end_and_hide(
        workers: Sequence[EnvWorker], corpses: Mapping[Link, EnvWorker], backend: Backend, grace_s: float, kill_s: float
    ) -> None:
        ending.end_workers(workers, corpses, backend, grace_s, kill_s)
        for worker in workers:
            worker.leaked_pids = [pid for pid in worker.leaked_pids if pid == worker.pid]

    patch.setattr(supervisor, "end_workers", end_and_hide)


def refuses_an_env_that_is_coming_back(patch: Patch) -> None:
    """It takes an env that its new worker is resetting for one that works on an action, which no caller can know."""
    check_sendable = StepQueue.check_sendable

    def check_harder(self: StepQueue, env_ids: Iterable[int]) -> None:
        ids = list(env_ids)
        check_sendable(self, ids)
        if any(self.is_asked(env_id) for env_id in ids):
            raise EnvBusy("it is being reset")

    patch.setattr(StepQueue, "check_sendable", check_harder)


def closes_without_hearing_last_words(patch: Patch) -> None:
    """It hangs up on whoever says something during the close."""
    patch.setattr(ending, "_hear", lambda link, *_: link.hang_up())


def never_drops_a_block(patch: Patch) -> None:
    """It keeps the memory of every process mapped."""
    patch.setattr(EnvWorker, "drop_block", lambda self: setattr(self, "memory", None))


def mixes_up_actions(patch: Patch) -> None:
    """It writes each action where that of the worker's first env belongs."""
    hand_over = PoolRows.hand_over

    def hand_over_to_the_first(self: PoolRows, worker: EnvWorker, env_id: int) -> None:
        hand_over(self, worker, env_id)
        assert worker.memory is not None
        worker.memory.actions[0] = self._action_rows[env_id]

    patch.setattr(PoolRows, "hand_over", hand_over_to_the_first)


def mixes_up_rows(patch: Patch) -> None:
    """It returns answers in the order of who came first, as if that were the order of the envs."""
    gather = PoolRows.gather

    def gather_and_turn(self: PoolRows, workers: Sequence[EnvWorker], taken: Sequence[tuple[int, bool]]) -> StepBatch:
        batch = gather(self, workers, taken)
        return StepBatch(batch.env_ids[::-1], batch.lost, batch.behaviors)

    patch.setattr(PoolRows, "gather", gather_and_turn)


def forgets_how_many_envs_a_worker_has(patch: Patch) -> None:
    """Its patience is that for one env, however many a worker steps one after the other."""
    patch.setattr(simulation.seed, "patience_s", lambda timeouts, backoff_s, n_envs: patience_s(timeouts, backoff_s, 1))


def lets_an_early_start_pass(patch: Patch) -> None:
    """It opens the pool as soon as the first worker is ready."""

    def start(self: Supervisor) -> None:
        for worker in self.workers:
            self._spawn(worker)
        while not any(worker.was_ready for worker in self.workers):
            self.turn(Deadline.after(self._timeouts.spawn_s, self.clock))

    patch.setattr(Supervisor, "start", start)


def takes_every_message_for_a_note(patch: Patch) -> None:
    """It reads what nobody can read."""
    patch.setattr(failures, "said", lambda message: failures.raised(read_note(message.note, Failure)))


def recycles_in_the_middle_of_an_episode(patch: Patch) -> None:
    """It replaces a worker as soon as it may be, whatever its envs are doing."""
    patch.setattr(EnvWorker, "is_between_episodes", lambda self, env_id: True)


def holds_the_recycled_against_the_budget(patch: Patch) -> None:
    """It takes a worker that leaves for one that failed."""
    let_leave = Supervisor._let_leave

    def let_leave_and_forget(self: Supervisor, worker: EnvWorker) -> None:
        let_leave(self, worker)
        worker.state = WorkerState.UP

    patch.setattr(Supervisor, "_let_leave", let_leave_and_forget)


def never_asks_anybody_to_close(patch: Patch) -> None:
    """It waits for workers that were not told anything, then kills them."""
    patch.setattr(ending, "_ask", lambda link: None)


def all_mutants() -> list[Mutant]:
    """Return every mutant of this module: each function but this one."""
    functions = [value for value in globals().values() if getattr(value, "__module__", None) == __name__]
    return [function for function in functions if function is not all_mutants]
