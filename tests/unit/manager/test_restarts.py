"""Whether and when a worker is replaced: limits over its life and over a period, and a back-off."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd.manager.restarts import NEVER, UNLIMITED, RestartHistory, RestartPolicy


def booked(policy: RestartPolicy, *times: float) -> list[float | None]:
    """Return what a history says to failures at these times."""
    history = RestartHistory(policy)
    return [history.book(time) for time in times]


def test_the_limit_over_a_life_is_the_number_of_restarts() -> None:
    policy = RestartPolicy(max_lifetime_restarts=2, restarts_rate_limit_n=UNLIMITED)

    assert booked(policy, 1.0, 1000.0, 2000.0, 3000.0) == [1.0, 1000.0, None, None]


def test_the_limit_over_a_period_lets_go_after_exactly_the_period() -> None:
    policy = RestartPolicy(UNLIMITED, restarts_rate_limit_n=1, restarts_rate_limit_period_s=60.0)

    assert booked(policy, 100.0, 159.999, 160.0, 219.0, 220.0) == [100.0, None, 160.0, None, 220.0]


def test_several_restarts_fit_into_a_period_if_allowed() -> None:
    policy = RestartPolicy(UNLIMITED, restarts_rate_limit_n=3, restarts_rate_limit_period_s=10.0)

    assert booked(policy, 0.0, 1.0, 2.0, 3.0, 10.0, 10.5, 11.0) == [0.0, 1.0, 2.0, None, 10.0, None, 11.0]


def test_a_failure_that_was_refused_does_not_count_as_a_restart() -> None:
    history = RestartHistory(RestartPolicy(UNLIMITED, 1, 60.0))

    history.book(0.0)
    for time in range(1, 60):
        assert history.book(float(time)) is None

    assert history.n_restarts == 1
    assert history.book(60.0) == 60.0


def test_no_limits_means_no_limits() -> None:
    policy = RestartPolicy(UNLIMITED, UNLIMITED)

    assert booked(policy, *[float(t) for t in range(1000)]) == [float(t) for t in range(1000)]


@pytest.mark.parametrize("policy", [NEVER, RestartPolicy(restarts_rate_limit_n=0)])
def test_a_limit_of_zero_never_restarts(policy: RestartPolicy) -> None:
    assert booked(policy, 0.0, 1e9) == [None, None]


def test_the_back_off_doubles_with_each_restart_in_the_period_up_to_its_limit() -> None:
    policy = RestartPolicy(UNLIMITED, UNLIMITED, 60.0, backoff_s=1.0, backoff_max_s=5.0)

    assert booked(policy, 0.0, 10.0, 20.0, 30.0, 40.0) == [1.0, 12.0, 24.0, 35.0, 45.0]


def test_the_back_off_starts_anew_after_a_quiet_period() -> None:
    policy = RestartPolicy(UNLIMITED, UNLIMITED, 60.0, backoff_s=1.0)

    assert booked(policy, 0.0, 1.0, 100.0) == [1.0, 3.0, 101.0]


def test_the_back_off_of_the_thousandth_restart_is_still_finite() -> None:
    policy = RestartPolicy(UNLIMITED, UNLIMITED, 1e9, backoff_s=1e-300, backoff_max_s=30.0)

    assert all(wait is not None and wait - t <= 30.0 for t, wait in enumerate(booked(policy, *map(float, range(2000)))))


def test_the_defaults_are_one_restart_a_minute_and_ten_in_all() -> None:
    times = [61.0 * i for i in range(12)]

    results = booked(RestartPolicy(), *times)

    assert results == [*times[:10], None, None]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (RestartPolicy(max_lifetime_restarts=1, restarts_rate_limit_n=UNLIMITED), "1 times (max_lifetime_restarts)"),
        (RestartPolicy(UNLIMITED, 1, 60.0), "1 times within 60 s (restarts_rate_limit_n)"),
        (NEVER, "0 times (max_lifetime_restarts)"),
    ],
)
def test_the_limit_that_was_reached_is_named(policy: RestartPolicy, words: str) -> None:
    history = RestartHistory(policy)
    while history.book(5.0) is not None:
        pass

    assert words in history.spent()


@pytest.mark.parametrize("name", ["max_lifetime_restarts", "restarts_rate_limit_n"])
def test_a_count_below_minus_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"RestartPolicy\.{name} must be -1"):
        RestartPolicy(**{name: -2})


@pytest.mark.parametrize("name", [field.name for field in fields(RestartPolicy) if field.name.endswith("_s")])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_times_are_finite_and_not_negative(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"RestartPolicy\.{name} must be a finite"):
        RestartPolicy(**{name: value})  # type: ignore[arg-type]  # only the times are set


counts = st.integers(UNLIMITED, 5)


@settings(deadline=None, max_examples=200)
@given(
    policy=st.builds(RestartPolicy, counts, counts, st.floats(0.0, 20.0), st.floats(0.0, 3.0), st.floats(0.0, 10.0)),
    pauses=st.lists(st.floats(0.0, 30.0), max_size=30),
)
def test_no_sequence_of_failures_gets_more_than_the_budget(policy: RestartPolicy, pauses: list[float]) -> None:
    history = RestartHistory(policy)
    now, granted = 0.0, []
    for pause in pauses:
        now += pause
        start = history.book(now)
        if start is not None:
            assert now <= start <= now + policy.backoff_max_s
            granted.append(now)

    assert history.n_restarts == len(granted)
    if policy.max_lifetime_restarts != UNLIMITED:
        assert len(granted) <= policy.max_lifetime_restarts
    if policy.restarts_rate_limit_n != UNLIMITED:
        for time in granted:
            in_period = [t for t in granted if time <= t < time + policy.restarts_rate_limit_period_s]
            assert len(in_period) <= policy.restarts_rate_limit_n or policy.restarts_rate_limit_period_s == 0.0
