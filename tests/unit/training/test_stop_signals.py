"""One signal asks, two interrupt, and what was there before comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from stepherd.training.stop_signals import Stop, StopNow, stop_signals

TRAIN_UNTIL_STOPPED = """
import itertools, os, signal, sys
from stepherd.training.stop_signals import StopNow, stop_signals
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored if the tests run in the background
reader, writer = os.pipe()
try:
    with stop_signals(clock=itertools.count().__next__) as stop:  # no second signal is an echo of the first
        print("ready", flush=True)
        while not stop:
            os.read(0, 1)
        print("asked", stop.signal.name, flush=True)
        while "finishing":
            os.read(reader, 1)
except StopNow as error:
    print("now:", error, flush=True)
sys.exit(stop.exit_code)
"""


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    """Begin with the handlers of a program in the foreground, and check that the test leaves them as they were."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    yield
    after = {number: signal.signal(number, handler) for number, handler in before.items()}
    assert list(after.values()) == [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]


def test_nothing_is_requested_before_a_signal_arrives() -> None:
    with stop_signals() as stop:
        assert not stop
        assert not stop.requested
        assert stop.signal is None
        assert stop.exit_code is None


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda n: str(n)
)
def test_the_first_signal_asks_and_names_the_exit_code(number: signal.Signals, exit_code: int) -> None:
    with stop_signals() as stop:
        signal.raise_signal(number)

        assert stop
        assert stop.requested
        assert stop.signal is number
    assert stop.exit_code == exit_code


def test_the_second_signal_interrupts_and_the_first_gives_the_exit_code() -> None:
    clock = SetClock()
    with stop_signals(clock) as stop:
        signal.raise_signal(signal.SIGTERM)
        clock.now = 5.0

        with pytest.raises(StopNow, match="SIGTERM asked to stop, then SIGINT to stop at once"):
            signal.raise_signal(signal.SIGINT)

        assert stop.exit_code == 143


def test_later_signals_do_not_disturb_the_close() -> None:
    clock = SetClock()
    with stop_signals(clock):
        signal.raise_signal(signal.SIGINT)
        clock.now = 5.0
        with pytest.raises(StopNow):
            signal.raise_signal(signal.SIGINT)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            clock.now += 5.0
            signal.raise_signal(number)


def test_the_same_ctrl_c_passed_on_by_a_wrapper_is_one_request() -> None:
    clock = SetClock()
    with stop_signals(clock) as stop:
        signal.raise_signal(signal.SIGINT)
        clock.now = 0.05
        signal.raise_signal(signal.SIGINT)

        assert stop.requested

        clock.now = 0.2
        with pytest.raises(StopNow):
            signal.raise_signal(signal.SIGINT)


def test_a_terminal_that_closes_never_interrupts_the_finish() -> None:
    clock = SetClock()
    with stop_signals(clock) as stop:
        for clock.now in (0.0, 1.0, 2.0):
            signal.raise_signal(signal.SIGHUP)

        assert stop.exit_code == 129


def test_while_nothing_is_worth_finishing_the_first_signal_interrupts() -> None:
    with stop_signals() as stop:
        with pytest.raises(StopNow, match="SIGINT asked to stop before anything had begun"), stop.at_once():
            signal.raise_signal(signal.SIGINT)

        assert stop.exit_code == 130


def test_a_signal_from_before_is_not_forgotten_when_the_first_is_to_interrupt() -> None:
    with stop_signals() as stop:
        signal.raise_signal(signal.SIGTERM)

        with pytest.raises(StopNow, match="SIGTERM"), stop.at_once():
            pass


def test_handlers_come_back_after_an_error_in_the_block() -> None:
    with pytest.raises(ZeroDivisionError), stop_signals():
        raise ZeroDivisionError

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_handlers_come_back_after_an_interruption() -> None:
    def be_interrupted() -> None:
        clock = SetClock()
        with stop_signals(clock):
            signal.raise_signal(signal.SIGINT)
            clock.now = 5.0
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(StopNow):
        be_interrupted()

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_blocks_can_be_nested() -> None:
    with stop_signals() as outer:
        with stop_signals() as inner:
            signal.raise_signal(signal.SIGTERM)
        assert inner.requested
        assert not outer.requested

        signal.raise_signal(signal.SIGTERM)
        assert outer.requested


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda n: str(n))
def test_a_signal_that_nohup_or_a_background_job_ignores_stays_ignored(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with stop_signals() as stop:
            signal.raise_signal(number)
            assert not stop.requested

            signal.raise_signal(signal.SIGTERM)
            assert stop.exit_code == 143
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_sigterm_works_even_if_it_was_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stop_signals() as stop:
            signal.raise_signal(signal.SIGTERM)
            assert stop.requested
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_it_does_nothing() -> None:
    seen: list[object] = []

    def look() -> None:
        with stop_signals() as stop:
            seen.extend((stop.requested, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(10)

    assert seen == [False, signal.SIG_DFL]


def test_an_interruption_is_not_an_exception_that_somebody_catches_by_accident() -> None:
    assert not issubclass(StopNow, Exception)


def test_a_signal_that_arrives_while_the_block_is_left_is_kept_for_who_looks() -> None:
    stop = Stop()
    stop.ignore_more()

    stop.receive(signal.SIGTERM)
    stop.receive(signal.SIGINT)

    assert stop.exit_code == 143


@pytest.mark.timeout(30)
def test_a_process_that_is_asked_and_then_told_exits_with_the_first_signals_code() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", TRAIN_UNTIL_STOPPED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

            process.send_signal(signal.SIGINT)
            process.stdin.write("one step\n")
            process.stdin.flush()
            assert process.stdout.readline() == "asked SIGINT\n"
            process.send_signal(signal.SIGINT)

            assert process.stdout.readline() == "now: SIGINT asked to stop, then SIGINT to stop at once\n"
            assert process.wait(20) == 130
        finally:
            process.kill()
