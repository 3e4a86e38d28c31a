"""A clock that tests move by hand."""

from __future__ import annotations


class FakeClock:
    """Call it for the time; it stands still until `advance`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.now += seconds
