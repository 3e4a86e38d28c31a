"""What a seed is about: which faults there are in its world, how often, and how fast everything is.

Each seed enables only some faults ("swarm testing"): where all are at work all the time, the frequent ones hide what
the rare ones do.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from random import Random

from simulation.world import NEVER
from stepherd.core.deadline import Timeouts
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.restarts import UNLIMITED, RestartPolicy
from stepherd.process.exits import Exit


class Fate(enum.Enum):
    """What becomes of a worker process in the middle of what it does."""

    DIES = "dies"
    DIES_SILENTLY = "dies, and somebody it left behind holds its bell open"
    LINGERS = "closes its bell and takes a while to end"
    RAISES = "raises"
    FREEZES = "freezes"
    HANGS = "hangs"
    HANGS_UP = "closes its bell and goes on without end"
    BABBLES = "says what it may not say"
    SPEAKS_GIBBERISH = "says what cannot be read"
    WRITES_GARBAGE = "writes into its bell what is no message"
    RINGS_FOR_NOTHING = "rings for nothing"
    ANSWERS_STALE = "answers with a wrong number and hangs"


EXITS = (Exit(0), Exit(1), Exit(3), Exit(None, 9), Exit(None, 11), Exit(None, 15), Exit(None, None))


@dataclass(frozen=True, slots=True)
class Nature:
    """What one process is like, whatever it does."""

    tells_exit: bool
    """Whether its end wakes a wait; otherwise only who looks sees it."""
    exit_s: float
    """From its last act to its end."""
    sigterm_s: float
    kill_s: float
    is_deaf: bool
    """Whether what is rung to it gets lost at times."""
    accident: tuple[float, Fate] | None
    """When, from its start on, what befalls it whatever it does then."""
    is_odd: bool
    """Whether its envs are not what those of the others are."""


@dataclass(slots=True)
class Weather:
    """What can happen to the workers of one world, and how likely it is; it changes for all of them at once."""

    rng: Random = field(repr=False)
    timeouts: Timeouts = field(repr=False)
    fates: tuple[Fate, ...]
    p_fate: float
    p_slow: float
    """How likely a step or a reset takes about as long as it may."""
    p_late: float
    """How likely that is too long."""
    p_nature: float
    """How likely each oddity of a process is."""
    p_refusal: float
    """How likely the system refuses to start a process."""
    p_end: float
    """How likely each step ends its episode."""
    typical_s: float
    """How long steps and resets take, mostly."""
    accidents_s: float
    """Within which time accidents happen."""

    def fate(self) -> Fate | None:
        """Draw what happens here; mostly nothing."""
        if not self.fates or self.rng.random() >= self.p_fate:
            return None
        return self.rng.choice(self.fates)

    def clear_up(self) -> None:
        """Let nothing go wrong any more."""
        self.fates, self.p_slow, self.p_nature, self.p_refusal = (), 0.0, 0.0, 0.0

    def break_out(self) -> None:
        """Let much go wrong at once, if anything can."""
        self.p_fate = 0.3

    def duration(self, limit_s: float) -> float:
        """Draw how long something takes that may take `limit_s`: mostly much less, sometimes just, or not."""
        rng = self.rng
        if rng.random() < self.p_slow:
            if rng.random() < self.p_late:
                return limit_s + rng.random() * 0.4
            return limit_s * rng.choice((0.5, 0.9, 0.999))
        return min(rng.expovariate(1 / self.typical_s), 0.9 * limit_s)

    def lag(self) -> float:
        """Draw how long passes between two things that follow from one another."""
        return self.rng.choice((0.0, 1e-5, 1e-4, 1e-3))

    def nature(self) -> Nature:
        """Draw what a new process is like."""
        rng, kill_s = self.rng, self.timeouts.kill_s

        def oddly(*values: float) -> float:
            return rng.choice(values) if rng.random() < self.p_nature else 1e-4

        accident = None
        if self.fates and rng.random() < 10 * self.p_fate:
            accident = (rng.random() * self.accidents_s, rng.choice(self.fates))
        return Nature(
            tells_exit=rng.random() >= self.p_nature,
            exit_s=oddly(0.0, 0.01, 0.2, self.timeouts.grace_s * 1.5),
            sigterm_s=oddly(0.1, self.timeouts.grace_s * 2, NEVER),
            kill_s=oddly(0.01, 0.7, kill_s * 0.9, kill_s * 3, NEVER),
            is_deaf=rng.random() < self.p_nature / 2,
            accident=accident,
            is_odd=rng.random() < self.p_nature / 4,
        )


def draw_weather(rng: Random, timeouts: Timeouts) -> Weather:
    """Draw the weather of a seed: from calm, in which nothing may go wrong, to storms."""
    storm = rng.choice((0.0, 0.003, 0.01, 0.03, 0.1))
    return Weather(
        rng=rng,
        timeouts=timeouts,
        fates=tuple(rng.sample([*Fate, Fate.RAISES], rng.randint(1, 6))) if storm else (),
        p_fate=storm,
        p_slow=rng.choice((0.0, 0.0, 0.01, 0.1, 0.8)),
        p_late=rng.choice((0.0, 0.3)),
        p_nature=rng.choice((0.0, 0.1, 0.5)) if storm else 0.0,
        p_refusal=rng.choice((0.0, 0.0, 0.1, 0.5)) if storm else 0.0,
        p_end=rng.choice((0.0, 0.05, 0.3, 1.0)),
        typical_s=timeouts.step_s * rng.choice((1e-4, 1e-3, 0.1)),
        accidents_s=rng.choice((0.01, 1.0, 3 * timeouts.step_s)),
    )


def draw_timeouts(rng: Random) -> Timeouts:
    """Draw the limits of a pool."""
    return Timeouts(
        spawn_s=rng.choice((rng.uniform(1, 20), rng.uniform(0.3, 1))),
        reset_s=rng.uniform(0.3, 10),
        step_s=rng.uniform(0.3, 10),
        grace_s=rng.uniform(0.1, 3),
        kill_s=rng.uniform(0.1, 3),
    )


def draw_recycling(rng: Random) -> RecyclePolicy:
    """Draw how soon a healthy worker is replaced; mostly never."""
    return RecyclePolicy(after_episodes=rng.randint(1, 5) if rng.random() < 0.3 else None)


def draw_policy(rng: Random) -> RestartPolicy:
    """Draw how often a worker may be replaced; half of all pools have no limit, and so a long life."""
    generous = rng.random() < 0.5
    return RestartPolicy(
        max_lifetime_restarts=UNLIMITED if generous else rng.choice((0, 1, 3, 10)),
        restarts_rate_limit_n=UNLIMITED if generous else rng.choice((UNLIMITED, 0, 1, 2, 5)),
        restarts_rate_limit_period_s=rng.choice((0.0, 0.5, 5.0, 60.0)),
        backoff_s=rng.choice((0.0, 0.0, 0.05, 1.0)),
        backoff_max_s=rng.choice((0.0, 2.0, 10.0)),
    )
