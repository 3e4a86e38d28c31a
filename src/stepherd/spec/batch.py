"""The arrays that steps travel in: plain numpy, one field per meaning, no object per agent.

`BehaviorSteps` and `Actions` serve one env (leading axis: agent places) and a batch of envs (leading axes: envs,
agent places) alike; "..." below stands for whichever it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BehaviorSteps:
    """What one behavior's agents observed and earned.

    An agent that ends and one that begins in the same step share a place: the old one's last observation is in
    `final_obs`, the new one's first in `obs`. `reward`, `terminated` and `interrupted` belong to the old one.
    """

    obs: tuple[AnyArray, ...]
    """One array per observation spec: (..., *shape)."""
    final_obs: tuple[AnyArray, ...]
    """The last observation of an episode that ended, (..., *shape); meaningless elsewhere."""
    reward: Floats
    """(...): what the last action earned; 0 after a reset."""
    deciding: Bools
    """(...): whether this place needs an action now."""
    terminated: Bools
    """(...): the episode came to its end; nothing follows, so nothing is bootstrapped."""
    interrupted: Bools
    """(...): the episode was cut off (truncated); bootstrap from `final_obs` unless `terminated` too."""

    @property
    def ended(self) -> Bools:
        """(...): whether an episode ended here, either way."""
        return self.terminated | self.interrupted

    def rows(self, n: int) -> BehaviorSteps:
        """Return the first `n` along the first axis, sharing memory."""
        return BehaviorSteps(
            tuple(array[:n] for array in self.obs),
            tuple(array[:n] for array in self.final_obs),
            self.reward[:n],
            self.deciding[:n],
            self.terminated[:n],
            self.interrupted[:n],
        )

    def copy(self) -> BehaviorSteps:
        """Return the same with arrays of its own."""
        return BehaviorSteps(
            tuple(array.copy() for array in self.obs),
            tuple(array.copy() for array in self.final_obs),
            self.reward.copy(),
            self.deciding.copy(),
            self.terminated.copy(),
            self.interrupted.copy(),
        )


@dataclass(frozen=True, slots=True)
class Actions:
    """What one behavior's agents do."""

    continuous: AnyArray
    """(..., n_continuous), in the env's own units."""
    discrete: npt.NDArray[np.int32]
    """(..., n_branches): one choice per branch, counted from 0."""


EnvSteps = Mapping[str, BehaviorSteps]
"""One env's arrays, by behavior name; leading axis: agent places."""
EnvActions = Mapping[str, Actions]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The answers of some envs; row i belongs to env `env_ids[i]`. Rows are in ascending env order."""

    env_ids: Ints
    """(n,)"""
    lost: Bools
    """(n,): this env follows a restart of its worker. Its reward is 0, nothing has ended, `obs` is the first of a
    new episode, and the transition before it never finished: it must not be learned from."""
    behaviors: Mapping[str, BehaviorSteps]
    """Leading axes of every array: (n, agent places)."""

    def __len__(self) -> int:
        return len(self.env_ids)

    def __getitem__(self, behavior: str) -> BehaviorSteps:
        return self.behaviors[behavior]

    def copy(self) -> StepBatch:
        """Return the same with arrays of its own, which outlive the next `recv`."""
        behaviors = {name: steps.copy() for name, steps in self.behaviors.items()}
        return StepBatch(self.env_ids.copy(), self.lost.copy(), behaviors)
