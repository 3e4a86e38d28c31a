"""The shutdown ladder: ask, SIGTERM, kill, reap; for many children at once, within one bound.

The whole takes at most `2 * grace_s + kill_s`, however many children there are. Who did not end is a return value:
it is reported, never waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stepherd.core.deadline import Clock, Deadline
from stepherd.process.exits import Exit


class Endable(Protocol):
    """What the ladder needs of a child. None of it blocks."""

    def look(self) -> Exit | None:
        """Return how it ended, `None` while it runs."""
        ...

    def terminate(self) -> None:
        """Ask its group to end by SIGTERM."""
        ...

    def kill(self) -> None:
        """Kill its group."""
        ...

    def reap(self) -> bool:
        """Free its pid if it has ended; return whether it has."""
        ...

    def abandon(self) -> None:
        """Let go of it though it runs."""
        ...


AnyEndable = TypeVar("AnyEndable", bound=Endable)


def end_all(
    children: Sequence[AnyEndable],
    *,
    ask: Callable[[AnyEndable], None],
    wait: Callable[[Deadline], None],
    grace_s: float,
    kill_s: float,
    clock: Clock,
) -> list[AnyEndable]:
    """End all children and return those that could not be ended, after abandoning them.

    `ask` requests one child to end, without blocking. `wait` blocks until something may have ended, or until its
    deadline. Blocks for at most `2 * grace_s + kill_s`. An exception out of `wait` (Ctrl-C) cuts the graces short:
    everything is killed and reaped within `kill_s`, then it goes on.
    """
    try:
        for rung, seconds in ((ask, grace_s), (_terminate, grace_s)):
            _climb(children, rung, wait, Deadline.after(seconds, clock))
        wait(Deadline.after(0.0, clock))  # who ended since the last wait had last words too
    finally:
        try:
            _climb(children, _kill, wait, Deadline.after(kill_s, clock))
        finally:  # also after a second Ctrl-C: what was killed is reaped, and nothing of ours stays open
            leaked = [child for child in children if not child.reap()]
            for child in leaked:
                child.abandon()
    return leaked


def _climb(
    children: Sequence[AnyEndable],
    rung: Callable[[AnyEndable], None],
    wait: Callable[[Deadline], None],
    deadline: Deadline,
) -> None:
    for child in children:
        if child.look() is None:
            rung(child)
    while any(child.look() is None for child in children) and not deadline.passed:
        wait(deadline)


def _terminate(child: Endable) -> None:
    child.terminate()


def _kill(child: Endable) -> None:
    child.kill()
