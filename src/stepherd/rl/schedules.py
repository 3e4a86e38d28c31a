"""How a hyperparameter moves over the run: constant, or linear from its first value to its last at `max_steps`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ScheduleKind = Literal["linear", "constant"]

# Where ML-Agents' linear schedules end.
FINAL_LEARNING_RATE = 1e-10
FINAL_EPSILON = 0.1
FINAL_BETA = 1e-5


@dataclass(frozen=True, slots=True)
class Schedule:
    """One hyperparameter's value as a function of the steps recorded so far."""

    initial: float
    final: float
    kind: ScheduleKind
    max_steps: int

    def __post_init__(self) -> None:
        assert self.kind in ("linear", "constant"), self
        assert self.max_steps >= 1, self

    def at(self, n_steps: int) -> float:
        """Return the value after `n_steps`; past `max_steps` it stays where it ended.

        A schedule never rises: an initial value below `final` stays as it is. (In ML-Agents a beta of 0 climbs to
        1e-5, which nobody who writes 0 can mean.)
        """
        if self.kind == "constant" or self.initial <= self.final:
            return self.initial
        left = 1.0 - min(n_steps, self.max_steps) / self.max_steps
        return self.final + (self.initial - self.final) * left
