"""Whether a healthy worker is replaced on purpose: a pure decision, against leaks that only a new process mends."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class RecyclePolicy:
    """When a worker gets a new process though nothing has failed. It happens between episodes and costs no budget.

    A worker with several envs lets each of them finish its episode first. Like after a failure, the envs come back in
    a later batch, marked lost; but no step is.
    """

    after_episodes: int | None = None
    """Episodes that the envs of one process have ended together; `None`: never for that reason."""
    above_rss_mib: float | None = None
    """Resident memory of the worker process; looked at when an episode ends. Only where `/proc` tells (Linux)."""

    def __post_init__(self) -> None:
        if self.after_episodes is not None and self.after_episodes < 1:
            raise ValueError(f"RecyclePolicy.after_episodes must be 1 or more, not {self.after_episodes}")
        limit = self.above_rss_mib
        if limit is not None and not (math.isfinite(limit) and limit > 0):
            raise ValueError(f"RecyclePolicy.above_rss_mib must be a number above 0, not {limit}")

    @property
    def is_off(self) -> bool:
        """Whether nothing is ever recycled."""
        return self.after_episodes is None and self.above_rss_mib is None

    def why(self, n_episodes: int, rss_bytes: int | None) -> str | None:
        """Return why a worker is to be recycled, in words, or `None`."""
        if self.after_episodes is not None and n_episodes >= self.after_episodes:
            return f"after {n_episodes} episodes"
        if self.above_rss_mib is not None and rss_bytes is not None and rss_bytes > self.above_rss_mib * MIB:
            return f"at {rss_bytes / MIB:.0f} MiB of memory"
        return None
