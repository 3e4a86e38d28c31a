"""A soak runs cycle after cycle in a process that it watches: it survives that one's death and ends when told to."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from stepherd.core.errors import EnvNeverReady, SpecError
from stepherd.testing import soak_run
from stepherd.testing.counting_env import CountingEnv, pass_time
from stepherd.testing.footprint import descriptors_of, read_process
from stepherd.testing.soak_process import SoakProcess
from stepherd.testing.soak_request import SoakLimits
from stepherd.testing.soak_run import Soak, SoakProgress, soak

COUNTING = "python:stepherd.testing.faulty_envs:CountingEnv"
QUICK = SoakLimits(spawn_s=20.0, reset_s=1.5, step_s=1.0, grace_s=1.0)
SMALL: dict[str, Any] = {"num_envs": 2, "steps_per_cycle": 20, "limits": QUICK}

slow = pytest.mark.slow


@slow
def test_a_healthy_env_is_clean_and_every_cycle_is_done() -> None:
    report = soak(COUNTING, cycles=2, seed=3, **SMALL)

    report.check()
    assert [cycle.cycle for cycle in report.cycles] == [1, 2]
    assert report.n_steps >= 2 * 2 * 15
    assert not report.was_interrupted


@slow
def test_a_lambda_can_be_soaked_with_arguments() -> None:
    report = soak(lambda length: CountingEnv(length=length), env_kwargs={"length": 3}, cycles=1, seed=3, **SMALL)

    report.check()
    assert "<lambda>" in report.env


@slow
def test_faults_are_named_or_endured_and_nothing_is_violated() -> None:
    """Bound: a stopped worker costs a second, the others less."""
    kinds = "kill,freeze,segv,raise,exit,slow,oom,child,flood"

    report = soak(COUNTING, cycles=8, faults=kinds, seed=8, **SMALL)

    report.check()
    outcomes = report.outcomes()
    assert sum(sum(counts.values()) for counts in outcomes.values()) >= 6
    assert not any(counts["missed"] for counts in outcomes.values())
    assert report.times()["restart"]


@slow
def test_nothing_outlives_a_parent_that_is_killed() -> None:
    report = soak(COUNTING, cycles=2, faults="parent", seed=2, **SMALL)

    report.check()
    assert report.outcomes()["parent"]["endured"] >= 1
    assert report.times()["gone after the parent"]


@slow
def test_an_env_that_cannot_be_built_ends_the_soak_with_its_own_error() -> None:
    def broken() -> object:
        raise FileNotFoundError("build/Game.x86_64")

    with pytest.raises(EnvNeverReady, match=r"build/Game\.x86_64"):
        soak(broken, cycles=1, **SMALL)


@slow
def test_an_env_that_fails_by_itself_is_not_clean(tmp_path: Path) -> None:
    raising = "python:stepherd.testing.faulty_envs:RaisingEnv"
    arguments = {"after": 5, "once_path": str(tmp_path / "once")}

    report = soak(raising, cycles=1, seed=1, env_kwargs=arguments, **SMALL)

    assert {violation.check for violation in report.violations} == {"unexplained failures"}
    assert "ValueError: deliberate" in str(report)
    with pytest.raises(AssertionError, match="deliberate"):
        report.check()


@slow
def test_a_soaking_process_that_dies_is_found_and_replaced() -> None:
    killed: list[int] = []

    def kill_once(progress: SoakProgress) -> None:
        if progress.report.cycles and not killed:
            pid = soaking._process.pid if soaking._process else 0
            killed.append(pid)
            os.kill(pid, signal.Signals["SIGKILL"])

    soaking = Soak(COUNTING, cycles=3, seed=1, on_progress=kill_once, **SMALL)

    report = soaking.run()

    assert [cycle.cycle for cycle in report.cycles] == [1, 2, 3]
    assert [violation.check for violation in report.violations] == ["crashes"]
    assert "the soaking process ended (-9)" in report.violations[0].text


@slow
def test_a_soaking_process_that_hangs_is_found_with_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound: what a close may take, 0.9 s, 3 s for a busy machine, and half a second."""
    monkeypatch.setattr(soak_run, "WATCHDOG_S", 0.5)
    stopped: list[int] = []

    def stop_once(progress: SoakProgress) -> None:
        doing = progress.doing
        if doing is not None and doing.cycle == 1 and doing.phase == "closing" and not stopped:
            stopped.append(soaking._process.pid if soaking._process else 0)
            os.kill(stopped[0], signal.Signals["SIGSTOP"])

    limits = SoakLimits(spawn_s=20.0, reset_s=1.5, step_s=1.0, grace_s=0.3, kill_s=0.3)
    soaking = Soak(SlowlyClosing, cycles=1, num_envs=1, limits=limits, on_progress=stop_once)

    report = soaking.run()

    assert stopped
    (hang,) = (violation for violation in report.violations if violation.check == "hangs")
    assert "closing has not come back 0.5 s after its bound of 3.9 s" in hang.text
    assert (process := read_process(stopped[0])) is None or process.has_ended


class SlowlyClosing(CountingEnv):
    """Closes slowly enough to be met while it does, and soon enough."""

    def close(self) -> None:
        """Take a moment."""
        pass_time(0.15)


@slow
def test_a_soak_ends_when_its_time_is_up() -> None:
    began_at = time.monotonic()

    report = soak(COUNTING, minutes=2.5 / 60, seed=1, **SMALL)

    report.check()
    assert time.monotonic() - began_at < 20.0
    assert not report.was_interrupted


@slow
def test_a_soak_ends_soon_after_it_is_told_to_and_keeps_what_it_has() -> None:
    soaking = Soak(COUNTING, cycles=1000, seed=1, wants_to_stop=lambda: len(soaking.report().cycles) >= 1, **SMALL)

    report = soaking.run()

    assert 1 <= len(report.cycles) <= 2
    assert report.was_interrupted
    assert "(interrupted)" in str(report)


@slow
def test_an_exception_out_of_a_soak_ends_its_processes_at_once() -> None:
    """Bound: the fixture that looks for leftovers waits two seconds."""

    def interrupt(progress: SoakProgress) -> None:
        if progress.doing is not None and progress.doing.phase == "stepping":
            raise KeyboardInterrupt

    soaking = Soak(COUNTING, cycles=5, seed=1, on_progress=interrupt, **SMALL)

    with pytest.raises(KeyboardInterrupt):
        soaking.run()

    assert soaking.report().was_interrupted


@slow
def test_a_soaking_process_says_where_it_is() -> None:
    soaking = Soak(COUNTING, cycles=1, **SMALL)
    with SoakProcess(soaking._settings) as process:
        deadline = time.monotonic() + 20.0
        while not has_handler(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "in _serve" in process.stack()


def has_handler(pid: int) -> bool:
    """Return whether a process has come as far as to duplicate its pipes."""
    return any(fd > 2 and target.startswith("pipe:") for fd, target in descriptors_of(pid)) and bool(
        int(Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0], 16) >> 9 & 1
    )


def test_what_is_asked_for_is_checked_before_anything_starts() -> None:
    wrong: dict[str, Any]
    for wrong in ({"num_envs": 0}, {"envs_per_worker": 0}, {"cycles": 0}, {"steps_per_cycle": 0}, {"minutes": 0.0}):
        with pytest.raises(ValueError, match=r"must be 1 or more"):
            Soak(COUNTING, **wrong)
    with pytest.raises(ValueError, match="earthquake"):
        Soak(COUNTING, faults="earthquake")
    with pytest.raises(ValueError, match="seed must be 0 or more"):
        Soak(COUNTING, seed=-1)
    with pytest.raises(SpecError):
        Soak("python:no_callable")
    with pytest.raises(ValueError, match="URI or a callable"):
        Soak(CountingEnv())  # type: ignore[arg-type]  # a mistake that people make
    with pytest.raises(ValueError, match=r"step_s must be a finite number"):
        Soak(COUNTING, limits=SoakLimits(step_s=-1.0))


def test_a_seed_is_drawn_and_can_be_asked_for() -> None:
    assert Soak(COUNTING, seed=5).seed == 5
    assert Soak(COUNTING).seed != Soak(COUNTING).seed


def test_the_command_does_the_same_again() -> None:
    report = Soak(COUNTING, num_envs=3, cycles=7, faults="kill", seed=5, env_kwargs={"length": 3}).report()

    assert report.command == (
        f"stepherd soak {COUNTING} --num-envs 3 --cycles 7 --steps-per-cycle 100 --faults kill "
        "--env-kwargs '{\"length\": 3}' --seed 5"
    )


def test_limits_that_are_not_given_follow_from_the_trial_within_reason() -> None:
    assert SoakLimits().timeouts().step_s == 60.0
    assert SoakLimits().timeouts(open_s=0.5, reset_s=0.001, step_s=1.0).step_s == 10.0
    assert SoakLimits().timeouts(open_s=0.5, reset_s=0.001, step_s=1.0).reset_s == 3.0
    assert SoakLimits().timeouts(open_s=100.0).spawn_s == 60.0
    assert SoakLimits(step_s=0.5).timeouts(step_s=1.0).step_s == 0.5
