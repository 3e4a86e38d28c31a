"""What happens in each cycle of a soak: the faults, and the habits of the pool's user, all drawn from one seed.

Pure: the same seed and settings give the same plan on every machine. Knows nothing of pools or processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Where = Literal["spawn", "reset", "step", "idle", "close"]
"""What a worker is doing when a fault strikes; "idle" is before it is given the next action."""
PLACES: tuple[Where, ...] = get_args(Where)

FAULTLESS = 0.15  # of the cycles, so that the clean way is soaked as well
PARENT_SIGNALS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGSEGV")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault, by the name a user asks for it."""

    name: str
    what: str
    where: tuple[Where, ...]
    signal: str = ""
    """What is sent to the worker from outside; empty for what its env does itself."""
    spoils: bool = True
    """Whether the worker is lost by it."""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill", "SIGKILL, as the kernel's memory killer sends it", PLACES, "SIGKILL"),
        Kind("freeze", "SIGSTOP: the worker stands still", ("reset", "step", "idle", "close"), "SIGSTOP"),
        Kind("segv", "SIGSEGV, as a crash in native code", PLACES, "SIGSEGV"),
        Kind("abort", "SIGABRT, as native code that gives up", PLACES, "SIGABRT"),
        Kind("raise", "the env raises", ("reset", "step", "close")),
        Kind("exit", "the env ends the process with os._exit", ("reset", "step", "close")),
        Kind("hang", "a reset or step never comes back", ("reset", "step")),
        Kind("hang-close", "close() never comes back, half of the time deaf to SIGTERM", ("close",)),
        Kind("slow", "a reset or step takes a third of what it may take", ("reset", "step"), spoils=False),
        Kind("oom", "the env takes memory until the system refuses", ("reset", "step")),
        Kind("child", "the env starts a process and leaves it", ("reset", "step"), spoils=False),
        Kind("flood", "the env prints a megabyte", ("reset", "step"), spoils=False),
        Kind("parent", "the pool's own process is killed", ("spawn", "reset", "step", "close")),
    )
}
"""Every kind of fault there is."""

ALIASES = {"stop": "freeze", "crash": "segv", "memory": "oom"}


def read_faults(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return the kinds named in `"kill,freeze"`, or in a list of such; "all" stands for all and "none" for none.

    Raises:
        ValueError: there is no such kind; the message lists those there are.
    """
    words = names.split(",") if isinstance(names, str) else [word for name in names for word in name.split(",")]
    found: dict[str, None] = {}
    for word in (word.strip().lower() for word in words):
        if word == "all":
            found.update(dict.fromkeys(KINDS))
        elif ALIASES.get(word, word) in KINDS:
            found[ALIASES.get(word, word)] = None
        elif word not in ("", "none"):
            raise ValueError(f"{word!r} is no kind of fault; there are all, none, {', '.join(KINDS)}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one cycle."""

    fault_id: int
    """Counts from 1 within the cycle."""
    kind: str
    where: Where
    worker_id: int
    env_index: int
    """Which of the worker's envs, from 0; of no matter for a signal."""
    at_round: int
    after: float
    """For what comes from outside: how late in that moment, from 0 to 1."""
    amount: int = 0
    """What the kind needs to know: an exit code, a variant."""

    def __str__(self) -> str:
        return f"{self.kind} in {self.where}" if self.where != "idle" else f"{self.kind} while idle"


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """One cycle: open, reset, so many rounds of sending and receiving, close."""

    cycle: int
    seed: int
    """Of the envs and of the actions."""
    n_rounds: int
    waits_for_all: bool
    """Whether each round takes in every env in flight, or goes on as soon as a few have answered."""
    resets_at: frozenset[int]
    """Rounds that begin with a reset of all envs, whatever is in flight. Round 0 is always one."""
    settles: bool
    """Whether every env on its way, and every lost one, is waited for before the end."""
    drains: bool
    """Whether what is on its way at the end is taken in, or closed over."""
    faults: tuple[Fault, ...] = ()
    parent: Fault | None = None
    """When to kill the pool's process; `amount` counts in `PARENT_SIGNALS`."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan needs to know of the pool."""

    n_workers: int
    envs_per_worker: int
    n_rounds: int
    faults: tuple[str, ...] = ()


def plan_cycle(seed: int, cycle: int, shape: Shape) -> CyclePlan:
    """Return the plan of one cycle, counted from 1; cycle 0 is a trial without faults."""
    rng = np.random.default_rng([seed, cycle])
    kinds = _draw_kinds(rng, cycle, shape)
    parent = _draw_fault(rng, 0, "parent", shape) if "parent" in kinds else None
    kinds = [kind for kind in kinds if kind != "parent"]
    faults = tuple(_draw_fault(rng, i, kind, shape) for i, kind in enumerate(kinds, 1))
    resets = {fault.at_round for fault in (*faults, parent) if fault is not None and fault.where == "reset"}
    if cycle and rng.random() < 0.3:
        resets.add(int(rng.integers(shape.n_rounds)))
    # A worker that dies while it is built for the first time ends the whole pool, so nothing else can be seen then.
    first_spawn = tuple(fault for fault in faults if fault.where == "spawn" and fault.at_round == 0)[:1]
    return CyclePlan(
        cycle,
        seed=int(rng.integers(2**31)),
        n_rounds=shape.n_rounds,
        waits_for_all=not cycle or bool(rng.random() < 0.5),
        resets_at=frozenset({0, *resets}),
        settles=not cycle or bool(rng.random() < 0.7),
        drains=not cycle or bool(rng.random() < 0.5),
        faults=first_spawn or faults,
        parent=parent,
    )


def _draw_kinds(rng: np.random.Generator, cycle: int, shape: Shape) -> list[str]:
    kinds = shape.faults
    if not cycle or not kinds or rng.random() < FAULTLESS:
        return []
    first = kinds[cycle % len(kinds)]  # each kind gets its turn, also in a short run
    n_more = int(rng.integers(0, max(2, shape.n_workers // 2 + 1)))
    more = [kinds[int(rng.integers(len(kinds)))] for _ in range(n_more)]
    return [first, *(kind for kind in more if kind != "parent")]


def _draw_fault(rng: np.random.Generator, fault_id: int, kind: str, shape: Shape) -> Fault:
    places = KINDS[kind].where
    weights = np.array([_WEIGHTS[place] for place in places])
    where = places[int(rng.choice(len(places), p=weights / weights.sum()))]
    at_round = int(rng.integers(shape.n_rounds))
    if where == "spawn" and kind != "parent" and rng.random() < 0.25:
        at_round = 0  # the very first start; later ones strike a replacement
    return Fault(
        fault_id,
        kind,
        where,
        worker_id=int(rng.integers(shape.n_workers)),
        env_index=int(rng.integers(shape.envs_per_worker)),
        at_round=at_round,
        after=float(rng.random()),
        amount=_draw_amount(rng, kind, where),
    )


_WEIGHTS: dict[Where, float] = {"spawn": 0.5, "reset": 1.0, "step": 2.0, "idle": 1.0, "close": 1.0}


def _draw_amount(rng: np.random.Generator, kind: str, where: Where) -> int:
    if kind == "exit":  # code 0 looks like success, and is none in the middle of work
        return 0 if where != "close" and rng.random() < 0.3 else int(rng.integers(1, 100))
    if kind == "parent":
        return int(rng.integers(len(PARENT_SIGNALS)))
    return int(rng.integers(2))
