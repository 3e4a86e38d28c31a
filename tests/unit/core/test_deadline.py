"""Deadlines are finite points on a clock that can be anybody's, and time limits are finite and above zero."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest

from stepherd.core.deadline import Deadline, Timeouts
from unit.core.fake_clock import FakeClock


def test_a_deadline_counts_down_to_zero_and_no_further() -> None:
    clock = FakeClock()
    deadline = Deadline.after(5.0, clock)

    lefts = []
    for _ in range(4):
        lefts.append(deadline.left_s)
        clock.advance(2.0)

    assert lefts == [5.0, 3.0, 1.0, 0.0]


def test_a_deadline_has_passed_from_its_very_moment_on() -> None:
    clock = FakeClock()
    deadline = Deadline.after(5.0, clock)

    clock.advance(4.999)
    before = deadline.passed
    clock.now = deadline.at
    at = deadline.passed

    assert not before
    assert at


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_deadline_that_is_not_in_the_future_has_passed_at_once(seconds: float) -> None:
    deadline = Deadline.after(seconds, FakeClock())

    assert deadline.passed
    assert deadline.left_s == 0.0


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan])
def test_a_deadline_that_never_comes_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        Deadline.after(seconds)


def test_the_earlier_of_two_points_is_kept_with_its_clock() -> None:
    clock = FakeClock()
    deadline = Deadline(1005.0, clock)

    earlier = deadline.or_earlier(1003.0)
    same = deadline.or_earlier(1007.0)

    assert (earlier.at, earlier.clock) == (1003.0, clock)
    assert same is deadline
    assert deadline.or_earlier(1005.0) is deadline


def test_the_clock_is_the_machines_own_unless_another_is_given() -> None:
    before = time.monotonic()

    deadline = Deadline.after(0.0)

    assert before <= deadline.at <= time.monotonic()
    assert deadline.passed


def test_a_deadline_cannot_be_moved() -> None:
    deadline = Deadline(1.0)

    with pytest.raises(dataclasses.FrozenInstanceError):
        deadline.at = 2.0  # type: ignore[misc]  # that is the point


def test_the_bound_of_a_close_is_twice_the_grace_and_the_kill() -> None:
    assert Timeouts(grace_s=3.0, kill_s=4.0).close_s == 10.0


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Timeouts)])
@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.inf, math.nan, None, "5"])
def test_every_time_limit_is_a_finite_number_above_zero(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"Timeouts\.{name} "):
        Timeouts(**{name: value})  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Timeouts)])
def test_every_time_limit_can_be_chosen_and_is_named_after_its_unit(name: str) -> None:
    timeouts = Timeouts(**{name: 7})

    assert getattr(timeouts, name) == 7
    assert name.endswith("_s")
