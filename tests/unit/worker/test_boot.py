"""A worker's life from its first message to its last, and how what user code raises is put into words."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from gymnasium import spaces

from stepherd.core.errors import SpecError
from stepherd.process.exits import Exit
from stepherd.testing.faulty_envs import ERRORS, CountingEnv
from stepherd.transport.bell import Kind
from stepherd.transport.block import POISON
from stepherd.transport.control import Command, Phase
from stepherd.transport.notes import Closing, Failure, read_note
from stepherd.worker.boot import EXIT_FAILED, TRACEBACK_CHARACTERS_MAX, _failure_of
from unit.worker.real_worker import OpenBlock, a_worker

if sys.platform == "win32":
    pytest.skip("there are no workers on Windows yet", allow_module_level=True)

FAULTY_ENVS = "python:stepherd.testing.faulty_envs"


def failure_of(error: BaseException) -> Failure:
    """Raise an error and return what a worker would report."""
    try:
        raise error
    except BaseException as caught:
        return _failure_of(caught)


@pytest.mark.slow
def test_a_worker_builds_steps_and_closes(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.send_job(f"{FAULTY_ENVS}:CountingEnv", n_envs=2, length=5)
        block = OpenBlock(worker.hear(), 2)
        with contextlib.closing(block.block):
            poisoned = block.steps["CountingEnv"].obs[0].tobytes()
            block.ask(worker, 1, Command.RESET, seed=3)
            rung = worker.hear()
            first = block.steps["CountingEnv"].obs[0][1].tolist()
            worker.bell.ring(Kind.CLOSE)
            closed = worker.hear()

            assert set(poisoned) == {POISON}
            assert rung.kind is Kind.RING
            assert first == [[3.0, 1.0, 0.0, -1.0]]
            assert block.control.done(1) == 1
            assert read_note(closed.note, Closing) == Closing()
            assert worker.wait_for_end() == Exit(0)
            assert worker.hear().kind is Kind.GONE
            assert block.control.phase()[0] is Phase.CLOSING


@pytest.mark.slow
def test_a_worker_that_is_closed_before_it_has_a_job_ends_at_once(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.bell.ring(Kind.CLOSE)

        assert worker.wait_for_end() == Exit(0)


@pytest.mark.slow
def test_a_worker_whose_manager_hangs_up_ends_by_itself(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.send_job(f"{FAULTY_ENVS}:CountingEnv")
        block = OpenBlock(worker.hear(), 1)
        block.block.close()

        worker.bell.close()

        assert worker.wait_for_end() == Exit(EXIT_FAILED)


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ValueError", "SystemExit", "KeyboardInterrupt", "MuteError", "EndlessError"])
def test_what_a_constructor_raises_is_reported_before_the_worker_ends(tmp_path: Path, error: str) -> None:
    with a_worker(tmp_path) as worker:
        worker.send_job(f"{FAULTY_ENVS}:RaisingEnv", where="constructor", error=error)

        message = worker.hear()

        assert message.kind is Kind.FAILED
        assert read_note(message.note, Failure).error.startswith(error.replace("Endless", "Value"))
        assert worker.wait_for_end() == Exit(EXIT_FAILED)


@pytest.mark.slow
def test_a_factory_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.send_job(f"{FAULTY_ENVS}:NoSuchEnv")

        failure = read_note(worker.hear().note, Failure)

        assert "has no 'NoSuchEnv'" in failure.error
        assert failure.traceback == ""


@pytest.mark.slow
def test_envs_of_one_worker_that_differ_are_refused(tmp_path: Path) -> None:
    sizes = iter([2, 3])

    def make() -> Any:
        env = CountingEnv()
        env.observation_space = spaces.Box(0.0, 1.0, (next(sizes),))
        return env

    with a_worker(tmp_path) as worker:
        worker.send_job(make, n_envs=2)

        failure = read_note(worker.hear().note, Failure)

        assert "must be alike" in failure.error


@pytest.mark.slow
def test_a_worker_ignores_ctrl_c_and_obeys_sigterm(tmp_path: Path) -> None:
    with a_worker(tmp_path) as worker:
        worker.send_job(f"{FAULTY_ENVS}:CountingEnv")
        block = OpenBlock(worker.hear(), 1)
        with contextlib.closing(block.block):
            worker.child.send_signal(signal.SIGINT)
            block.ask(worker, 0, Command.RESET)
            rung = worker.hear()
            worker.child.terminate()

            assert rung.kind is Kind.RING
            assert worker.wait_for_end() == Exit(None, signal.SIGTERM)


@pytest.mark.slow
def test_a_worker_imports_neither_torch_nor_the_manager(tmp_path: Path) -> None:
    def make() -> Any:
        names = [name for name in sys.modules if name == "torch" or name.startswith("stepherd.manager")]
        raise ValueError(f"imported: {names}")

    with a_worker(tmp_path) as worker:
        worker.send_job(make)

        assert read_note(worker.hear().note, Failure).error == "ValueError: imported: []"


def test_an_error_is_reported_by_type_message_and_traceback() -> None:
    failure = failure_of(ValueError("deliberate"))

    assert failure.error == "ValueError: deliberate"
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert "raise error\n" in failure.traceback
    assert failure.traceback.endswith("ValueError: deliberate\n")


def test_an_error_of_ours_needs_no_traceback() -> None:
    assert failure_of(SpecError("the space cannot be carried")) == Failure("the space cannot be carried", "")


def test_an_error_without_a_message_is_its_type() -> None:
    assert failure_of(KeyboardInterrupt()).error == "KeyboardInterrupt"


def test_the_cause_of_an_error_is_in_the_traceback() -> None:
    error = ValueError("second")
    error.__cause__ = KeyError("first")

    assert "KeyError: 'first'" in failure_of(error).traceback


@pytest.mark.parametrize("error", sorted(ERRORS))
def test_every_error_can_be_reported_and_its_report_is_bounded(error: str) -> None:
    failure = failure_of(ERRORS[error]())

    assert failure.error
    assert len(failure.error) < 100_000
    assert "raise error" in failure.traceback
    assert len(failure.traceback) <= TRACEBACK_CHARACTERS_MAX + 100


def test_an_error_whose_text_raises_anything_is_still_named() -> None:
    class ExitingTextError(Exception):
        def __str__(self) -> str:
            raise SystemExit

    failure = failure_of(ExitingTextError())

    assert failure.error.startswith("ExitingTextError")


def test_a_text_that_only_looks_like_one_can_be_sent() -> None:
    class Text(str):
        __slots__ = ()

    class OddError(SpecError):
        def __str__(self) -> str:
            return Text("odd")

    assert type(failure_of(OddError()).error) is str


def test_a_recursion_without_end_is_reported_with_both_its_ends() -> None:
    def recurse(depth: int) -> None:
        recurse(depth + 1)

    try:
        recurse(0)
    except RecursionError as error:
        failure = _failure_of(error)

    assert failure.error.startswith("RecursionError")
    assert "recurse(0)" in failure.traceback
    assert len(failure.traceback) <= TRACEBACK_CHARACTERS_MAX + 100
