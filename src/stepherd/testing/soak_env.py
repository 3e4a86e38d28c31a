"""The envs of a soak: a user's env inside a wrapper that numbers every step and fails when it is told to.

Each env has a page that is shared with the soak through a mapped file. The env counts on it what it does, and finds
there the faults it is to commit. A page outlives its worker, so what was really executed is known whatever happened.
Every row carries a stamp, one more observation, that says which step of which process it is, and checksums of it.
Runs in workers; knows nothing of managers.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import pickle
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stepherd.envs.build import build_env
from stepherd.envs.env import Env
from stepherd.spec.batch import Actions, AnyArray, BehaviorSteps, EnvActions, EnvSteps
from stepherd.spec.specs import BehaviorSpec, EnvSpec, ObservationSpec
from stepherd.testing.soak_plan import KINDS, PLACES, Fault, Where

FOR_EVER_S = 3600.0  # longer than any deadline, yet it ends
CHILD_S = 600  # what a fault of ours leaves behind ends by itself, should nobody end it
FLOOD = b"flood " * (2**20 // 6)
HEADROOM_BYTES = 2**26  # what an env may still take before the system refuses

STAMP = "stepherd soak stamp"
PID, STEP, EPISODE, CHECKSUM, ACTION = range(5)
"""The columns of a stamp: the process, how many steps this env has begun in it, how many resets it has had there, a
checksum of the row, and one of the action that led to it (0 after a reset)."""
STAMP_WORDS = 5

PAGE_WORDS = 256
_BEGUN, _FINISHED, _N_ORDERS, _N_OBEYED = range(4)
_ORDERS, _ORDER_WORDS, ORDERS_MAX = 16, 4, 32
_OBEYED = _ORDERS + _ORDER_WORDS * ORDERS_MAX
_KINDS = tuple(KINDS)


class SoakFault(RuntimeError):
    """What an env raises because the soak told it to."""


class Page:
    """The numbers that one env of one process shares with the soak. Each number has one writer."""

    def __init__(self, path: Path, *, makes_it: bool) -> None:
        """Map the page at `path`.

        Raises:
            OSError: it is not there; or it is there already, when this is to make it.
        """
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if makes_it else 0)
        fd = os.open(path, flags, 0o600)
        try:
            if makes_it:
                os.ftruncate(fd, PAGE_WORDS * 8)
            self._map = mmap.mmap(fd, PAGE_WORDS * 8)
        finally:
            os.close(fd)
        self._words = memoryview(self._map).cast("q")

    def close(self) -> None:
        """Unmap it. Twice is fine."""
        self._words.release()
        self._map.close()

    @property
    def begun(self) -> int:
        """How many steps the env has begun."""
        return self._words[_BEGUN]

    @property
    def finished(self) -> int:
        """How many steps the env has finished."""
        return self._words[_FINISHED]

    def begin(self) -> None:
        """Count a step about to be executed."""
        self._words[_BEGUN] += 1

    def finish(self) -> None:
        """Count a step that was executed."""
        self._words[_FINISHED] += 1

    def order(self, fault: Fault, amount: int) -> bool:
        """Tell the env to commit a fault the next time it is where the fault belongs; return whether there was room."""
        n = self._words[_N_ORDERS]
        if n >= ORDERS_MAX:
            return False
        at = _ORDERS + n * _ORDER_WORDS
        order = (fault.fault_id, _KINDS.index(fault.kind), PLACES.index(fault.where), amount)
        for word, value in enumerate(order):
            self._words[at + word] = value
        self._words[_N_ORDERS] = n + 1
        return True

    def orders(self, first: int) -> list[Order]:
        """Return the orders from number `first` on."""
        found = []
        for n in range(first, self._words[_N_ORDERS]):
            at = _ORDERS + n * _ORDER_WORDS
            fault_id, kind, where, amount = self._words[at : at + _ORDER_WORDS].tolist()
            found.append(Order(fault_id, _KINDS[kind], PLACES[where], amount))
        return found

    def note_obeyed(self, fault_id: int) -> None:
        """Note that a fault is about to be committed."""
        n = self._words[_N_OBEYED]
        self._words[_OBEYED + n] = fault_id
        self._words[_N_OBEYED] = n + 1

    def obeyed(self) -> list[int]:
        """Return the faults that were committed, by id."""
        return self._words[_OBEYED : _OBEYED + self._words[_N_OBEYED]].tolist()


@dataclass(frozen=True, slots=True)
class Order:
    """A fault as an env is told of it."""

    fault_id: int
    kind: str
    where: Where
    amount: int


def page_path(folder: str | Path, pid: int, index: int) -> Path:
    """Return where the page of the env number `index` of a process lies."""
    return Path(folder) / f"{pid}-{index}"


@dataclass(frozen=True)
class SoakFactory:
    """Makes the envs of a soak, in their workers. Pages are made in `folder`."""

    source: str | bytes
    """A URI, or a factory pickled with cloudpickle."""
    kwargs: bytes
    folder: str
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "__qualname__", self.name)  # what reports call the env

    def __call__(self) -> SoakEnv:
        """Return a wrapped env and make its page."""
        source = self.source if isinstance(self.source, str) else pickle.loads(self.source)  # noqa: S301 - the user's own
        index = 0
        while page_path(self.folder, os.getpid(), index).exists():
            index += 1
        page = Page(page_path(self.folder, os.getpid(), index), makes_it=True)
        return SoakEnv(build_env(source, pickle.loads(self.kwargs)), page)  # noqa: S301 - the same


class SoakEnv:
    """An env with a stamp on every row, a page to count on, and faults to order. See `stepherd.envs.env.Env`."""

    def __init__(self, env: Env, page: Page) -> None:
        self._env, self._page = env, page
        self._spec = EnvSpec(tuple(_stamped(behavior) for behavior in env.spec.behaviors))
        self._outer: EnvSteps | None = None
        self._inner: dict[str, BehaviorSteps] = {}
        self._pid, self._episode, self._action = os.getpid(), 0, 0
        self._n_orders = 0
        self._orders: list[Order] = []

    @property
    def spec(self) -> EnvSpec:
        """The env's own, with a stamp among the observations of each behavior."""
        return self._spec

    def reset(self, seed: int | None, steps: EnvSteps) -> None:
        """Reset the env, or fail."""
        self._obey("reset")
        self._env.reset(seed, self._inside(steps))
        self._episode, self._action = self._episode + 1, 0
        for outer, inner in self._pairs(steps):
            self._write_stamp(outer.obs[-1], inner.obs, inner)

    def step(self, actions: EnvActions, steps: EnvSteps) -> bool:
        """Count, and step the env, or fail in between."""
        self._page.begin()
        self._obey("step")
        ended = self._env.step(actions, self._inside(steps))
        self._action = action_checksum(actions)
        for outer, inner in self._pairs(steps):
            if not ended:
                self._write_stamp(outer.obs[-1], inner.obs, inner)
            if inner.ended.any():
                self._write_stamp(outer.final_obs[-1], inner.final_obs, None)
        self._page.finish()
        return ended

    def next_episode(self, steps: EnvSteps) -> None:
        """Begin the env's next episode, or fail."""
        self._obey("reset")
        self._env.next_episode(self._inside(steps))
        self._episode += 1
        for outer, inner in self._pairs(steps):
            self._write_stamp(outer.obs[-1], inner.obs, inner)

    def close(self) -> None:
        """Close the env, or fail."""
        self._obey("close")
        self._env.close()

    def _inside(self, steps: EnvSteps) -> EnvSteps:
        if steps is not self._outer:  # arrays keep their identity, so this happens once
            self._outer = steps
            self._inner = {
                name: replace(of, obs=of.obs[:-1], final_obs=of.final_obs[:-1]) for name, of in steps.items()
            }
        return self._inner

    def _pairs(self, steps: EnvSteps) -> list[tuple[BehaviorSteps, BehaviorSteps]]:
        return [(outer, self._inner[name]) for name, outer in steps.items()]

    def _write_stamp(self, stamp: AnyArray, obs: Sequence[AnyArray], row: BehaviorSteps | None) -> None:
        for place in range(len(stamp)):
            sum_ = row_checksum(obs, place, row)
            stamp[place] = (self._pid, self._page.begun, self._episode, sum_, self._action)

    def _obey(self, where: Where) -> None:
        new = self._page.orders(self._n_orders)
        self._n_orders += len(new)
        self._orders += new
        due = [order for order in self._orders if order.where == where]
        for order in due:
            self._orders.remove(order)
            self._page.note_obeyed(order.fault_id)
            commit(order)


def row_checksum(obs: Sequence[AnyArray], place: int, row: BehaviorSteps | None) -> int:
    """Return a checksum of one agent's observations and, with `row`, of its reward and of what ended."""
    checksum = 0
    for array in obs:
        checksum = zlib.crc32(array[place, ...].tobytes(), checksum)
    if row is not None:
        for values in (row.reward, row.terminated, row.interrupted):
            checksum = zlib.crc32(values[place, ...].tobytes(), checksum)
    return checksum


def action_checksum(actions: EnvActions) -> int:
    """Return a checksum of one env's actions, never 0."""
    checksum = 1
    for of in actions.values():
        checksum = zlib.crc32(of.discrete.tobytes(), zlib.crc32(of.continuous.tobytes(), checksum))
    return checksum or 1


def actions_of_row(actions: dict[str, Actions], row: int) -> EnvActions:
    """Return one env's part of the actions of several."""
    return {name: Actions(of.continuous[row], of.discrete[row]) for name, of in actions.items()}


def commit(order: Order) -> None:
    """Do what the kind of fault is; `amount` of "slow" is in microseconds."""
    if order.kind == "raise":
        raise SoakFault(raise_text(order.fault_id))
    if order.kind == "exit":
        os._exit(order.amount)
    if order.kind in ("hang", "hang-close"):
        if order.kind == "hang-close" and order.amount:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        threading.Event().wait(timeout=FOR_EVER_S)
    elif order.kind == "slow":
        threading.Event().wait(timeout=order.amount / 1e6)
    elif order.kind == "oom":
        _take_all_memory()
    elif order.kind == "child":
        _leave_a_child()
    elif order.kind == "flood":
        os.write(1 + order.amount % 2, FLOOD)


def raise_text(fault_id: int) -> str:
    """Return what an env says when it raises fault `fault_id`."""
    return f"soak fault number {fault_id}, on purpose"


def _take_all_memory() -> None:
    limit = 2**30
    with contextlib.suppress(OSError):
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE + HEADROOM_BYTES
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on Windows; macOS takes it and does not keep it
        resource: Any = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    hoard = [bytearray(2**20) for _ in range(2 * HEADROOM_BYTES // 2**20)]
    raise MemoryError(f"still had memory after {len(hoard)} MiB; this system keeps no limit")


def _leave_a_child() -> None:
    program = f"import time; time.sleep({CHILD_S})"
    subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdin=subprocess.DEVNULL)


def _stamped(behavior: BehaviorSpec) -> BehaviorSpec:
    stamp = ObservationSpec(STAMP, (STAMP_WORDS,), str(np.dtype(np.int64)))
    return replace(behavior, observations=(*behavior.observations, stamp))
