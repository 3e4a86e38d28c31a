"""Actions are within their bounds, of the env's type, and everywhere in between."""

from __future__ import annotations

import numpy as np
import pytest

from stepherd.spec.batch import Actions
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec
from stepherd.testing.soak_actions import draw_actions

INF = float("inf")
HUGE = float(np.finfo(np.float32).max)


def drawn(action: ActionSpec, n_envs: int = 2000, n_agents: int = 1) -> Actions:
    spec = EnvSpec((BehaviorSpec("a", (), action, n_agents),))
    return draw_actions(spec, n_envs, np.random.default_rng(1))["a"]


def test_every_choice_of_every_branch_is_taken_and_no_other() -> None:
    discrete = drawn(ActionSpec(branches=(2, 5))).discrete

    assert discrete.shape == (2000, 1, 2)
    assert discrete.dtype == np.int32
    assert set(discrete[..., 0].ravel()) == {0, 1}
    assert set(discrete[..., 1].ravel()) == set(range(5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bounded_numbers_are_within_their_bounds_and_at_them(dtype: str) -> None:
    continuous = drawn(ActionSpec(2, low=(-1.0, 0.1), high=(1.0, 0.3), continuous_dtype=dtype)).continuous

    assert continuous.dtype == dtype
    low, high = np.array([-1.0, 0.1], dtype), np.array([1.0, 0.3], dtype)
    assert ((continuous >= low) & (continuous <= high)).all()
    assert (continuous == low).any()
    assert (continuous == high).any()
    assert len(np.unique(continuous)) > 1000


@pytest.mark.parametrize(("low", "high"), [(-INF, INF), (0.0, INF), (-INF, 0.0), (-HUGE, HUGE), (0.0, HUGE)])
def test_numbers_without_bounds_are_finite_and_respect_the_one_there_is(low: float, high: float) -> None:
    continuous = drawn(ActionSpec(1, low=(low,), high=(high,))).continuous

    assert np.isfinite(continuous).all()
    assert ((continuous >= low) & (continuous <= high)).all()
    assert np.abs(continuous).max() < 100


def test_every_agent_place_has_an_action_of_its_own() -> None:
    actions = drawn(ActionSpec(1, (3,), low=(0.0,), high=(1.0,)), n_envs=2, n_agents=3)

    assert actions.continuous.shape == actions.discrete.shape == (2, 3, 1)
