"""Where the time goes adds up to the wall time, and the time left follows from the speed."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from stepherd.training.progress import BehaviorProgress, TimeShares, TimeSplit, estimate_left_s


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_shares_are_fractions_of_the_wall_time_and_the_rest_is_other() -> None:
    clock = SetClock()
    split = TimeSplit(clock)
    clock.now += 10.0
    split.add("simulate", 3.0)
    split.add("simulate", 1.0)
    split.add("transport", 0.5)
    split.add("infer", 2.0)
    split.add("update", 2.5)

    assert astuple(split.shares()) == pytest.approx(astuple(TimeShares(0.4, 0.05, 0.2, 0.25, 0.1)))


def test_before_any_time_has_passed_all_of_it_is_other() -> None:
    assert TimeSplit(SetClock()).shares() == TimeShares(0.0, 0.0, 0.0, 0.0, 1.0)


def test_shares_never_exceed_the_whole_though_clocks_are_read_at_different_moments() -> None:
    clock = SetClock()
    split = TimeSplit(clock)
    clock.now += 1.0
    split.add("simulate", 0.9)
    split.add("infer", 0.3)

    assert split.shares().simulate == pytest.approx(0.75)
    assert sum(astuple(split.shares())) == pytest.approx(1.0)


def behavior(step: int, max_steps: int) -> BehaviorProgress:
    return BehaviorProgress("CartPole", step, max_steps, None, 0)


def test_the_time_left_is_what_all_behaviors_still_have_to_do() -> None:
    behaviors = (behavior(400, 1000), behavior(1200, 1000), behavior(0, 400))

    assert estimate_left_s(behaviors, 100.0) == 10.0


def test_the_time_left_is_unknown_while_nothing_moves_and_none_when_all_is_done() -> None:
    assert estimate_left_s((behavior(400, 1000),), 0.0) is None
    assert estimate_left_s((behavior(1000, 1000),), 0.0) == 0.0
