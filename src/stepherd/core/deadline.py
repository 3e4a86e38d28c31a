"""Points in time that a wait may not pass, and the time limits a user can set.

A deadline is finite by construction, so a wait that takes one cannot last for ever. The clock is passed in: tests
and the simulation own time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

Clock = Callable[[], float]
"""Seconds since an arbitrary point, never going back. `time.monotonic` is shared by all processes of a machine."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A finite point in time on one clock."""

    at: float
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        if not math.isfinite(self.at):
            raise ValueError(f"a deadline must be a finite point in time, not {self.at!r}")

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> Deadline:
        """Return the deadline `seconds` from now."""
        return cls(clock() + seconds, clock)

    @property
    def left_s(self) -> float:
        """Seconds until the deadline, 0.0 once it has passed."""
        return max(0.0, self.at - self.clock())

    @property
    def passed(self) -> bool:
        """Whether the deadline lies in the past."""
        return self.clock() >= self.at

    def or_earlier(self, at: float) -> Deadline:
        """Return the deadline that comes first: this one, or the point `at` on the same clock."""
        return self if self.at <= at else Deadline(at, self.clock)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each phase of a worker may take, in seconds. Every one is finite; there is no "for ever".

    The close of a whole pool, however many workers it has, takes at most `2 * grace_s + kill_s`.
    """

    spawn_s: float = 60.0
    """From starting a worker process until it has built its envs."""
    reset_s: float = 60.0
    """One reset of one env, also the one that follows the end of an episode."""
    step_s: float = 60.0
    """One step of one env."""
    grace_s: float = 5.0
    """How long a worker may take over each polite request to end: first a message, then SIGTERM."""
    kill_s: float = 5.0
    """How long the operating system may take to end killed processes before they are reported as leaked."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
                raise ValueError(f"Timeouts.{field.name} must be a finite number of seconds above 0, not {value!r}")

    @property
    def close_s(self) -> float:
        """The bound of a close: twice the grace, then the kill."""
        return 2 * self.grace_s + self.kill_s
