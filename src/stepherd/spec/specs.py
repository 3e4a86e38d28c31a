"""What an env observes, does and is made of, as plain frozen data that crosses processes.

A *behavior* is a named kind of agent. A single-agent env has one behavior with one agent place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

ObservationKind = Literal["box", "category", "categories", "bits"]
"""What the numbers mean: real numbers; one choice; several choices; on/off flags."""


@dataclass(frozen=True, slots=True)
class ObservationSpec:
    """One array an agent observes at each step."""

    name: str
    """Where it comes from: `"obs"` for a plain space, a path such as `"camera/left"` inside Dict and Tuple spaces."""
    shape: tuple[int, ...]
    dtype: str
    """A numpy dtype name, the env's own: `"float32"`, `"uint8"`, `"int64"`."""
    kind: ObservationKind = "box"
    n_categories: tuple[int, ...] = ()
    """How many choices each element has, in row-major order; only for "category" and "categories"."""
    first_category: tuple[int, ...] = ()
    """The lowest value of each element, as numerous as `n_categories`."""

    def __post_init__(self) -> None:
        np.dtype(self.dtype)  # a wrong name is an error here, not in the worker
        if self.kind in ("category", "categories"):
            assert len(self.n_categories) == len(self.first_category) == self.size, self

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of one observation."""
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """What an agent may do: `n_continuous` real numbers and one choice in each of `branches`."""

    n_continuous: int = 0
    branches: tuple[int, ...] = ()
    """Number of choices of each discrete branch; a choice is an index from 0."""
    low: tuple[float, ...] = ()
    """Lower bound of each continuous action in the env's units; may be `-inf`."""
    high: tuple[float, ...] = ()
    continuous_dtype: str = "float32"

    def __post_init__(self) -> None:
        assert len(self.low) == len(self.high) == self.n_continuous, self
        assert all(n >= 1 for n in self.branches), self


@dataclass(frozen=True, slots=True)
class BehaviorSpec:
    """A named kind of agent: what it observes, what it can do and how many places it has in one env."""

    name: str
    observations: tuple[ObservationSpec, ...]
    action: ActionSpec
    n_agents: int = 1


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """All behaviors of one env. Every env of a pool has the same."""

    behaviors: tuple[BehaviorSpec, ...]

    def __post_init__(self) -> None:
        names = [behavior.name for behavior in self.behaviors]
        assert names, "an env has at least one behavior"
        assert len(set(names)) == len(names), f"behavior names repeat: {names}"

    @property
    def names(self) -> tuple[str, ...]:
        """The behavior names, in order."""
        return tuple(behavior.name for behavior in self.behaviors)

    def behavior(self, name: str) -> BehaviorSpec:
        """Return the behavior called `name`.

        Raises:
            KeyError: there is none of that name.
        """
        for behavior in self.behaviors:
            if behavior.name == name:
                return behavior
        raise KeyError(f"no behavior {name!r}; this env has {', '.join(self.names)}")
