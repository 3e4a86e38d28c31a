"""A check finds each mistake in an env, says what to do about it, and has nothing to say against a sound one."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepherd.core.deadline import Timeouts
from stepherd.core.errors import SpecError
from stepherd.envs.build import build_env
from stepherd.envs.env import Env
from stepherd.testing.check_findings import Finding, findings
from stepherd.testing.check_run import CheckReport, check_env
from stepherd.testing.check_trials import Arrangement, Laboratory
from stepherd.testing.soak_request import as_source, pickled
from unit.testing import careless_envs as careless

pytestmark = pytest.mark.slow  # every test but the last few opens pools

LIMITS = Timeouts(spawn_s=20.0, reset_s=5.0, step_s=5.0, grace_s=2.0)
IMPATIENT = Timeouts(spawn_s=20.0, reset_s=5.0, step_s=5.0, grace_s=0.3)
OF_ONE_TRIAL = {"calls", "spaces", "numbers", "episodes", "observations", "output", "close", "leftovers", "memory"}


def check(env: Callable[..., Any], **kwargs: Any) -> CheckReport:
    return check_env(env, env_kwargs=kwargs, steps=40, timeouts=LIMITS)


def try_once(folder: Path, env: Callable[..., Any], timeouts: Timeouts = LIMITS, **kwargs: Any) -> dict[str, Finding]:
    """Return what one trial alone can find that is not well, by name."""
    laboratory = Laboratory(as_source(env), pickled(kwargs), "env", folder, 60, 10.0, timeouts)
    trial = laboratory.run(Arrangement("alone", samples_memory=True))
    names = ("alone", "again", "other seed", "two workers", "two in one")
    found = findings(dict.fromkeys(names, trial))
    return {finding.name: finding for finding in found if finding.severity != "ok" and finding.name in OF_ONE_TRIAL}


def wrong_in(report: CheckReport) -> dict[str, str]:
    """Return what is not well, by name, with how severe it is."""
    return {finding.name: finding.severity for finding in report.findings if finding.severity != "ok"}


def text_of(report: CheckReport, name: str) -> str:
    return next(finding.text for finding in report.findings if finding.name == name)


@pytest.mark.parametrize("env", [careless.OwnFileEnv, careless.NestedEnv])
def test_a_sound_env_is_safe(env: Callable[..., Any]) -> None:
    report = check(env)

    assert wrong_in(report) == {}
    report.check()
    assert "17 ok, 0 warnings, 0 failures: safe to run in parallel." in str(report)


@pytest.mark.parametrize(
    ("env", "name", "severity", "words"),
    [
        (careless.EndlessEnv, "episodes", "warn", "no episode ended within 60 random steps"),
        (careless.ReusingEnv, "observations", "warn", "returns the same array each time"),
        (careless.ChattyEnv, "output", "warn", "bytes a step"),
        (careless.GrowingEnv, "memory", "warn", "every 1,000 steps"),
        (careless.WrongDtypeEnv, "spaces", "warn", "observation 'obs' is float64, its space declares float32"),
        (careless.OutsideEnv, "spaces", "fail", "outside of its bounds -1.0 to 1.0"),
        (careless.NanEnv, "numbers", "fail", "observation 'obs' had NaN in a step"),
        (careless.InfiniteRewardEnv, "numbers", "fail", "a reward was inf"),
        (careless.FileLeavingEnv, "leftovers", "warn", "remove it in close()"),
        (careless.MovingEnv, "leftovers", "warn", "it changes into $TMPDIR"),
        (careless.ChildLeavingEnv, "leftovers", "warn", "after close() there was still process"),
        (partial(careless.NestedEnv, right=False), "spaces", "fail", "'rest/0' 5, which is not in Discrete(3)"),
        (careless.OldResetEnv, "calls", "fail", "reset() returned ndarray instead of (observation, info)"),
        (careless.OldStepEnv, "calls", "fail", "step() returned tuple of 4 instead of (observation, reward, "),
        (careless.SeedlessEnv, "calls", "fail", "reset() takes no seed"),
        (careless.RaisingEnv, "calls", "fail", "ValueError: the sea has parted"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_mistake_is_found_and_nothing_else(
    tmp_path: Path, env: Callable[..., Any], name: str, severity: str, words: str
) -> None:
    found = try_once(tmp_path, env)

    assert {name: finding.severity for name, finding in found.items()} == {name: severity}
    assert words in found[name].text


def test_a_thread_that_keeps_the_process_from_ending_is_named(tmp_path: Path) -> None:
    found = try_once(tmp_path, careless.ThreadLeavingEnv, IMPATIENT)

    assert {finding.severity for finding in found.values()} == {"fail"}
    assert "did not end by itself" in found["close"].text
    assert "'physics'" in found["leftovers"].text


def test_a_close_that_hangs_is_found_within_its_bound(tmp_path: Path) -> None:
    """Bound: twice the grace of 0.3 s."""
    found = try_once(tmp_path, careless.HangingCloseEnv, IMPATIENT)

    assert found["close"].severity == "fail"
    assert "it did not end when asked, while closing env 0" in found["close"].text


def test_seeds_that_change_nothing_are_found() -> None:
    report = check(careless.DeafToSeedsEnv)

    assert wrong_in(report) == {"seeds": "warn"}
    assert "another seed changes nothing" in text_of(report, "seeds")


def test_a_variable_that_two_envs_of_a_worker_share_is_found() -> None:
    report = check(careless.ClassVariableEnv)

    assert wrong_in(report) == {"two in one": "warn"}
    assert "keep --envs-per-worker 1" in text_of(report, "two in one")
    assert report.is_safe


def test_a_generator_that_the_process_shares_is_found_by_what_it_does() -> None:
    unseeded, seeded = check(careless.GlobalRandomEnv), check(careless.SeededGlobalRandomEnv)

    assert wrong_in(unseeded) == {"repeats": "warn", "global random": "warn"}
    assert "from step 0 on" in text_of(unseeded, "repeats")
    assert "random (in reset)" in text_of(unseeded, "global random")
    assert wrong_in(seeded) == {"global random": "warn", "two in one": "warn"}
    assert "numpy.random (in reset)" in text_of(seeded, "global random")


@pytest.mark.parametrize("shared", [False, True])
def test_a_fixed_port_is_named(shared: bool) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    report = check(careless.FixedPortEnv, port=port, shared=shared)

    assert wrong_in(report)["two workers"] == "fail"
    assert f"port {port} in every process" in text_of(report, "two workers") or f"port {port}, so they" in text_of(
        report, "two workers"
    )
    assert "port 0" in text_of(report, "two workers")
    assert ("Address already in use" in text_of(report, "two workers")) == (not shared)


@pytest.mark.parametrize(("mode", "severity"), [("w", "fail"), ("a", "warn")])
def test_a_file_that_all_write_to_is_named(mode: str, severity: str) -> None:
    report = check(careless.FixedFileEnv, mode=mode)

    assert wrong_in(report) == {"files": severity}
    assert "$TMPDIR/state.txt" in text_of(report, "files")
    assert "os.getpid()" in text_of(report, "files")


def test_an_env_that_fails_is_tried_once() -> None:
    told: list[str] = []

    report = check_env(careless.RaisingEnv, steps=40, timeouts=LIMITS, on_progress=told.append)

    assert told == ["alone"]
    assert wrong_in(report) == {"calls": "fail"}
    assert "not safe to run in parallel yet" in str(report)
    with pytest.raises(AssertionError, match="the sea has parted"):
        report.check()


def test_an_env_that_cannot_be_built_is_told_with_its_own_error() -> None:
    report = check(partial(open, "/no/such/file"))

    assert not report.was_built
    assert not report.is_safe
    assert "No such file or directory: '/no/such/file'" in text_of(report, "construct")
    assert str(report).endswith("It could not be built, so there was nothing to check.")


def test_trials_are_announced_and_the_report_can_be_read_by_programs(tmp_path: Path) -> None:
    told: list[str] = []

    report = check_env(
        "python:stepherd.testing.faulty_envs:CountingEnv", steps=20, timeouts=LIMITS, on_progress=told.append
    )

    assert told == ["alone", "again", "other seed", "two workers", "two in one"]
    data = json.loads(report.to_json())
    assert data["is_safe"]
    assert {finding["severity"] for finding in data["findings"]} == {"ok"}
    assert max(map(len, report.text(60).splitlines())) <= 60


def test_what_is_asked_for_is_checked_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="steps must be 1 or more"):
        check_env("CartPole-v1", steps=0)
    with pytest.raises(SpecError):
        check_env("python:no_callable")
    with pytest.raises(ValueError, match="URI or a callable"):
        check_env(careless.SoundEnv())  # type: ignore[arg-type]  # a mistake that people make


def test_a_simulator_without_spaces_is_not_judged_by_them() -> None:
    report = check(make_simulator)

    names = {finding.name for finding in report.findings}
    assert wrong_in(report) == {}
    assert "numbers" in names
    assert not names & {"spaces", "observations"}


def make_simulator() -> Env:
    """Return an env as Stepherd knows them, and not as Gymnasium does."""
    return Simulator(build_env(careless.SoundEnv, {}))


class Simulator:
    """Does what another env does, and does not look like it."""

    def __init__(self, env: Env) -> None:
        self.spec, self.reset, self.step = env.spec, env.reset, env.step
        self.next_episode, self.close = env.next_episode, env.close
