"""Whether and when a failed worker is replaced: a pure decision over times that are passed in."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often a worker may be replaced. Names and defaults are ML-Agents'; each limit is per worker."""

    max_lifetime_restarts: int = 10
    """Restarts over the whole life of the pool; -1 for no limit, 0 to never restart."""
    restarts_rate_limit_n: int = 1
    """Restarts within any `restarts_rate_limit_period_s`; -1 for no limit."""
    restarts_rate_limit_period_s: float = 60.0
    backoff_s: float = 0.0
    """Wait before the first restart; doubled for each further one within the period, up to `backoff_max_s`."""
    backoff_max_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_lifetime_restarts", "restarts_rate_limit_n"):
            if getattr(self, name) < UNLIMITED:
                raise ValueError(f"RestartPolicy.{name} must be -1 (no limit) or more, not {getattr(self, name)}")
        for name in ("restarts_rate_limit_period_s", "backoff_s", "backoff_max_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"RestartPolicy.{name} must be a finite number of seconds, not {value}")


NEVER = RestartPolicy(max_lifetime_restarts=0)
"""A policy for those who would rather stop at the first failure."""


@dataclass(slots=True)
class RestartHistory:
    """The restarts of one worker so far."""

    policy: RestartPolicy
    n_restarts: int = 0
    _recent: deque[float] = field(default_factory=deque)

    def book(self, now: float) -> float | None:
        """Count a failure at `now`; return when the replacement may start, or `None` when the budget is spent."""
        policy = self.policy
        while self._recent and now - self._recent[0] >= policy.restarts_rate_limit_period_s:
            self._recent.popleft()
        if policy.max_lifetime_restarts != UNLIMITED and self.n_restarts >= policy.max_lifetime_restarts:
            return None
        if policy.restarts_rate_limit_n != UNLIMITED and len(self._recent) >= policy.restarts_rate_limit_n:
            return None
        wait_s = min(policy.backoff_s * 2.0 ** min(len(self._recent), 60), policy.backoff_max_s)
        self.n_restarts += 1
        self._recent.append(now)
        return now + wait_s

    def spent(self) -> str:
        """Return in words which limit was reached, for the message that ends a run."""
        policy = self.policy
        if policy.max_lifetime_restarts != UNLIMITED and self.n_restarts >= policy.max_lifetime_restarts:
            return f"it has been restarted {self.n_restarts} times (max_lifetime_restarts)"
        return (
            f"it has been restarted {len(self._recent)} times within {policy.restarts_rate_limit_period_s:g} s "
            "(restarts_rate_limit_n)"
        )
