"""From what the policy draws (raw actions) to what an env understands (actions in its own units).

A raw continuous action is a sample of a Gaussian and unbounded. ML-Agents' rule: clamp it to [-3, 3] and divide by
3. What learning sees stays raw, so the log-probability is that of what was drawn.
"""

from __future__ import annotations

import numpy as np

from stepherd.rl.observations import FloatArray
from stepherd.spec.batch import AnyArray
from stepherd.spec.specs import ActionSpec

CLAMP = 3.0  # ML-Agents


class ContinuousScale:
    """Maps raw continuous actions to the bounds of an `ActionSpec`.

    A dimension with two finite bounds: raw -3 is `low`, raw 3 is `high`, linear between. A dimension that lacks a
    bound: the raw action clamped to [-3, 3], then to the bound it has.
    """

    def __init__(self, action: ActionSpec) -> None:
        self._dtype = np.dtype(action.continuous_dtype)
        low, high = np.array(action.low, dtype=np.float64), np.array(action.high, dtype=np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        # Halves first: high - low of two huge finite bounds would overflow.
        half_range = np.where(bounded, np.where(bounded, high, 0) / 2 - np.where(bounded, low, 0) / 2, CLAMP)
        self._scale = half_range / CLAMP
        self._centre = np.where(bounded, np.where(bounded, low, 0) / 2 + np.where(bounded, high, 0) / 2, 0.0)
        self._low, self._high = low, high

    def to_env(self, raw: FloatArray) -> AnyArray:
        """Return `raw` (n, n_continuous) in the env's units and its dtype."""
        if raw.shape[1] == 0:
            return np.zeros(raw.shape, dtype=self._dtype)
        scaled = np.minimum(np.maximum(raw, -CLAMP), CLAMP) * self._scale + self._centre
        # Rounding must not step over a bound, which many envs assert.
        return np.minimum(np.maximum(scaled, self._low), self._high).astype(self._dtype)
