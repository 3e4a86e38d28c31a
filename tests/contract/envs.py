"""Envs that show what arrived and when: for the contract, and small enough to check by eye."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from stepherd.core.deadline import Deadline
from stepherd.testing.counting_env import CountingEnv, pass_time

ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-5.0, 5.0, (3,), np.float32),
    "box of float64": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "scalar box": spaces.Box(0.0, 1.0, (), np.float32),
    "discrete": spaces.Discrete(7),
    "discrete with a start": spaces.Discrete(7, start=-3),
    "multi-discrete": spaces.MultiDiscrete([3, 4, 5]),
    "multi-discrete with a start": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[1, 2], [3, 4]])),
    "multi-binary": spaces.MultiBinary(4),
    "multi-binary in two axes": spaces.MultiBinary([2, 3]),
}
"""One of every kind of action that can be carried."""

OBSERVATION_SPACE = spaces.Dict(
    image=spaces.Box(0, 255, (5, 4, 3), np.uint8),
    choice=spaces.Discrete(9, start=-2),
    flags=spaces.MultiBinary([2, 2]),
    more=spaces.Tuple(
        [
            spaces.MultiDiscrete([10, 20], start=[1, 2]),
            spaces.Dict(deep=spaces.Box(-np.inf, np.inf, (), np.float64), none=spaces.Box(-1.0, 1.0, (0,), np.float32)),
        ]
    ),
)
"""Every kind of observation that can be carried, nested."""

WAITS_AT_MOST_S = 60.0


class EchoEnv(gymnasium.Env[npt.NDArray[np.float64], Any]):
    """Observes the action it got, raveled; raises when that is not a value of its action space."""

    def __init__(self, kind: str) -> None:
        self.action_space = ACTION_SPACES[kind]
        self._n = int(np.prod(self.action_space.shape or ()))
        self.observation_space = spaces.Box(-np.inf, np.inf, (self._n,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        return np.full(self._n, np.nan), {}

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} ({type(action)}) is not in {self.action_space}")
        return np.ravel(action).astype(np.float64), 0.0, False, False, {}


class NestedEnv(gymnasium.Env[Any, np.int64]):
    """Observes `nested_observation(t)`, and ends after three steps."""

    def __init__(self) -> None:
        self.observation_space = OBSERVATION_SPACE
        self.action_space = spaces.Discrete(2)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        self._t = 0
        return nested_observation(0), {}

    def step(self, action: np.int64) -> Any:
        self._t += 1
        return nested_observation(self._t), 1.0, self._t == 3, False, {}


def nested_observation(t: int) -> dict[str, Any]:
    """Return the value of `OBSERVATION_SPACE` at time `t`; no two are alike anywhere."""
    return {
        "image": np.arange(60, dtype=np.uint8).reshape(5, 4, 3) + np.uint8(t),
        "choice": np.int64(t - 2),
        "flags": np.array([[t % 2, 1], [(t + 1) % 2, 0]], np.int8),
        "more": (
            np.array([1 + t, 2 + 2 * t]),
            {"deep": np.float64(t + 1 / 3), "none": np.zeros(0, np.float32)},
        ),
    }


class GatedEnv(CountingEnv):
    """Counts; but one of all envs, the first to step, waits in that step until the file `gate_path` exists."""

    def __init__(self, *, gate_path: str, **healthy: Any) -> None:
        super().__init__(**healthy)
        self._gate = Path(gate_path)
        self._is_first: bool | None = None

    def _begin_step(self) -> None:
        super()._begin_step()
        if self._is_first is None:
            try:
                self._gate.with_suffix(".claimed").touch(exist_ok=False)
                self._is_first = True
            except FileExistsError:
                self._is_first = False
        deadline = Deadline.after(WAITS_AT_MOST_S)
        while self._is_first and not self._gate.exists() and not deadline.passed:
            pass_time(0.005)
