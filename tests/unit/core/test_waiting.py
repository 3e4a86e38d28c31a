"""The one wait wakes on data, on an end and on time, and never sleeps longer than a tick."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import TICK_S, Waiter, wait_readable

SOON_S = 20.0  # what is ready at once has been noticed by then, on the busiest machine


@contextlib.contextmanager
def a_waiter() -> Iterator[Waiter[str]]:
    """Give a waiter, and close it."""
    with contextlib.closing(Waiter[str]()) as waiter:
        yield waiter


@contextlib.contextmanager
def a_pipe() -> Iterator[tuple[int, int]]:
    """Give a read end and a write end, and close what is still open of them."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for fd in ends:
            with contextlib.suppress(OSError):
                os.close(fd)


def test_data_wakes_the_wait_and_names_its_token() -> None:
    with a_waiter() as waiter, a_pipe() as (quiet, _), a_pipe() as (loud, write_end):
        waiter.watch(quiet, "quiet")
        waiter.watch(loud, "loud")
        os.write(write_end, b"!")

        ready = waiter.wait(Deadline.after(SOON_S))

        assert ready == ["loud"]


def test_the_end_of_the_other_side_wakes_the_wait() -> None:
    with a_waiter() as waiter, a_pipe() as (read_end, write_end):
        waiter.watch(read_end, "it")
        os.close(write_end)

        assert waiter.wait(Deadline.after(SOON_S)) == ["it"]


def test_the_end_of_a_process_that_holds_the_other_side_wakes_the_wait() -> None:
    ours, theirs = socket.socketpair()
    with a_waiter() as waiter, ours:
        waiter.watch(ours.fileno(), "it")
        with theirs:
            process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""], pass_fds=[theirs.fileno()])
        ready: list[str] = []
        deadline = Deadline.after(SOON_S)
        while not ready and not deadline.passed:
            ready = waiter.wait(deadline)
        process.wait(SOON_S)

    assert ready == ["it"]


def test_time_ends_the_wait_with_nothing() -> None:
    with a_waiter() as waiter, a_pipe() as (read_end, _):
        waiter.watch(read_end, "it")
        begun = time.monotonic()

        ready = waiter.wait(Deadline.after(0.02))

        assert ready == []
        assert 0.019 <= time.monotonic() - begun < SOON_S


def test_a_deadline_that_has_passed_still_looks_once() -> None:
    with a_waiter() as waiter, a_pipe() as (read_end, write_end):
        waiter.watch(read_end, "it")
        before = waiter.wait(Deadline.after(0.0))
        os.write(write_end, b"!")

        assert before == []
        assert waiter.wait(Deadline.after(-1.0)) == ["it"]


@pytest.mark.slow
def test_a_wait_never_lasts_longer_than_a_tick() -> None:
    with a_waiter() as waiter, a_pipe() as (read_end, _):
        waiter.watch(read_end, "it")
        begun = time.monotonic()

        ready = waiter.wait(Deadline.after(3600.0))

        assert ready == []
        assert TICK_S * 0.9 <= time.monotonic() - begun < TICK_S + SOON_S


def test_a_token_with_two_descriptors_is_named_once() -> None:
    with a_waiter() as waiter, a_pipe() as (first, first_write), a_pipe() as (second, second_write):
        waiter.watch(first, "it")
        waiter.watch(second, "it")
        os.write(first_write, b"!")
        os.write(second_write, b"!")

        assert waiter.wait(Deadline.after(SOON_S)) == ["it"]


def test_what_is_forgotten_wakes_nobody() -> None:
    with a_waiter() as waiter, a_pipe() as (read_end, write_end):
        waiter.watch(read_end, "it")
        os.write(write_end, b"!")
        waiter.forget(read_end)

        assert waiter.wait(Deadline.after(0.0)) == []


def test_many_are_ready_together_in_one_wait() -> None:
    with contextlib.ExitStack() as stack:
        waiter = stack.enter_context(a_waiter())
        for number in range(200):
            read_end, write_end = stack.enter_context(a_pipe())
            waiter.watch(read_end, str(number))
            os.write(write_end, b"!")

        ready: set[str] = set()
        deadline = Deadline.after(SOON_S)
        while len(ready) < 200 and not deadline.passed:
            ready.update(waiter.wait(deadline))

    assert ready == {str(number) for number in range(200)}


def test_closing_the_set_leaves_the_descriptors_open() -> None:
    with a_pipe() as (read_end, write_end):
        waiter: Waiter[str] = Waiter()
        waiter.watch(read_end, "it")
        waiter.close()

        assert os.write(write_end, b"!") == 1
        assert os.read(read_end, 1) == b"!"


def test_waiting_for_one_descriptor_tells_data_and_end_from_time() -> None:
    with a_pipe() as (read_end, write_end):
        nothing = wait_readable(read_end, Deadline.after(0.01))
        os.write(write_end, b"!")
        data = wait_readable(read_end, Deadline.after(SOON_S))
        os.read(read_end, 1)
        os.close(write_end)
        end = wait_readable(read_end, Deadline.after(SOON_S))

    assert (nothing, data, end) == (False, True, True)
