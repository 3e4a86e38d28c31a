"""The protocol every simulator speaks: it reads its actions from arrays and writes its steps into arrays."""

from __future__ import annotations

from typing import Protocol

from stepherd.spec.batch import EnvActions, EnvSteps
from stepherd.spec.specs import EnvSpec


class Env(Protocol):
    """One simulator. All calls come from one thread, one at a time; each may raise, which ends the worker's life.

    Arrays belong to the caller and keep their identity; leading axis: agent places. After `reset`, `obs` and
    `deciding` are written for every place. A step writes everything; where an episode ends, the last observation goes
    to `final_obs`.
    """

    @property
    def spec(self) -> EnvSpec:
        """What this env observes, does and is made of; constant."""
        ...

    def reset(self, seed: int | None, steps: EnvSteps) -> None:
        """Begin a new episode and write its first observations; `None` goes on with the randomness there is."""
        ...

    def step(self, actions: EnvActions, steps: EnvSteps) -> bool:
        """Act and write the outcome; return whether `next_episode` must be called before the next step."""
        ...

    def next_episode(self, steps: EnvSteps) -> None:
        """Begin the episode after one that ended: write its first observations to `obs`, and nothing else."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...
