"""Envs of a soak without any process: built here, stepped here, their rows gathered into batches by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepherd.envs.build import build_env
from stepherd.spec.batch import Actions, BehaviorSteps, EnvActions, StepBatch
from stepherd.spec.specs import BehaviorSpec, ObservationSpec
from stepherd.testing.counting_env import CountingEnv
from stepherd.testing.soak_env import Page, SoakEnv

NAME = "CountingEnv"


class SteppedHere:
    """One soaked `CountingEnv` with its page and its arrays. Close it."""

    def __init__(self, path: Path, length: int = 3) -> None:
        self.page = Page(path, makes_it=True)
        self.env = SoakEnv(build_env(CountingEnv, {"length": length}), self.page)
        self.steps = {NAME: empty_steps(self.env.spec.behavior(NAME))}

    def reset(self) -> None:
        """Reset it."""
        self.env.reset(None, self.steps)

    def step(self, action: int = 1) -> None:
        """Step it, and begin the next episode where one has ended."""
        if self.env.step(actions_of(action), self.steps):
            self.env.next_episode(self.steps)

    def close(self) -> None:
        """Let go of the page."""
        self.page.close()


def actions_of(action: int) -> EnvActions:
    """Return the actions of one env."""
    return {NAME: Actions(np.zeros((1, 0), np.float32), np.array([[action]], np.int32))}


def actions_for(*actions: int) -> dict[str, Actions]:
    """Return the actions of some envs."""
    n = len(actions)
    return {NAME: Actions(np.zeros((n, 1, 0), np.float32), np.array(actions, np.int32).reshape(n, 1, 1))}


def empty_steps(behavior: BehaviorSpec) -> BehaviorSteps:
    """Return arrays for one env."""

    def arrays(of: Sequence[ObservationSpec]) -> tuple[np.ndarray, ...]:
        return tuple(np.zeros((behavior.n_agents, *one.shape), one.dtype) for one in of)

    n = behavior.n_agents
    flags = [np.zeros(n, np.bool_) for _ in range(3)]
    return BehaviorSteps(arrays(behavior.observations), arrays(behavior.observations), np.zeros(n), *flags)


def batch_of(envs: Sequence[SteppedHere], env_ids: Sequence[int] | None = None, lost: Sequence[int] = ()) -> StepBatch:
    """Return a batch with the rows of some envs; those in `lost` are marked so."""
    ids = list(range(len(envs))) if env_ids is None else list(env_ids)
    steps = [env.steps[NAME].copy() for env in envs]
    stacked = BehaviorSteps(
        tuple(np.stack(arrays) for arrays in zip(*(one.obs for one in steps), strict=True)),
        tuple(np.stack(arrays) for arrays in zip(*(one.final_obs for one in steps), strict=True)),
        *(
            np.stack([getattr(one, name) for one in steps])
            for name in ("reward", "deciding", "terminated", "interrupted")
        ),
    )
    return StepBatch(np.array(ids, np.int64), np.array([i in lost for i in ids], np.bool_), {NAME: stacked})
