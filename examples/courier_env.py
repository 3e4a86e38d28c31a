"""A small env with a Dict observation: a courier walks a grid of 5 × 5 fields to the corner it was told.

Train it: `stepherd learn examples/courier.yaml --num-envs 4`
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SIZE = 5
STEPS_MAX = 40
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
CORNERS = np.array([(0, 0), (0, SIZE - 1), (SIZE - 1, 0), (SIZE - 1, SIZE - 1)])


class CourierEnv(gymnasium.Env[dict[str, Any], np.int64]):
    """Observation: where the courier is, which corner it is to reach, which moves are blocked in this step.

    A step costs 0.05, reaching the corner earns 1 and ends the episode. A blocked move does nothing, so an agent that
    ignores any of the three observations walks longer than it has to. The best possible mean return is about 0.75.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "position": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "corner": spaces.Discrete(len(CORNERS)),
                "blocked": spaces.MultiBinary(len(MOVES)),
            }
        )
        self.action_space = spaces.Discrete(len(MOVES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Put the courier in the middle and draw a corner."""
        super().reset(seed=seed, options=options)
        self._position = np.array([SIZE // 2, SIZE // 2])
        self._corner = int(self.np_random.integers(len(CORNERS)))
        self._n_steps = 0
        self._block()
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Walk one field, unless that move is blocked."""
        if not self._blocked[action]:
            self._position = np.clip(self._position + MOVES[action], 0, SIZE - 1)
        self._n_steps += 1
        self._block()
        arrived = bool((self._position == CORNERS[self._corner]).all())
        reward = 1.0 - 0.05 if arrived else -0.05
        return self._observation(), reward, arrived, self._n_steps >= STEPS_MAX, {}

    def _block(self) -> None:
        self._blocked = self.np_random.random(len(MOVES)) < 0.3

    def _observation(self) -> dict[str, Any]:
        return {
            "position": (self._position / (SIZE - 1) * 2 - 1).astype(np.float32),
            "corner": self._corner,
            "blocked": self._blocked.astype(np.int8),
        }
