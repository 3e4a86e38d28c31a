"""Gymnasium envs whose numbers are not what their spaces declare, or more of them than anybody expects."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from stepherd.testing.counting_env import CountingEnv, FaultyEnv


class HugeObservationEnv(CountingEnv):
    """Fault: none but size: `mib` MiB of observation, every byte of which is the step's number modulo 251.

    Expect: all of it arrives, and a close with one in flight does not wait for anybody to take it.
    """

    def __init__(self, *, mib: int = 16, **healthy: Any) -> None:
        """Make an env that observes a lot."""
        super().__init__(**healthy)
        self.observation_space = spaces.Box(0, 255, (mib, 1024, 1024), np.uint8)

    def _observation(self) -> Any:
        return np.full(self.observation_space.shape, self._step % 251, np.uint8)


class WrongObservationEnv(FaultyEnv):
    """Fault: returns what its observation space does not declare: one of `WRONG_OBSERVATIONS`.

    Expect: the failure names the observation, what came and what was declared; "nan" is a number and arrives.
    """

    def __init__(self, *, wrong: str = "shape", **faulty: Any) -> None:
        """Make an env that observes `WRONG_OBSERVATIONS[wrong]`."""
        self._wrong, self._is_wrong = wrong, False
        super().__init__(**faulty)

    def fault(self) -> None:
        """Be wrong from now on."""
        self._is_wrong = True

    def _observation(self) -> Any:
        return WRONG_OBSERVATIONS[self._wrong] if self._is_wrong else super()._observation()


WRONG_OBSERVATIONS: dict[str, Any] = {
    "shape": np.zeros(5),
    "broadcast": np.zeros(1),
    "dtype": np.zeros(4, np.complex128),
    "text": np.array(["a", "b", "c", "d"]),
    "ragged": [[1.0], [2.0, 3.0]],
    "nothing": None,
    "nan": np.full(4, np.nan),
}
"""What a `WrongObservationEnv` can observe, by name; it declares four float64."""


class WrongRewardEnv(FaultyEnv):
    """Fault: earns what is no finite number: one of `WRONG_REWARDS`.

    Expect: the failure names the reward; NaN and infinity are numbers and arrive.
    """

    def __init__(self, *, wrong: str = "nothing", **faulty: Any) -> None:
        """Make an env that earns `WRONG_REWARDS[wrong]`."""
        self._wrong, self._is_wrong = wrong, False
        super().__init__(**faulty)

    def fault(self) -> None:
        """Be wrong from now on."""
        self._is_wrong = True

    def _reward(self) -> Any:
        return WRONG_REWARDS[self._wrong] if self._is_wrong else super()._reward()


WRONG_REWARDS: dict[str, Any] = {
    "nothing": None,
    "text": "1.5",
    "array": np.zeros(3),
    "nan": float("nan"),
    "infinity": float("inf"),
}
"""What a `WrongRewardEnv` can earn, by name."""
