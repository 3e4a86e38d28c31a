"""Soaks an env: cycle after cycle of open, reset, step and close, with faults at random moments, and checks after each.

    from stepherd.testing.soak_run import soak

    def test_my_env_survives() -> None:
        soak("python:my_package.envs:make_env", cycles=20, faults="kill,raise,freeze").check()

The pools live in a process of their own, which this one watches: it notices when that one hangs, and kills it when
the plan says so.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stepherd.core.deadline import Deadline
from stepherd.core.errors import EnvNeverReady
from stepherd.testing.leftovers import GONE_WITHIN_S, SHARED_MEMORY, watch_leftovers
from stepherd.testing.soak_checks import check_leftovers
from stepherd.testing.soak_plan import PARENT_SIGNALS, CyclePlan, Fault, Shape, plan_cycle, read_faults
from stepherd.testing.soak_process import RunnerEnded, SoakProcess
from stepherd.testing.soak_record import CycleRecord, Doing, FaultOutcome, NeverReady, SoakSettings, Violation
from stepherd.testing.soak_report import SoakReport
from stepherd.testing.soak_request import SoakLimits, as_source, command_of, pickled

CYCLES = 20  # when neither a number nor a time is asked for
WATCHDOG_S = 10.0  # beyond every bound, in which the soaking process would have complained itself
TICK_S = 0.1  # how often whoever looks on is told that nothing has happened
START_S = 60.0  # for the soaking process to start, on a machine that is very busy
PHASES = {"spawn": "opening", "reset": "resetting", "step": "stepping", "close": "closing"}
SPREAD_S = {"spawn": 0.3, "reset": 0.02, "close": 0.05}  # how long each takes, about
STEPPING_S = (0.005, 1.0)  # the same for all steps of a cycle: what the trial took, within these


@dataclass(frozen=True, slots=True)
class SoakProgress:
    """A moment of a soak, for displays."""

    report: SoakReport
    """All so far."""
    elapsed_s: float
    n_cycles: int | None
    """How many cycles there are to be; None when a time was asked for."""
    within_s: float | None
    doing: Doing | None = None
    record: CycleRecord | None = None
    """The cycle that has just been done, if one has."""


def soak(
    env: str | Callable[..., Any],
    *,
    num_envs: int = 4,
    envs_per_worker: int = 1,
    cycles: int | None = None,
    minutes: float | None = None,
    steps_per_cycle: int = 100,
    faults: str | Iterable[str] = (),
    seed: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    limits: SoakLimits = SoakLimits(),  # noqa: B008 - frozen
    on_progress: Callable[[SoakProgress], None] | None = None,
) -> SoakReport:
    """Soak an env and return what was found; `check()` the result. The options are those of `Soak`.

    Raises:
        ValueError, SpecError: an option is wrong.
        EnvNeverReady: the env could not even be tried.
    """
    return Soak(
        env,
        num_envs=num_envs,
        envs_per_worker=envs_per_worker,
        cycles=cycles,
        minutes=minutes,
        steps_per_cycle=steps_per_cycle,
        faults=faults,
        seed=seed,
        env_kwargs=env_kwargs,
        limits=limits,
        on_progress=on_progress,
    ).run()


class Soak:
    """A soak that can be asked for what it has found so far, also when it was interrupted."""

    def __init__(
        self,
        env: str | Callable[..., Any],
        *,
        num_envs: int = 4,
        envs_per_worker: int = 1,
        cycles: int | None = None,
        minutes: float | None = None,
        steps_per_cycle: int = 100,
        faults: str | Iterable[str] = (),
        seed: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        limits: SoakLimits = SoakLimits(),  # noqa: B008 - frozen
        on_progress: Callable[[SoakProgress], None] | None = None,
        wants_to_stop: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare a soak of `env`, a URI or a callable that returns an env, in `num_envs` worker processes.

        It ends after so many cycles or minutes, whatever comes first, 20 cycles by default; or when `wants_to_stop`,
        which is asked ten times a second, says so. `faults` are kinds such as "kill,freeze", or "all".

        Raises:
            ValueError: a number is out of range, or a fault is none.
            SpecError: `env` is a string, and not a URI.
        """
        for name, value in (("num_envs", num_envs), ("envs_per_worker", envs_per_worker), ("cycles", cycles)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        if steps_per_cycle < 1 or (minutes is not None and not 0 < minutes < float("inf")):
            raise ValueError("steps_per_cycle must be 1 or more, and minutes a number above 0")
        if seed is not None and seed < 0:
            raise ValueError(f"seed must be 0 or more, not {seed}")
        self._limits, self._minutes = limits, minutes
        self._n_cycles = CYCLES if cycles is None and minutes is None else cycles
        self._on_progress, self._wants_to_stop = on_progress or _ignore, wants_to_stop or _never
        self._settings = SoakSettings(
            env=as_source(env),
            env_kwargs=pickled(dict(env_kwargs or {})),
            env_name=env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__qualname__),
            num_envs=num_envs,
            envs_per_worker=envs_per_worker,
            steps_per_cycle=steps_per_cycle,
            faults=read_faults(faults),
            seed=int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed,
            timeouts=limits.timeouts(),
            sys_path=tuple(os.path.abspath(entry) for entry in sys.path),  # noqa: PTH100 - keeps what is no path
        )
        self._command = command_of(self._settings, env_kwargs, cycles, minutes, limits)
        self._found = _Found()
        self._process: SoakProcess | None = None
        self._began_at = time.monotonic()

    @property
    def seed(self) -> int:
        """The root of all that is random: the one given, or the one that was drawn."""
        return self._settings.seed

    def report(self) -> SoakReport:
        """Return what was found so far."""
        settings, found = self._settings, self._found
        return SoakReport(
            env=settings.env_name,
            num_envs=settings.num_envs,
            envs_per_worker=settings.envs_per_worker,
            faults=settings.faults,
            seed=settings.seed,
            timeouts=settings.timeouts,
            command=self._command,
            cycles=tuple(found.cycles),
            memory=max((tuple(samples) for samples in found.memory), key=lambda samples: len(samples)),
            found=tuple(found.violations),
            took_s=time.monotonic() - self._began_at,
            was_interrupted=found.was_interrupted,
        )

    def run(self) -> SoakReport:
        """Soak, and return the report. Each cycle is bounded by the time limits, and so is the end after a stop.

        Raises:
            EnvNeverReady: the env could not even be tried.
        """
        self._began_at = time.monotonic()
        self._found = _Found(was_interrupted=True)  # until the end is reached
        with tempfile.TemporaryDirectory(prefix="stepherd-soak-") as folder, contextlib.ExitStack() as stack:
            stack.push(self._end_process)
            self._settings = replace(self._settings, folder=folder)
            self._run_trial()
            for cycle in itertools.count(1):
                if self._is_over(cycle):
                    break
                plan = plan_cycle(self.seed, cycle, self._shape)
                record = self._run_with_parent(plan, plan.parent) if plan.parent else self._run(plan)
                if record is not None:
                    self._note(record)
        self._found.was_interrupted = self._wants_to_stop()
        return self.report()

    @property
    def _shape(self) -> Shape:
        settings = self._settings
        return Shape(settings.num_envs, settings.envs_per_worker, settings.steps_per_cycle, settings.faults)

    def _is_over(self, cycle: int) -> bool:
        if self._n_cycles is not None and cycle > self._n_cycles:
            return True
        return self._wants_to_stop() or self._time_is_up()

    def _time_is_up(self) -> bool:
        return self._minutes is not None and time.monotonic() - self._began_at > 60 * self._minutes

    def _run_trial(self) -> None:
        record = self._run(plan_cycle(self.seed, 0, self._shape))
        if record is None:
            return
        self._found.violations += record.violations
        self._found.stepping_s = min(STEPPING_S[1], max(STEPPING_S[0], record.stepping_s))
        measured = self._limits.timeouts(record.open_s or 0.0, record.slowest_reset_s, record.slowest_step_s)
        self._settings = replace(self._settings, timeouts=measured)
        if self._process is not None:
            self._process.configure(self._settings)

    def _run(self, plan: CyclePlan) -> CycleRecord | None:
        """Run a cycle in the lasting process; None when it was cut short before it had begun to mean anything."""
        if self._process is None:
            self._process = SoakProcess(self._settings)
            self._found.memory.append([])
        process = self._process
        process.run(plan)
        for message in self._hear(process, plan.cycle):
            if isinstance(message, NeverReady):
                raise EnvNeverReady(0, message.text)
            if isinstance(message, CycleRecord):
                if plan.cycle and message.memory_bytes is not None:
                    self._found.memory[-1].append(message.memory_bytes)
                return message
            if isinstance(message, Violation):  # it has hung or ended, and so has all that it knew
                self._end_process(RunnerEnded)
                return CycleRecord(plan.cycle, 0.0, violations=(message,))
        return None

    def _hear(self, process: SoakProcess, cycle: int) -> Iterator[Any]:
        """Yield what the process says; a `Violation` when it hangs or ends. Stops it when somebody wants that."""
        doing = Doing(cycle, "starting", START_S)
        deadline = Deadline.after(doing.bound_s + WATCHDOG_S)
        while True:
            if self._wants_to_stop() or self._time_is_up():
                process.stop()
                if doing.phase == "starting":
                    return
            try:
                messages = process.hear(Deadline.after(TICK_S))
            except RunnerEnded as error:
                yield Violation("crashes", cycle, str(error))
                return
            for message in messages:
                yield message
                if isinstance(message, CycleRecord | NeverReady):
                    return
                doing = message
                deadline = Deadline.after(doing.bound_s + WATCHDOG_S)
            if deadline.passed and not messages:
                text = f"{doing.phase} has not come back {WATCHDOG_S:g} s after its bound of {doing.bound_s:.1f} s"
                yield Violation("hangs", cycle, f"{text}; it is here:\n{process.stack()}")
                return
            self._show(doing)

    def _run_with_parent(self, plan: CyclePlan, fault: Fault) -> CycleRecord | None:
        """Run a cycle in a process of its own and kill that; look whether anything outlives it."""
        began_at = time.monotonic()
        found: list[Violation] = []
        record: CycleRecord | None = None
        struck_at, gone_s = None, None
        folders = [SHARED_MEMORY] if SHARED_MEMORY.is_dir() else []
        with watch_leftovers(folders) as watch:
            with SoakProcess(self._settings) as process:
                process.run(plan)
                for message in self._hear_until(process, plan.cycle, fault):
                    if isinstance(message, Violation):
                        found.append(message)
                    elif isinstance(message, CycleRecord):
                        record = message
                if not found and record is None and not self._wants_to_stop():
                    struck_at = time.monotonic()
                    process.strike(PARENT_SIGNALS[fault.amount])
            leftovers = watch.wait(Deadline.after(GONE_WITHIN_S))
            if struck_at is not None:
                gone_s = time.monotonic() - struck_at
            leftovers.kill_processes()
            check_leftovers(leftovers, False, lambda check, text: found.append(Violation(check, plan.cycle, text)))
        shutil.rmtree(Path(self._settings.folder) / f"cycle-{plan.cycle}", ignore_errors=True)
        if record is not None:  # the cycle was over before its process could be killed
            return replace(record, violations=(*record.violations, *found), memory_bytes=None)
        outcome = "missed" if found else "too late" if struck_at is None else "endured"
        return CycleRecord(
            plan.cycle,
            time.monotonic() - began_at,
            faults=(FaultOutcome("parent", fault.where, outcome),),
            violations=tuple(found),
            gone_s=gone_s,
        )

    def _hear_until(self, process: SoakProcess, cycle: int, fault: Fault) -> Iterator[Any]:
        """Yield what the process says until the moment of the fault has come."""
        moment: Deadline | None = None
        for message in self._hear(process, cycle):
            yield message
            if isinstance(message, Doing) and message.phase == PHASES[fault.where] and moment is None:
                moment = Deadline.after(fault.after * SPREAD_S.get(fault.where, self._found.stepping_s))
                break
        while moment is not None and not moment.passed:
            try:
                yield from process.hear(moment)
            except RunnerEnded as error:
                yield Violation("crashes", cycle, str(error))
                return

    def _note(self, record: CycleRecord) -> None:
        self._found.cycles.append(record)
        self._found.violations += record.violations
        self._show(None, record)

    def _show(self, doing: Doing | None, record: CycleRecord | None = None) -> None:
        elapsed_s = time.monotonic() - self._began_at
        within_s = None if self._minutes is None else 60 * self._minutes
        self._on_progress(SoakProgress(self.report(), elapsed_s, self._n_cycles, within_s, doing, record))

    def _end_process(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """End the process; at once when that is because of an error."""
        if self._process is not None:
            process, self._process = self._process, None
            with process:
                if kind is not None:
                    process.kill()


class _Found:
    """What a soak has found so far."""

    def __init__(self, was_interrupted: bool = False) -> None:
        self.cycles: list[CycleRecord] = []
        self.violations: list[Violation] = []
        self.memory: list[list[int]] = [[]]
        """A list for each process that soaked; a new one begins small again."""
        self.stepping_s = STEPPING_S[0]
        self.was_interrupted = was_interrupted


def _ignore(progress: SoakProgress) -> None:
    """Nobody looks on."""


def _never() -> bool:
    return False
