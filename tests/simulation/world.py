"""The world of one simulated pool: its time, what is going to happen in it, what has, and what a call may take.

Time moves only while somebody waits, while the caller does something else, and, a little, while the manager works: a
worker does not stand still because its manager is in the middle of something. Knows no manager and no worker.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

NEVER = float("inf")
EMPTY_WAITS_MAX = 20  # in a row that return at once and with nothing: that is a busy loop


class Violation(AssertionError):
    """The manager broke a promise."""


class CtrlC(BaseException):
    """An interrupt, as Ctrl-C raises one in the middle of a wait; not KeyboardInterrupt, which would stop pytest."""


@dataclass(slots=True)
class Call:
    """A call that somebody makes of the manager."""

    name: str
    began: float
    ends: float
    """When it has to be over."""
    may_wait: bool


class World:
    """One clock, and what happens on it."""

    def __init__(self, rng: Random, p_slip: float) -> None:
        self.rng = rng
        self.now = 1000.0
        self.call: Call | None = None
        self.interrupted = False
        """Whether the next wait ends with `CtrlC`."""
        self.was_interrupted = False
        self.trace: list[tuple[float, str, str, tuple[object, ...]]] = []
        self._p_slip = p_slip
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._n_empty_waits = 0

    def read_clock(self) -> float:
        """Return the time: the clock of everything in this world."""
        return self.now

    def later(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let something happen so many seconds from now, or never."""
        if seconds != NEVER:
            heapq.heappush(self._due, (self.now + seconds, next(self._order), happens))

    def let_pass(self, seconds: float) -> None:
        """Let time pass, and what is due in it happen."""
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self._happen()
        self.now = until

    def slip(self) -> None:
        """Let a moment pass, sometimes, because whatever the manager does takes one."""
        if self.rng.random() < self._p_slip:
            seconds = self.rng.expovariate(1 / 50e-6)
            if self.call is not None:
                self.call.ends += seconds
            self.let_pass(seconds)

    def wait(self, until: float, is_over: Callable[[], object]) -> None:
        """Let time pass until then, or until something has happened. Raises `CtrlC` when that came first."""
        begun = self.now
        while not self.interrupted and not is_over() and self._due and self._due[0][0] <= until:
            self._happen()
        if self.interrupted:
            self.interrupted, self.was_interrupted = False, True
            raise CtrlC
        if not is_over():
            self.now = max(self.now, until)
        self._n_empty_waits = 0 if self.now > begun or is_over() else self._n_empty_waits + 1
        self.check(self._n_empty_waits < EMPTY_WAITS_MAX, "waits again and again without any time to wait in")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.note("person", "presses Ctrl-C")
        self.interrupted = True

    @contextlib.contextmanager
    def call_of(self, name: str, bound_s: float) -> Iterator[None]:
        """Watch over a call: it must be over within `bound_s`, whatever comes of it; 0 means that it never waits."""
        assert self.call is None
        self.call = call = Call(name, self.now, self.now + bound_s, may_wait=bound_s > 0)
        self._n_empty_waits = 0
        try:
            yield
        finally:
            self.call = None
            self.check(self.now <= call.ends + 1e-6, "{} took {:.3f} s too long", name, self.now - call.ends)

    def note(self, who: str, what: str, *values: object) -> None:
        """Note what has happened; `what` is formatted with the values only if somebody reads it."""
        self.trace.append((self.now, who, what, values))

    def check(self, holds: object, what: str, *values: object) -> None:
        """Check a promise; `what` says how it was broken.

        Raises:
            Violation: it does not hold.
        """
        if not holds:
            raise Violation(what.format(*values))

    def story(self) -> str:
        """Return all that happened, a line each."""
        return "\n".join(f"{at:12.6f}  {who:<10}  {what.format(*values)}" for at, who, what, values in self.trace)

    def _happen(self) -> None:
        at, _, happens = heapq.heappop(self._due)
        self.now = max(self.now, at)
        happens()
