"""One cycle of a soak: open a pool, reset, step, commit the faults of the plan, close, and look at what is left."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stepherd.core.deadline import Deadline
from stepherd.core.errors import EnvNeverReady, TooFewReady
from stepherd.core.waiting import TICK_S
from stepherd.manager.open import open_env_manager
from stepherd.manager.report import CloseReport
from stepherd.manager.restarts import RestartPolicy
from stepherd.manager.subprocess_env_manager import SubprocessEnvManager
from stepherd.spec.batch import StepBatch
from stepherd.testing.footprint import HAS_PROC
from stepherd.testing.leftovers import GONE_WITHIN_S, default_folders, watch_leftovers
from stepherd.testing.soak_actions import draw_actions
from stepherd.testing.soak_books import Books
from stepherd.testing.soak_checks import check_counts, check_faults, check_leftovers
from stepherd.testing.soak_env import SoakFactory
from stepherd.testing.soak_faults import Victims
from stepherd.testing.soak_plan import KINDS, CyclePlan, Where
from stepherd.testing.soak_record import CycleRecord, Doing, FaultOutcome, SoakSettings, Violation

ENDLESS = RestartPolicy(
    max_lifetime_restarts=-1, restarts_rate_limit_n=-1, restarts_rate_limit_period_s=1.0, backoff_max_s=0.0
)
BUSY_MACHINE_S = 3.0  # how much longer than promised a call may take before it counts: other programs run here too
TELL_EVERY_S = 0.2
ROUND_S_MIN = 0.001  # a signal "during a step" comes within this, or within the time a round takes
SLOW_SHARE = 0.3  # of what a step may take
CLOSE_SPREAD_S = 0.05  # about what a close takes
VIOLATIONS_MAX = 40  # of one cycle; a broken pool would have one for every row

Tell = Callable[[Doing], None]


class CutShort(Exception):
    """The cycle is to end now."""


def run_cycle(
    settings: SoakSettings, plan: CyclePlan, tell: Tell, wants_to_stop: Callable[[], bool]
) -> tuple[CycleRecord, EnvNeverReady | None]:
    """Run one cycle; return its record, and the refusal if the pool could not be opened.

    `tell` is called before everything that may take a while, and several times a second. When `wants_to_stop` says
    so, what is left of the stepping is left out. Blocks within the bounds of the settings' timeouts.
    """
    begun_at = time.monotonic()
    folder = Path(settings.folder) / f"cycle-{plan.cycle}"
    with _own_folder(folder), watch_leftovers(default_folders()) as watch:
        cycle = _Cycle(settings, plan, folder / "pages", tell, wants_to_stop)
        try:
            cycle.run()
            record, refusal, force = cycle.record(), cycle.refusal, cycle.ended_by_force
        finally:
            cycle.victims.close()
        del cycle  # with all that it holds
        found: list[Violation] = []
        tell(Doing(plan.cycle, "looking", GONE_WITHIN_S + BUSY_MACHINE_S))
        leftovers = watch.wait(Deadline.after(GONE_WITHIN_S))
        leftovers.kill_processes()
        notes = check_leftovers(leftovers, force, lambda check, text: found.append(Violation(check, plan.cycle, text)))
    record = replace(
        record,
        took_s=time.monotonic() - begun_at,
        violations=(*record.violations, *found),
        notes=tuple(notes),
        memory_bytes=memory_of_this_process(),
    )
    return record, refusal


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """Make a temporary folder for this process and all that it starts, and one for the pages of the envs."""
    (folder / "pages").mkdir(parents=True)
    (folder / "tmp").mkdir()
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    try:
        yield
    finally:
        tempfile.tempdir = before[1]
        if before[0] is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = before[0]
        shutil.rmtree(folder, ignore_errors=True)


def memory_of_this_process() -> int | None:
    """Return the bytes of memory this process holds, None where that cannot be read."""
    gc.collect()
    if HAS_PROC:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
    try:
        import psutil  # only where there is no /proc; comes with the extra `dev`
    except ModuleNotFoundError:
        return None
    return int(psutil.Process().memory_info().rss)


class _Cycle:
    """The state of one cycle while it runs."""

    def __init__(
        self, settings: SoakSettings, plan: CyclePlan, pages: Path, tell: Tell, wants_to_stop: Callable[[], bool]
    ) -> None:
        self._settings, self._plan, self._timeouts = settings, plan, settings.timeouts
        slow_step_s, slow_reset_s = SLOW_SHARE * self._timeouts.step_s, SLOW_SHARE * self._timeouts.reset_s
        k = settings.envs_per_worker
        self.victims = Victims(pages, k, plan.faults, slow_step_s=slow_step_s, slow_reset_s=slow_reset_s)
        self.refusal: EnvNeverReady | None = None
        self._factory = SoakFactory(settings.env, settings.env_kwargs, str(pages), settings.env_name)
        self._tell, self._wants_to_stop, self._told_at = tell, wants_to_stop, 0.0
        self._rng = np.random.default_rng(plan.seed)
        self._books: Books | None = None
        self._report: CloseReport | None = None
        self._violations: list[Violation] = []
        self._open_s: float | None = None
        self._round_s, self._slowest_round_s, self._slowest_reset_s = ROUND_S_MIN, 0.0, 0.0
        self._n_rounds, self._stepping_s = 0, 0.0
        # An answer takes: all envs of the worker step and begin an episode; or it is late, and comes from a new worker.
        new_worker_s = self._timeouts.spawn_s + k * self._timeouts.reset_s
        self._answer_s = k * (self._timeouts.step_s + self._timeouts.reset_s) + new_worker_s + 4 * TICK_S

    # The cycle, in the order of things.

    def run(self) -> None:
        """Go through the cycle. Whatever breaks the pool is a finding, not an error of the soak."""
        pool = open_env_manager(
            self._factory,
            num_workers=self._settings.num_envs,
            envs_per_worker=self._settings.envs_per_worker,
            seed=self._plan.seed,
            timeouts=self._timeouts,
            restarts=ENDLESS,
            on_event=self.victims.hear,
        )
        try:
            if self._open(pool):
                self._use(pool)
        except CutShort:
            pass
        except Exception:  # noqa: BLE001 - the pool may break in any way
            self._complain("crashes", traceback.format_exc())
        finally:
            self._close(pool)
            self.victims.settle()

    def _open(self, pool: SubprocessEnvManager) -> bool:
        with self._bounded("opening", self._timeouts.spawn_s + TICK_S + self._timeouts.close_s) as watch:
            try:
                pool.__enter__()
            except EnvNeverReady as error:
                self.refusal = error
                return False
        self._open_s = watch.took_s
        return True

    def _use(self, pool: SubprocessEnvManager) -> None:
        books = self._books = Books(
            pool.spec, pool.n_envs, self._settings.envs_per_worker, lambda text: self._complain("values", text)
        )
        self.victims.on_failure = books.lose
        free: list[int] = []
        for number in range(self._plan.n_rounds):
            if self._wants_to_stop():
                raise CutShort
            if number in self._plan.resets_at:
                free = self._reset(pool, books, number)
            self._strike(number, "idle", 0.0)
            free = self._round(pool, books, free, number)
            self._n_rounds += 1
        if self._plan.settles:
            self._settle(pool, books, free)
        if self._plan.drains:
            with self._bounded("draining", self._answer_s):
                books.take(pool.drain(within_s=self._answer_s))

    def _reset(self, pool: SubprocessEnvManager, books: Books, number: int) -> list[int]:
        self._strike(number, "reset", max(ROUND_S_MIN, self._slowest_reset_s))
        with self._bounded("resetting", 2 * self._answer_s) as watch:  # what is in flight, then the resets
            batch = pool.reset()
        self._slowest_reset_s = max(self._slowest_reset_s, watch.took_s)
        books.take_reset(batch)
        self._say("stepping", self._answer_s, books.delivered, Counter(one.state for one in pool.statuses()))
        return [int(env_id) for env_id in batch.env_ids]

    def _round(self, pool: SubprocessEnvManager, books: Books, free: list[int], number: int) -> list[int]:
        self._strike(number, "step", self._round_s)
        begun_at = time.monotonic()
        self._send(pool, books, free)
        n_coming = len(set(books.in_flight) | set(books.awaited))
        min_envs = None if self._plan.waits_for_all else int(self._rng.integers(1, n_coming + 1))
        batch = self._recv(pool, books, min_envs)
        took_s = time.monotonic() - begun_at
        self._round_s, self._stepping_s = max(ROUND_S_MIN, took_s), self._stepping_s + took_s
        self._slowest_round_s = max(self._slowest_round_s, self._round_s)
        return [int(env_id) for env_id in batch.env_ids]

    def _settle(self, pool: SubprocessEnvManager, books: Books, free: list[int]) -> None:
        """Wait for everybody, after a last call to each env: it finds out who died without having been asked."""
        self.victims.wait_for_timers()
        self._send(pool, books, free)
        deadline = Deadline.after(2 * self._answer_s)
        while books.in_flight or books.awaited:
            self._recv(pool, books, 1)
            if deadline.passed:
                missing = sorted({*books.in_flight, *books.awaited})
                self._complain("hangs", f"envs {missing} have not come back within {2 * self._answer_s:.1f} s")
                raise CutShort

    def _close(self, pool: SubprocessEnvManager) -> None:
        self._strike(None, "close", CLOSE_SPREAD_S)
        try:
            with self._bounded("closing", self._timeouts.close_s):
                self._report = pool.close()
        except Exception:  # noqa: BLE001 - as above
            self._complain("crashes", traceback.format_exc())

    # What the steps above are made of.

    def _send(self, pool: SubprocessEnvManager, books: Books, env_ids: Sequence[int]) -> None:
        if env_ids:
            actions = draw_actions(pool.spec, len(env_ids), self._rng)
            pool.send(actions, env_ids)
            books.send(actions, env_ids)

    def _recv(self, pool: SubprocessEnvManager, books: Books, min_envs: int | None) -> StepBatch:
        if time.monotonic() - self._told_at > TELL_EVERY_S:
            states = Counter(status.state for status in pool.statuses())
            self._say("stepping", self._answer_s, books.delivered, states)
        with self._bounded("", self._answer_s):
            try:
                batch = pool.recv(min_envs, within_s=self._answer_s)
            except TooFewReady as error:
                self._complain("hangs", f"no answer within {self._answer_s:.1f} s: {error}")
                raise CutShort from error
        books.take(batch)
        return batch

    def _strike(self, number: int | None, where: Where, spread_s: float) -> None:
        for fault in self._plan.faults:
            if fault.where == where and number in (fault.at_round, None):
                self.victims.strike(fault, fault.after * spread_s)

    @contextlib.contextmanager
    def _bounded(self, phase: str, bound_s: float) -> Iterator[_Stopwatch]:
        """Complain when the body takes longer than it may; announce it, if it has a name."""
        if phase:
            self._say(phase, bound_s, self._books.delivered if self._books else 0, {})
        watch = _Stopwatch(time.monotonic())
        try:
            yield watch
        finally:
            watch.took_s = time.monotonic() - watch.begun_at
            if watch.took_s > bound_s + BUSY_MACHINE_S:
                text = f"{phase or 'stepping'} took {watch.took_s:.1f} s, {bound_s:.1f} s are promised"
                self._complain("hangs", text)

    def _say(self, phase: str, bound_s: float, n_steps: int, states: Mapping[str, int]) -> None:
        self._told_at = time.monotonic()
        self._tell(Doing(self._plan.cycle, phase, bound_s + BUSY_MACHINE_S, self._n_rounds, n_steps, states))

    def _complain(self, check: str, text: str) -> None:
        if len(self._violations) < VIOLATIONS_MAX:
            self._violations.append(Violation(check, self._plan.cycle, text))

    # What there is to say afterwards.

    @property
    def ended_by_force(self) -> bool:
        """Whether an env had no chance to tidy up."""
        exits = [worker.exit for worker in self._report.workers] if self._report else []
        return any(KINDS[i.fault.kind].spoils and i.struck for i in self.victims.injections) or any(
            exit_.startswith("killed") for exit_ in exits
        )

    def record(self) -> CycleRecord:
        """Judge the cycle."""
        lives, report, books = self.victims.lives, self._report, self._books
        faults: list[FaultOutcome] = []
        if report is not None:
            faults = check_faults(self.victims.injections, lives, report, self._complain)
            check_counts(report, lives, books.sent if books else 0, books.delivered if books else 0, self._complain)
        return CycleRecord(
            self._plan.cycle,
            took_s=0.0,
            n_rounds=self._n_rounds,
            sent=report.sent if report else 0,
            delivered=report.delivered if report else 0,
            discarded=report.discarded if report else 0,
            unbegun=report.unbegun if report else 0,
            open_s=self._open_s,
            close_s=report.took_s if report and self._open_s is not None else None,
            n_restarts=sum(life.generation > 0 for life in lives),
            restarts_s=tuple(self._restarts_s()),
            faults=tuple(faults),
            violations=tuple(self._violations),
            slowest_step_s=self._slowest_round_s,
            stepping_s=self._stepping_s,
            slowest_reset_s=self._slowest_reset_s,
        )

    def _restarts_s(self) -> Iterator[float]:
        failed_at: dict[int, float] = {}
        for life in self.victims.lives:
            if life.worker_id in failed_at and life.ready_at is not None:
                yield life.ready_at - failed_at[life.worker_id]
            if life.failed_at is not None:
                failed_at[life.worker_id] = life.failed_at


@dataclass(slots=True)
class _Stopwatch:
    begun_at: float
    took_s: float = 0.0
