"""`stepherd learn` ends with the code its documentation promises and says what became of the run."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepherd.cli.learn import exit_code_of, learn
from stepherd.cli.options import learn_parser
from stepherd.core import errors
from stepherd.core.errors import StepherdError
from stepherd.manager.report import CloseReport
from stepherd.training import trainer_controller
from stepherd.training.stop_signals import Stop, StopNow
from stepherd.training.trainer_controller import Outcome

CODES: dict[type[StepherdError], int] = {
    errors.StepherdError: 1,
    errors.ConfigError: 2,
    errors.SpecError: 2,
    errors.WrongValue: 1,
    errors.RunFolderError: 2,
    errors.CheckpointError: 2,
    errors.TrainingDiverged: 1,
    errors.UnsupportedPlatform: 2,
    errors.ManagerClosed: 1,
    errors.EnvBusy: 1,
    errors.TooFewReady: 1,
    errors.WorkerError: 1,
    errors.EnvNeverReady: 3,
    errors.WorkerFailed: 4,
}


def error_of(kind: type[StepherdError]) -> StepherdError:
    if issubclass(kind, errors.ConfigError):
        return kind(["a mistake"])
    return kind(3, "a mistake") if issubclass(kind, errors.WorkerError) else kind("a mistake")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """What was typed, in a process whose settings come back."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return learn_parser().parse_args(["--env", "gymnasium:CartPole-v1"])


def outcome(*, is_saved: bool = True, mean: float | None = 123.44) -> Outcome:
    return Outcome({"CartPole": 1000}, {"CartPole": mean}, CloseReport((), 0.5), Path("results/ppo"), is_saved)


Training = Callable[[Stop], Outcome]


@pytest.fixture
def becomes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Training], None]:
    """Return what puts `training` in the place of the real one."""

    def put(training: Training) -> None:
        monkeypatch.setattr(trainer_controller, "train", lambda config, stop, watcher: training(stop))

    return put


def raises(error: BaseException) -> Training:
    def training(stop: Stop) -> Outcome:
        raise error

    return training


def stopped(number: signal.Signals, *, is_saved: bool) -> Training:
    def training(stop: Stop) -> Outcome:
        stop.receive(number)
        return outcome(is_saved=is_saved)

    return training


def test_every_error_has_a_code_here() -> None:
    kinds = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, StepherdError)}

    assert set(CODES) == kinds


@pytest.mark.parametrize(("kind", "code"), CODES.items(), ids=lambda value: getattr(value, "__name__", None))
def test_the_code_says_what_kind_of_error_it_was(kind: type[StepherdError], code: int) -> None:
    assert exit_code_of(error_of(kind)) == code


@pytest.mark.parametrize("kind", [errors.ConfigError, errors.WrongValue, errors.EnvNeverReady, errors.WorkerFailed])
def test_an_error_is_shown_and_ends_with_its_code(
    kind: type[StepherdError],
    typed: argparse.Namespace,
    becomes: Callable[[Training], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    becomes(raises(error_of(kind)))

    code = learn(typed)

    assert code == CODES[kind]
    assert capsys.readouterr().err == "Error: a mistake\n"


def test_a_run_that_is_done_ends_with_0_and_says_how_it_went(
    typed: argparse.Namespace, becomes: Callable[[Training], None], capsys: pytest.CaptureFixture[str]
) -> None:
    becomes(lambda stop: outcome())

    assert learn(typed) == 0

    said = capsys.readouterr().out
    assert "CartPole: 1000 steps, mean reward of the last 100 episodes 123.4.\n" in said
    assert "Closed 0 workers in 0.50 s" in said
    assert said.endswith("The run is in results/ppo.\n")
    assert "Stopped" not in said


def test_a_run_without_a_completed_episode_says_so(
    typed: argparse.Namespace, becomes: Callable[[Training], None], capsys: pytest.CaptureFixture[str]
) -> None:
    becomes(lambda stop: outcome(mean=None))

    learn(typed)

    assert "CartPole: 1000 steps, no episode was completed.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("is_saved", "so_far"),
    [(True, "--resume goes on from here"), (False, "what came after the last checkpoint is not saved")],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_run_says_by_what_and_whether_all_of_it_is_saved(
    number: signal.Signals,
    code: int,
    is_saved: bool,
    so_far: str,
    typed: argparse.Namespace,
    becomes: Callable[[Training], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    becomes(stopped(number, is_saved=is_saved))

    assert learn(typed) == code

    assert capsys.readouterr().out.endswith(f"Stopped by {number.name}; {so_far}.\n")


def test_a_stop_before_training_began_ends_with_the_code_of_its_signal(
    typed: argparse.Namespace, becomes: Callable[[Training], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def training(stop: Stop) -> Outcome:
        stop.receive(signal.SIGTERM)
        raise StopNow("SIGTERM asked to stop before anything had begun")

    becomes(training)

    assert learn(typed) == 143

    assert capsys.readouterr().err == "Stopped: SIGTERM asked to stop before anything had begun.\n"


def test_a_part_of_the_training_stack_that_is_not_installed_is_named(
    typed: argparse.Namespace, becomes: Callable[[Training], None], capsys: pytest.CaptureFixture[str]
) -> None:
    becomes(raises(ModuleNotFoundError("No module named 'torch'", name="torch")))

    assert learn(typed) == 2

    assert "needs torch: pip install 'stepherd[train]'" in capsys.readouterr().err


def test_any_other_module_that_is_missing_is_no_mistake_of_the_user(
    typed: argparse.Namespace, becomes: Callable[[Training], None]
) -> None:
    becomes(raises(ModuleNotFoundError("No module named 'ours'", name="ours")))

    with pytest.raises(ModuleNotFoundError):
        learn(typed)


def test_a_mistake_in_an_option_ends_with_2_before_anything_starts(
    becomes: Callable[[Training], None], capsys: pytest.CaptureFixture[str]
) -> None:
    becomes(raises(AssertionError("it started")))

    code = learn(learn_parser().parse_args(["--env", "gymnasium:CartPole-v1", "--num-envs", "none"]))

    assert code == 2
    assert "--num-envs" in capsys.readouterr().err


def test_no_env_is_a_mistake(becomes: Callable[[Training], None], capsys: pytest.CaptureFixture[str]) -> None:
    becomes(raises(AssertionError("it started")))

    assert learn(learn_parser().parse_args([])) == 2

    assert "--env" in capsys.readouterr().err
