"""What a display shows of a running training: plain frozen values, and the account of where the time goes.

Knows nothing of terminals, envs or learning.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from stepherd.core.deadline import Clock
from stepherd.manager.env_manager import WorkerStatus as WorkerStatus  # for displays, which know no managers

TimedPart = Literal["simulate", "transport", "infer", "update"]
"""What the training loop spends time on; the rest of the wall time is "other"."""


@dataclass(frozen=True, slots=True)
class TimeShares:
    """Fractions of the wall time, together 1.0."""

    simulate: float = 0.0
    """Waiting for envs to answer."""
    transport: float = 0.0
    """Sending actions and taking in answers."""
    infer: float = 0.0
    """The policy choosing actions."""
    update: float = 0.0
    """Learning."""
    other: float = 1.0
    """Everything else: statistics, checkpoints, the display."""


@dataclass(frozen=True, slots=True)
class BehaviorProgress:
    """How far one behavior is."""

    name: str
    step: int
    max_steps: int
    mean_reward_last_100: float | None
    """None until an episode has ended."""
    n_episodes: int
    """Episodes completed since the run began."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a training run."""

    run_id: str
    behaviors: tuple[BehaviorProgress, ...]
    steps_per_s: float
    elapsed_s: float
    eta_s: float | None
    """Seconds until every behavior is at its max_steps at this speed; None when that cannot be told."""
    workers: tuple[WorkerStatus, ...]
    time: TimeShares


class TimeSplit:
    """Adds up what the time goes to. Two clock readings by the caller per part, no object, no context manager."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._spent: dict[TimedPart, float] = {"simulate": 0.0, "transport": 0.0, "infer": 0.0, "update": 0.0}

    def add(self, part: TimedPart, seconds: float) -> None:
        """Count `seconds` of wall time for `part`."""
        self._spent[part] += seconds

    def shares(self) -> TimeShares:
        """Return the shares since the beginning."""
        spent = self._spent
        total = max(self._clock() - self._since, sum(spent.values()), 1e-9)
        parts = {part: seconds / total for part, seconds in spent.items()}
        return TimeShares(**parts, other=max(0.0, 1.0 - sum(parts.values())))


def estimate_left_s(behaviors: tuple[BehaviorProgress, ...], steps_per_s: float) -> float | None:
    """Return the seconds until every behavior is at its max_steps, None while nothing moves."""
    left = sum(max(0, behavior.max_steps - behavior.step) for behavior in behaviors)
    if left == 0:
        return 0.0
    return left / steps_per_s if steps_per_s > 0 else None
