from __future__ import annotations

import math

import numpy as np
import pytest

from stepherd.rl.actions import ContinuousScale
from stepherd.spec.specs import ActionSpec


def test_raw_actions_are_clamped_to_3_and_stretched_over_the_bounds() -> None:
    scale = ContinuousScale(ActionSpec(2, (), (-2.0, 0.0), (2.0, 10.0)))

    actions = scale.to_env(np.array([[-9.0, -3.0], [0.0, 0.0], [1.5, 1.5], [3.0, 99.0]], dtype=np.float32))

    assert actions.dtype == np.float32
    assert actions.tolist() == [[-2.0, 0.0], [0.0, 5.0], [1.0, 7.5], [2.0, 10.0]]


def test_a_dimension_without_both_bounds_gets_the_clamped_raw_action() -> None:
    inf = math.inf
    scale = ContinuousScale(ActionSpec(3, (), (-inf, 0.0, -inf), (inf, inf, 1.0), "float64"))

    actions = scale.to_env(np.array([[-8.0, -8.0, -8.0], [2.0, 2.0, 2.0]], dtype=np.float32))

    assert actions.dtype == np.float64
    assert actions.tolist() == [[-3.0, 0.0, -3.0], [2.0, 2.0, 1.0]]


@pytest.mark.parametrize("bound", [0.1, 1.0 / 3.0, 1e-3, 123.456, 3.4028234e38])
def test_rounding_never_steps_over_a_bound(bound: float) -> None:
    high = float(np.float32(bound))
    scale = ContinuousScale(ActionSpec(1, (), (-high,), (high,)))

    actions = scale.to_env(np.array([[-3.0], [3.0], [2.9999998]], dtype=np.float32))

    assert (np.abs(actions) <= np.float32(high)).all()
    assert actions[:2, 0].tolist() == [-high, high]


def test_a_behavior_without_continuous_actions_gets_an_empty_array() -> None:
    scale = ContinuousScale(ActionSpec(branches=(2,)))

    assert scale.to_env(np.zeros((4, 0), dtype=np.float32)).shape == (4, 0)
