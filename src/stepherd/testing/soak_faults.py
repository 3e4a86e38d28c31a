"""Commits the faults of one cycle: signals from outside at their moment, orders to the envs inside.

Listens to the pool's events to know which process is whose, and keeps account of what reached whom.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepherd.core.events import Event, WorkerFailed, WorkerReady, WorkerStarted
from stepherd.testing.soak_env import Page, page_path
from stepherd.testing.soak_plan import KINDS, Fault

SPAWN_SPREAD_S = 0.3  # about what a worker takes to start: the moments at which a starting one is struck
TIMER_PATIENCE_S = 30.0  # a timer of ours is a fraction of a second long


@dataclass(slots=True)
class Injection:
    """One fault and what became of the attempt to commit it."""

    fault: Fault
    pid: int = 0
    """The process it was meant for; 0 when the worker had none at that moment."""
    at: float = 0.0
    struck: bool = False
    """Whether the signal was sent, or the env began to commit it."""


@dataclass(slots=True)
class Life:
    """One process of a worker."""

    worker_id: int
    pid: int
    generation: int
    started_at: float
    ready_at: float | None = None
    failed_at: float | None = None
    failure: WorkerFailed | None = None
    pages: list[Page] = field(default_factory=list)
    pidfd: int = -1

    @property
    def begun(self) -> int:
        """How many steps its envs have begun, as they counted themselves."""
        return sum(page.begun for page in self.pages)


class Victims:
    """The workers of one pool. Give `hear` to the pool as its event hook; `close` it after the pool."""

    def __init__(
        self, folder: Path, envs_per_worker: int, faults: Sequence[Fault], *, slow_step_s: float, slow_reset_s: float
    ) -> None:
        """Pages lie in `folder`. The faults that strike a starting worker are committed as soon as one starts."""
        self._folder, self._envs_per_worker = folder, envs_per_worker
        self._slow_us = {"step": int(slow_step_s * 1e6), "reset": int(slow_reset_s * 1e6)}
        self._for_spawn = [fault for fault in faults if fault.where == "spawn"]
        self._timers: list[threading.Timer] = []
        self._now: dict[int, Life] = {}
        self.lives: list[Life] = []
        """Every process there was, in order."""
        self.injections: list[Injection] = []
        self.on_failure: Callable[[int], None] = lambda _: None
        """Called with the worker's number when one fails."""

    def hear(self, event: Event) -> None:
        """Take in an event of the pool."""
        now = time.monotonic()
        if isinstance(event, WorkerStarted):
            life = Life(event.worker_id, event.pid, event.generation, now, pidfd=_open_pidfd(event.pid))
            self.lives.append(life)
            self._now[event.worker_id] = life
            self._strike_spawning(life)
        elif isinstance(event, WorkerReady):
            life = self._now[event.worker_id]
            life.ready_at = now
            self._map_pages(life)
        elif isinstance(event, WorkerFailed):
            life = self._now[event.worker_id]
            life.failed_at, life.failure = now, event
            if not life.pages:
                self._map_pages(life)
            self.on_failure(event.worker_id)

    def strike(self, fault: Fault, after_s: float = 0.0) -> None:
        """Commit a fault on the worker's process of this moment; a signal may come `after_s` later. Never blocks."""
        life = self._now.get(fault.worker_id)
        injection = Injection(fault, at=time.monotonic())
        self.injections.append(injection)
        if life is None or life.failed_at is not None:
            return  # its worker is being replaced already
        injection.pid = life.pid
        if not KINDS[fault.kind].signal:
            if fault.env_index < len(life.pages):
                life.pages[fault.env_index].order(fault, self._amount(fault))
        elif after_s > 0.0:
            self._send_later(injection, life, after_s)
        else:
            _send(injection, life)

    def wait_for_timers(self) -> None:
        """Wait until every signal that is to be sent was sent. Blocks for a fraction of a second."""
        for timer in self._timers:
            timer.join(TIMER_PATIENCE_S)
        self._timers.clear()

    def settle(self) -> None:
        """Find out which orders were obeyed, once all workers have ended."""
        self.wait_for_timers()
        for life in self.lives:
            if not life.pages:
                self._map_pages(life)
            obeyed = {fault_id for page in life.pages for fault_id in page.obeyed()}
            for injection in self.injections:
                if injection.pid == life.pid and injection.fault.fault_id in obeyed:
                    injection.struck = True

    def close(self) -> None:
        """Let go of everything. Twice is fine."""
        for timer in self._timers:
            timer.cancel()
        self.wait_for_timers()
        for life in self.lives:
            if life.pidfd >= 0:
                os.close(life.pidfd)
                life.pidfd = -1
            for page in life.pages:
                page.close()
            life.pages.clear()

    def _amount(self, fault: Fault) -> int:
        return self._slow_us[fault.where] if fault.kind == "slow" else fault.amount

    def _map_pages(self, life: Life) -> None:
        for index in range(self._envs_per_worker):
            path = page_path(self._folder, life.pid, index)
            if path.exists() and path.stat().st_size:  # a worker may have ended before it had built all its envs
                life.pages.append(Page(path, makes_it=False))

    def _strike_spawning(self, life: Life) -> None:
        for fault in list(self._for_spawn):
            is_first = fault.at_round == 0
            if fault.worker_id == life.worker_id and is_first == (life.generation == 0):
                self._for_spawn.remove(fault)
                injection = Injection(fault, life.pid, time.monotonic())
                self.injections.append(injection)
                self._send_later(injection, life, fault.after * SPAWN_SPREAD_S)

    def _send_later(self, injection: Injection, life: Life, after_s: float) -> None:
        timer = threading.Timer(after_s, _send, (injection, life))
        self._timers.append(timer)
        timer.start()


def _send(injection: Injection, life: Life) -> None:
    number = signal.Signals[KINDS[injection.fault.kind].signal]
    injection.at = time.monotonic()
    try:
        if life.pidfd >= 0:
            _pidfd_send_signal(life.pidfd, number)
        elif life.failed_at is None:  # without such a descriptor, a pid may be a stranger's once it was reaped
            os.kill(life.pid, number)
        else:
            return
    except ProcessLookupError:
        return
    injection.struck = True


def _open_pidfd(pid: int) -> int:
    open_it: Any = getattr(os, "pidfd_open", None)  # Linux
    try:
        return int(open_it(pid)) if open_it is not None else -1
    except OSError:
        return -1


def _pidfd_send_signal(pidfd: int, number: int) -> None:
    send: Any = getattr(signal, "pidfd_send_signal", None)
    send(pidfd, number)
