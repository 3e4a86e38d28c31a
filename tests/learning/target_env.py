"""A continuous env that is learned in seconds: throw to where the target is."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

THROWS = 10


class TargetEnv(gymnasium.Env[Any, Any]):
    """Observation: the target, (2,). Action: where to throw, (2,), in other bounds. Reward: minus the distance."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), (2,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Draw a target."""
        super().reset(seed=seed, options=options)
        self._n_thrown = 0
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        """Throw, and draw the next target."""
        assert self.action_space.contains(action), action
        wanted = np.array([2.0, 5.0]) * self._target + np.array([0.0, 5.0])
        distance = float(np.abs((action - wanted) / np.array([2.0, 5.0])).sum())
        self._n_thrown += 1
        return self._draw(), -distance, False, self._n_thrown == THROWS, {}

    def _draw(self) -> Any:
        self._target = self.np_random.uniform(-0.9, 0.9, 2)
        return self._target
