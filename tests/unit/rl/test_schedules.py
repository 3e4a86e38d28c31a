from __future__ import annotations

import pytest

from stepherd.rl.schedules import FINAL_BETA, FINAL_EPSILON, FINAL_LEARNING_RATE, Schedule


@pytest.mark.parametrize(("initial", "final"), [(3e-4, FINAL_LEARNING_RATE), (0.2, FINAL_EPSILON), (5e-3, FINAL_BETA)])
def test_a_linear_schedule_runs_from_its_first_value_to_ml_agents_last_one(initial: float, final: float) -> None:
    schedule = Schedule(initial, final, "linear", 1000)

    assert schedule.at(0) == initial
    assert schedule.at(500) == pytest.approx((initial + final) / 2)
    assert schedule.at(1000) == pytest.approx(final)


def test_a_linear_schedule_stays_at_its_end_past_max_steps() -> None:
    assert Schedule(0.3, 0.1, "linear", 1000).at(5000) == pytest.approx(0.1)


def test_a_constant_schedule_never_moves() -> None:
    schedule = Schedule(3e-4, FINAL_LEARNING_RATE, "constant", 1000)

    assert schedule.at(0) == schedule.at(700) == schedule.at(9000) == 3e-4


def test_a_linear_schedule_never_rises() -> None:
    assert Schedule(0.0, FINAL_BETA, "linear", 1000).at(900) == 0.0
    assert Schedule(0.05, FINAL_EPSILON, "linear", 1000).at(900) == 0.05
