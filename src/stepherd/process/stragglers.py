"""Processes that left their worker's group: found by a mark in their environment, and killed one by one.

A simulator that makes a session of its own is out of reach of the group kill and of the leash. It still has the
environment it inherited, which Linux shows in `/proc`. Elsewhere nothing is found; that limit is in the docs.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

MARK = "STEPHERD_WORKER"
"""The environment variable that every process started by a worker inherits."""
_PROC = Path("/proc")
_SIGKILL = 9  # has no name on Windows, where nothing is ever found


@dataclass(frozen=True, slots=True)
class Straggler:
    """A process that had been left behind, and was killed."""

    pid: int
    command: str
    mark: str
    """What its `MARK` said."""


def kill_stragglers(mark: str, except_groups: Set[int] = frozenset()) -> list[Straggler]:
    """Kill every process of ours whose `MARK` begins with `mark`, but for those in some groups; return them.

    Never blocks.

    Zombies have no environment any more, so a worker that has ended is not among them.
    """
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):  # ended meanwhile, or not ours to look at
            straggler = None if _group_of(pid) in except_groups else _kill_if_marked(pid, mark)
            if straggler is not None:
                found.append(straggler)
    return found


def _pids() -> Iterator[int]:
    if _PROC.is_dir():
        yield from (int(entry.name) for entry in _PROC.glob("[0-9]*") if int(entry.name) != os.getpid())


def _group_of(pid: int) -> int:
    return os.getpgid(pid) if hasattr(os, "getpgid") else 0


def _kill_if_marked(pid: int, mark: str) -> Straggler | None:
    prefix = f"{MARK}={mark}".encode()
    if prefix not in (_PROC / str(pid) / "environ").read_bytes():
        return None
    descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
    try:
        # Read again now that the descriptor holds on to the process: the number may have gone to somebody else.
        environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        marks = [entry for entry in environment if entry.startswith(prefix)]
        if not marks:
            return None
        command = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        if descriptor >= 0 and hasattr(signal, "pidfd_send_signal"):
            signal.pidfd_send_signal(descriptor, _SIGKILL)
        else:
            os.kill(pid, _SIGKILL)
        return Straggler(pid, command[:200], marks[0].decode(errors="replace").partition("=")[2])
    finally:
        if descriptor >= 0:
            os.close(descriptor)
