"""What a program might want to know while a pool runs: frozen records, given to one `on_event` hook.

The hook is called on the thread that uses the manager, between two waits; it must return soon and must not call the
manager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker process was started; its envs are being built."""

    worker_id: int
    pid: int
    generation: int
    """0 for the first process of this worker, 1 for its first replacement, and so on."""


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker has built its envs."""

    worker_id: int
    pid: int
    generation: int
    took_s: float


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker died, raised, was late or broke the protocol. `text` is the whole report."""

    worker_id: int
    pid: int
    generation: int
    cause: str
    """One of "died", "raised", "late", "protocol"."""
    text: str
    restart_in_s: float | None
    """When its replacement starts; `None` when there will be none."""


@dataclass(frozen=True, slots=True)
class WorkerRecycled:
    """A healthy worker has ended and makes room for a new process."""

    worker_id: int
    pid: int
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class WorkerLeaked:
    """A process could not be ended within the bound of the close, not even by SIGKILL."""

    worker_id: int
    pid: int


Event = WorkerStarted | WorkerReady | WorkerFailed | WorkerRecycled | WorkerLeaked
EventHook = Callable[[Event], None]
