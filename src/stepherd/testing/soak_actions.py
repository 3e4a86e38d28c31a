"""Random actions for any env, as careless as a policy that has learned nothing."""

from __future__ import annotations

import numpy as np

from stepherd.spec.batch import Actions
from stepherd.spec.specs import ActionSpec, EnvSpec

AT_A_BOUND = 0.1  # of the numbers lie exactly at a bound, where envs are known to be careless
HUGE = 1e9  # a bound beyond this is none that anybody means


def draw_actions(spec: EnvSpec, n_envs: int, rng: np.random.Generator) -> dict[str, Actions]:
    """Return actions for `n_envs` envs: every choice as likely, every bounded number anywhere within its bounds."""
    return {behavior.name: _draw(behavior.action, (n_envs, behavior.n_agents), rng) for behavior in spec.behaviors}


def _draw(action: ActionSpec, shape: tuple[int, int], rng: np.random.Generator) -> Actions:
    low, high = np.array(action.low, np.float64), np.array(action.high, np.float64)
    size = (*shape, action.n_continuous)
    bounded = (np.abs(low) < HUGE) & (np.abs(high) < HUGE)
    span = np.where(bounded, high - np.where(bounded, low, 0.0), 1.0)
    inside = np.where(bounded, low, 0.0) + rng.random(size) * span
    free = np.clip(rng.standard_normal(size), low, high)  # clips at the one bound there may be
    values = np.where(bounded, inside, free)
    at_low, at_high = rng.random(size) < AT_A_BOUND / 2, rng.random(size) < AT_A_BOUND / 2
    values = np.where(at_low & (np.abs(low) < HUGE), low, values)
    values = np.where(at_high & (np.abs(high) < HUGE), high, values)
    continuous = np.clip(values, low, high).astype(action.continuous_dtype)
    branches = np.array(action.branches, np.int64)
    discrete = (rng.random((*shape, len(branches))) * branches).astype(np.int32)
    return Actions(continuous, discrete)
