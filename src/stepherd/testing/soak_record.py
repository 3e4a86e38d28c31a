"""What is told of a soak while it runs, and what of a cycle when it is done: plain data that crosses processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepherd.core.deadline import Timeouts

CHECKS = {
    "hangs": "every call came back within its bound",
    "orphans": "no process was left",
    "descriptors": "no file descriptor was left open",
    "shared memory": "nothing was left in /dev/shm",
    "temporary files": "no file was left in the temporary folder",
    "ports": "no port was left listening",
    "threads": "no thread was left running",
    "memory": "the parent's memory does not grow from cycle to cycle",
    "lost steps": "every action sent was delivered, or discarded and counted, exactly as the envs counted themselves",
    "missing errors": "every fault was named: the right worker, the right cause",
    "unexplained failures": "nothing failed that was not made to fail",
    "values": "every row was whole, of the right step, and the answer to the action that was sent",
    "crashes": "the pool never broke",
}
"""Every check, and what is true when it passes."""

OUTCOMES = {
    "named": "the pool said which worker failed, and of what",
    "at close": "it came so late that the report of the close names it",
    "endured": "nobody had to fail, and nobody did; or, when the pool's process was killed, nothing was left of it",
    "overtaken": "another fault was faster with the same process",
    "too late": "the process had ended, or the cycle had",
    "missed": "it was never named: a violation",
}
"""What can become of a fault."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must not be."""

    check: str
    """One of `CHECKS`."""
    cycle: int
    text: str

    @property
    def likeness(self) -> str:
        """The same for violations that differ in numbers only: pids, steps, cycles."""
        return re.sub(r"\d+", "#", f"{self.check}: {self.text}")

    def __str__(self) -> str:
        return f"cycle {self.cycle}: {self.check}: {self.text}"


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """What became of one fault."""

    kind: str
    where: str
    outcome: str
    """One of `OUTCOMES`."""
    noticed_s: float | None = None
    """From the fault to the pool's event."""


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """One cycle, done."""

    cycle: int
    took_s: float
    n_rounds: int = 0
    sent: int = 0
    delivered: int = 0
    discarded: int = 0
    unbegun: int = 0
    open_s: float | None = None
    close_s: float | None = None
    """None when there was nothing to close, or nobody left to say how long it took."""
    n_restarts: int = 0
    restarts_s: tuple[float, ...] = ()
    """From each failure to the replacement that had built its envs."""
    faults: tuple[FaultOutcome, ...] = ()
    violations: tuple[Violation, ...] = ()
    memory_bytes: int | None = None
    """Of the pool's process after the cycle; None where it cannot be read or does not count."""
    slowest_step_s: float = 0.0
    """The longest time an answer took, of the calls in which nothing failed."""
    slowest_reset_s: float = 0.0
    stepping_s: float = 0.0
    """Time spent on sending and receiving."""
    gone_s: float | None = None
    """After the pool's own process was killed: until everything it had started was gone."""
    was_cut_short: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing was done to the pool."""
        return not any(fault.outcome != "too late" for fault in self.faults)


@dataclass(frozen=True, slots=True)
class SoakSettings:
    """What a soak is to do."""

    env: str | bytes
    """A URI, or a factory pickled with cloudpickle."""
    env_kwargs: bytes
    env_name: str
    num_envs: int
    envs_per_worker: int
    steps_per_cycle: int
    faults: tuple[str, ...]
    seed: int
    timeouts: Timeouts
    sys_path: tuple[str, ...] = ()
    folder: str = ""
    """Where the soak keeps its own files; a temporary folder."""


@dataclass(frozen=True, slots=True)
class Doing:
    """The soaking process is about to do something that may take `bound_s` at most, or is still at it."""

    cycle: int
    phase: str
    """One word for a display: "opening", "resetting", "stepping", "closing", "looking"."""
    bound_s: float
    n_rounds: int = 0
    n_steps: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    """How many workers are in each state."""


@dataclass(frozen=True, slots=True)
class NeverReady:
    """The trial could not even open a pool: there is nothing to soak."""

    text: str
