"""Somebody who uses a pool: in lockstep or not, patiently or not, correctly or not; every answer is checked."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from simulation.book import Book
from simulation.fake_env import Truth, actions_for, read_row
from simulation.weather import Weather
from simulation.world import CtrlC, Violation, World
from stepherd.core.errors import (
    EnvBusy,
    EnvNeverReady,
    ManagerClosed,
    StepherdError,
    TooFewReady,
    WorkerError,
    WorkerFailed,
)
from stepherd.core.waiting import TICK_S
from stepherd.manager.lateness import STACK_S
from stepherd.manager.report import CloseReport
from stepherd.manager.subprocess_env_manager import SubprocessEnvManager
from stepherd.spec.batch import StepBatch
from stepherd.spec.specs import EnvSpec

T = TypeVar("T")
STATES = {"spawning", "idle", "resetting", "stepping", "closing", "down"}


class OwnError(Exception):
    """The caller's own code has gone wrong."""


class Caller:
    """One caller of one pool."""

    def __init__(
        self,
        world: World,
        weather: Weather,
        book: Book,
        truth: Truth,
        manager: SubprocessEnvManager,
        spec: EnvSpec,
        patience_s: float,
    ) -> None:
        self._world, self._book, self._truth, self._manager, self._spec = world, book, truth, manager, spec
        self._weather, self._timeouts, self._patience_s = weather, weather.timeouts, patience_s
        self._rng: Random = world.rng
        self._numbers = itertools.count(1)
        self._held: tuple[StepBatch, StepBatch] | None = None
        rng = self._rng
        self._in_lockstep = rng.random() < 0.4
        self._p_mistake = rng.choice((0.0, 0.05))
        self._p_reset = rng.choice((0.0, 0.02, 0.1, 0.4))
        self._p_pause = rng.choice((0.0, 0.05, 0.3))
        self._impatient = rng.random() < 0.3

    # A life with a pool.

    def live(self, n_turns: int) -> None:
        """Open the pool, use it for a while, leave it in one of many ways."""
        if not self._enter():
            return
        error: BaseException | None = None
        try:
            self._work(n_turns)
            self._leave()
        except (OwnError, CtrlC) as own:
            self._world.note("caller", "leaves the block with {!r}", own)
            error = own
        kind = None if error is None else type(error)
        self._close("leave", lambda: self._manager.__exit__(kind, error, None), self._timeouts.close_s)

    def _enter(self) -> bool:
        bound_s = self._timeouts.spawn_s + TICK_S + STACK_S + self._timeouts.close_s
        errors = (EnvNeverReady, WorkerFailed, OSError)
        try:
            entered = self._call("enter", bound_s, errors, self._manager.__enter__)
        except CtrlC:
            return False
        if isinstance(entered, OSError):
            self._world.check(entered.errno == 11, "refuses for a reason of its own: {!r}", entered)
        return entered is self._manager

    def _work(self, n_turns: int) -> None:
        if self._rng.random() < 0.03:
            self._pause()
            return
        if isinstance(self._reset(self._rng.choice((None, 1))), WorkerError):
            return
        for _ in range(n_turns):
            outcome = self._take_turn()
            if isinstance(outcome, WorkerError) and self._rng.random() < 0.9:
                return

    def _take_turn(self) -> object:
        rng = self._rng
        if rng.random() < self._p_pause:
            self._pause()
        if rng.random() < self._p_mistake:
            self._make_a_mistake()
        if rng.random() < 0.02:
            self._glance()
        if rng.random() < self._p_reset:
            return self._reset(rng.choice((None, None, 1, 2)))
        free = [env_id for env_id, env in enumerate(self._book.envs) if env.free]
        if free and (self._in_lockstep or rng.random() < 0.8):
            self._send(free if self._in_lockstep else rng.sample(free, rng.randint(1, len(free))))
        if self._in_lockstep:
            return self._recv(None, None)
        if rng.random() < 0.2:
            return None
        n_busy = len(self._book.envs) - sum(env.free for env in self._book.envs)
        min_envs = rng.choice((None, 0, 1, rng.randint(0, len(self._book.envs)), n_busy))
        return self._recv(min_envs, rng.choice((0.0, 0.001, 0.1, 3.0)) if self._impatient else None)

    def _leave(self) -> None:
        free = [env_id for env_id, env in enumerate(self._book.envs) if env.free]
        if free and self._book.was_reset and self._rng.random() < 0.3:
            if self._rng.random() < 0.5:
                self._weather.break_out()
            self._send(free)
            self._pause()
            if self._rng.random() < 0.5:
                self._recv(None, None)
        choice = self._rng.random()
        if choice < 0.45:
            self._drain(self._rng.choice((None, None, None, 0.0, 0.05)))
        elif choice < 0.6:
            raise OwnError("a mistake in the caller's code")
        if self._rng.random() < 0.3:
            grace_s = self._rng.choice((None, 0.0))
            bound_s = self._timeouts.close_s if grace_s is None else self._timeouts.kill_s
            self._close("close", lambda: self._manager.close(grace_s), bound_s)

    def _pause(self) -> None:
        seconds = self._rng.choice((0.001, 0.1, 1.0, self._timeouts.step_s + self._timeouts.reset_s))
        self._world.note("caller", "does something else for {:.3f} s", seconds)
        self._world.let_pass(seconds)

    # What one can ask of a pool.

    def _reset(self, seed: int | None) -> object:
        self._world.note("caller", "resets all with seed {}", seed)
        seeded = seed is not None or not self._book.was_reset
        self._check_held()
        self._book.was_reset = self._book.is_resetting = True
        bound_s, n_failures = 2 * self._patience_s, self._book.n_failures
        outcome = self._call("reset", bound_s, (WorkerError, TooFewReady), lambda: self._manager.reset(seed))
        self._book.is_resetting = False
        if not isinstance(outcome, StepBatch):
            in_vain = isinstance(outcome, TooFewReady) and self._book.n_failures == n_failures
            self._world.check(not in_vain, "gives up though every worker keeps to its limits: {}", outcome)
            for env in self._book.envs:
                env.resets, env.free = True, False
            return outcome
        self._world.check(outcome.env_ids.tolist() == list(range(len(self._book.envs))), "reset returns other rows")
        self._world.note("manager", "returns the first observations of all")
        for row, env_id in enumerate(outcome.env_ids.tolist()):
            answer, lost = read_row(outcome.behaviors, row), bool(outcome.lost[row])
            self._book.take_first_row(env_id, lost, answer, self._manager._seeds, seeded=seeded)
        self._hold(outcome)
        return outcome

    def _send(self, env_ids: list[int]) -> None:
        numbers = [next(self._numbers) for _ in env_ids]
        self._world.note("caller", "sends actions {} to envs {}", numbers, env_ids)
        self._try_to_send(numbers, env_ids, ())
        self._note_sent(numbers, env_ids)

    def _note_sent(self, numbers: list[int], env_ids: list[int]) -> None:
        for number, env_id in zip(numbers, env_ids, strict=True):
            env = self._book.envs[env_id]
            self._book.sent[number] = env_id
            env.free = False
            if not env.lost:
                env.action = number

    def _try_to_send(self, numbers: list[int], env_ids: list[int], errors: tuple[type[Exception], ...]) -> object:
        actions: Any = actions_for(self._spec, numbers)
        if len(actions) == 1 and self._rng.random() < 0.5:
            actions = actions[self._spec.names[0]]
        every = env_ids == list(range(len(self._book.envs))) and self._rng.random() < 0.5
        return self._call("send", 0.0, errors, lambda: self._manager.send(actions, None if every else env_ids))

    def _recv(self, min_envs: int | None, within_s: float | None) -> object:
        self._world.note("caller", "receives at least {} envs within {} s", min_envs, within_s)
        self._check_held()
        book, began = self._book, self._world.now
        bound_s = self._patience_s if within_s is None else within_s
        lying_there = book.lying_there()
        n_failures, broken = book.n_failures, book.broken
        least = 1 if min_envs is None else min_envs
        most = max(1, sum(env.action is not None for env in book.envs)) if min_envs is None else min_envs
        outcome = self._call(
            "recv",
            bound_s + 1e-9,  # it may look without any time, but not send
            (WorkerError, TooFewReady),
            lambda: self._manager.recv(min_envs, within_s),
        )
        if broken is not None:
            self._world.check(outcome is broken, "goes on though its budget was spent")
        elif isinstance(outcome, TooFewReady):
            is_over = self._world.now >= began + bound_s
            self._world.check(is_over or self._n_due() < least, "gives up early: {}", outcome)
            has_failed = book.n_failures > n_failures
            self._world.check(len(lying_there) < most or has_failed, "overlooks {}", lying_there)
            in_vain = within_s is None and self._n_due() >= least and not has_failed
            self._world.check(not in_vain, "gives up though every worker keeps to its limits: {}", outcome)
        elif isinstance(outcome, StepBatch):
            self._take(outcome)
            self._world.check(len(outcome) >= least, "returns too few")
            left = book.in_flight()
            self._world.check(min_envs is not None or not left, "does not wait for envs {}", left)
            self._world.check(min_envs != 0 or not lying_there & left, "overlooks {}", lying_there)
        return outcome

    def _n_due(self) -> int:
        """Return how many envs owe a row, or will without anything being sent."""
        return len(self._book.in_flight()) + sum(env.resets or env.lost for env in self._book.envs)

    def _drain(self, within_s: float | None) -> None:
        self._world.note("caller", "drains within {} s", within_s)
        self._check_held()
        book, began = self._book, self._world.now
        lying_there = book.lying_there()
        book.draining = True
        bound_s = self._patience_s if within_s is None else within_s
        outcome = self._call("drain", bound_s + 1e-9, (), lambda: self._manager.drain(within_s))
        assert isinstance(outcome, StepBatch)
        self._take(outcome)
        left = book.in_flight()
        in_time = self._world.now < began + bound_s
        self._world.check(not left or not in_time, "drain leaves envs {}", left)
        self._world.check(not left & lying_there, "drain overlooks envs {}", left & lying_there)
        self._world.check(not left or within_s is not None, "drain gives up on envs {}", left)

    def _glance(self) -> None:
        statuses = self._call("statuses", 0.0, (), self._manager.statuses)
        assert isinstance(statuses, list)
        for worker_id, status in enumerate(statuses):
            known = status.worker_id == worker_id and status.state in STATES
            self._world.check(known and status.pid == self._book.link_of(worker_id).pid, "shows {}", status)

    def _make_a_mistake(self) -> None:
        rng, envs = self._rng, self._book.envs
        busy = sorted(self._book.in_flight())
        numbers = [next(self._numbers) for _ in range(2)]
        mistakes: list[tuple[type[Exception], list[int], list[int]]] = [
            (EnvBusy, numbers[:1], [len(envs)]),
        ]
        if busy:
            mistakes.append((EnvBusy, numbers[:1], [rng.choice(busy)]))
        if envs[0].free:
            mistakes += [(ValueError, numbers, [0, 0]), (ValueError, numbers, [0])]
        kind, numbers, env_ids = rng.choice(mistakes)
        outcome = self._try_to_send(numbers, env_ids, (kind,))
        self._world.check(isinstance(outcome, kind), "accepts {} for envs {}", numbers, env_ids)

    def _close(self, how: str, close: Callable[[], object], bound_s: float) -> None:
        self._world.note("caller", "closes ({})", how)
        self._book.draining = True
        with contextlib.suppress(CtrlC):  # it has closed all the same
            self._call("close", bound_s, (), close)

    # What every call must keep to.

    def _call(
        self, name: str, bound_s: float, errors: tuple[type[Exception], ...], act: Callable[[], T]
    ) -> T | Exception:
        with self._world.call_of(name, bound_s):
            try:
                outcome: T | Exception = act()
            except Violation:
                raise
            except errors as error:
                outcome = error
            except Exception as error:
                raise Violation(f"{name} raises what is not promised: {error!r}") from error
        if isinstance(outcome, StepherdError):
            self._world.note("manager", "raises {!r}", outcome)
        self._book.check_error(outcome if isinstance(outcome, WorkerError) else None)
        return outcome

    def _take(self, batch: StepBatch) -> None:
        env_ids = batch.env_ids.tolist()
        self._world.note("manager", "returns envs {}, lost {}", env_ids, batch.lost.tolist())
        self._world.check(env_ids == sorted(set(env_ids)), "rows are not in order: {}", env_ids)
        for row, env_id in enumerate(env_ids):
            self._book.take_row(env_id, bool(batch.lost[row]), read_row(batch.behaviors, row))
        self._hold(batch)

    def _hold(self, batch: StepBatch) -> None:
        if self._rng.random() < 0.1:
            self._held = (batch, batch.copy())

    def _check_held(self) -> None:
        """Check that the last batch is what it was: it is good until the next one."""
        if self._held is not None:
            batch, copy = self._held
            for row in range(len(copy)):
                same = read_row(batch.behaviors, row) == read_row(copy.behaviors, row)
                self._world.check(same, "a batch changes in the caller's hands")
            self._held = None


def check_that_it_is_closed(world: World, manager: SubprocessEnvManager, report: CloseReport) -> None:
    """Check that a closed pool says so, whatever is asked of it, and closes again without doing anything."""
    uses: list[Callable[[], object]] = [manager.recv, manager.reset, manager.drain, lambda: manager.send({}, [])]
    for use in uses:
        with world.call_of("use after close", 0.0):
            try:
                use()
            except ManagerClosed:
                continue
        raise Violation("works after the close")
    with world.call_of("close again", 0.0):
        world.check(manager.close() is report, "closes twice, with two reports")
