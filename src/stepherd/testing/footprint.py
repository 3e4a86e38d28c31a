"""What this process has on the machine at one moment: processes it started, descriptors, files and threads.

A process that was started here can be anywhere by now: in a session of its own, re-parented to init. It is still
found, because everything that is started inherits a *mark* in its environment. Reads /proc where there is one and
asks psutil elsewhere. Only looks: nothing here blocks, ends or removes anything.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
HAS_PROC = (PROC / "self" / "stat").exists()  # asked of the machine, not of the platform: a chroot may have none
LISTENING = "0A"  # the state of a listening socket in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class Footprint:
    """Everything at one moment, as plain identities that can be compared with those of another moment."""

    pids: frozenset[int]
    """Every process of the machine, whoever's: only those that are new later are worth a closer look."""
    descriptors: frozenset[tuple[int, str]]
    """This process's open descriptors, each with what it is open on."""
    files: frozenset[Path]
    """The entries of the watched folders."""
    threads: frozenset[int | None]
    """The kernel's ids of this process's threads; Python's own are given out again at once."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the machine, as it was when it was looked at."""

    pid: int
    parent: int
    started: float
    """With the pid, the identity of a process: pids are given out again. In the clock's own unit."""
    has_ended: bool
    """A zombie: it ended, and nobody has reaped it."""
    command: str
    environment: bytes
    """`name=value` pairs with zero bytes between them, as it was started with; empty when we may not look."""
    environment_at: int = 0
    """Where in its memory that lies: the same place as in ours only when it was forked from here; 0 if unknown."""

    def __str__(self) -> str:
        ended = ", ended but never reaped" if self.has_ended else ""
        return f"process {self.pid} (parent {self.parent}{ended}): {self.command}"


def take_footprint(folders: Sequence[Path]) -> Footprint:
    """Return what there is now. Costs well under a millisecond, whatever else runs on the machine."""
    return Footprint(
        frozenset(_all_pids()),
        frozenset(descriptors_of(os.getpid())),
        frozenset(_entries(folders)),
        frozenset(thread.native_id for thread in threading.enumerate()),
    )


def find_started_here(pids: Iterable[int], mark: bytes) -> Iterator[Process]:
    """Yield those of `pids` that this process or its descendants started since `mark` was put in the environment.

    This process itself counts as one. A zombie has no environment any more, so one that also lost its parent is not
    found; init reaps it.
    """
    ourselves = read_process(os.getpid())
    for pid in pids:
        process = read_process(pid)
        if process is None or ourselves is None:
            continue
        forked_here = (
            process.environment_at != 0
            and process.environment_at == ourselves.environment_at
            and process.environment == ourselves.environment  # a fork without exec kept our start, without the mark
        )
        if forked_here or mark in process.environment or _descends_from(ourselves.pid, process):
            yield process


def read_process(pid: int) -> Process | None:
    """Return what is to be known of a process; `None` when it has gone."""
    if not HAS_PROC:
        return _ask_psutil(pid)
    try:
        name, _, rest = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")
        command = (PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = rest.split()  # proc(5) counts from 1, and the first here is its third
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        environment = b""  # a stranger's, or gone since
    words = command.replace(b"\0", b" ").decode(errors="replace").strip() or name.partition("(")[2]
    return Process(
        pid,
        parent=int(fields[1]),
        started=float(fields[19]),
        has_ended=fields[0] in "ZX",
        command=words,
        environment=environment,
        environment_at=int(fields[47]),
    )


def is_used_by_others_only(path: Path, mark: bytes) -> bool:
    """Return whether strangers have `path` open or mapped and nobody of ours has, so that it is not ours."""
    users = [pid for pid in _all_pids() if HAS_PROC and str(path) in _open_files(pid)]
    return bool(users) and not any(find_started_here(users, mark))


def descriptors_of(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the open descriptors of a process, each with what it is open on; none when we may not look."""
    if HAS_PROC:
        yield from _descriptors_in(PROC / str(pid) / "fd")
    elif pid == os.getpid():
        yield from ((fd, _description(fd)) for fd in _numbers_in(Path("/dev/fd")))


def listening_ports(held: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Yield (pid, TCP port) for each listening socket among `held`, pairs of a pid and what a descriptor is open on."""
    ports = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING:
                    ports[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    yield from ((pid, ports[target]) for pid, target in held if target in ports)


def _all_pids() -> Iterator[int]:
    if HAS_PROC:
        return (int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208 - plain names, no Paths
    import psutil  # only where there is no /proc; comes with the extra `dev`

    return iter(psutil.pids())


def _descriptors_in(folder: Path) -> Iterator[tuple[int, str]]:
    for fd in _numbers_in(folder):
        with contextlib.suppress(OSError):  # the one that listed the folder is gone again
            yield fd, os.readlink(f"{folder}/{fd}")  # noqa: PTH115 - a string such as "socket:[12]", not a path


def _numbers_in(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder)]  # noqa: PTH208 - plain names, no Paths
    except OSError:
        return []


def _description(fd: int) -> str:
    try:
        about = os.fstat(fd)
    except OSError:
        return "closed"
    return f"device {about.st_dev}, inode {about.st_ino}, mode {about.st_mode:o}"


def _entries(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        with contextlib.suppress(OSError):
            yield from folder.iterdir()


def _descends_from(ancestor: int, process: Process) -> bool:
    parent: Process | None = process
    while parent is not None and parent.parent > 1:
        if parent.parent == ancestor:
            return True
        parent = read_process(parent.parent)
    return False


def _open_files(pid: int) -> set[str]:
    """The paths a process has open or mapped; empty when we may not look."""
    paths = {target for _, target in descriptors_of(pid)}
    with contextlib.suppress(OSError):
        maps = (PROC / str(pid) / "maps").read_text(errors="replace")
        paths.update(line.split(maxsplit=5)[-1] for line in maps.splitlines())
    return paths


def _ask_psutil(pid: int) -> Process | None:
    import psutil  # only where there is no /proc; comes with the extra `dev`

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            environment: dict[str, str] = {}
            with contextlib.suppress(psutil.AccessDenied, psutil.ZombieProcess):
                environment = process.environ()
            ended = process.status() == psutil.STATUS_ZOMBIE
            command = process.name() if ended else " ".join(process.cmdline())
            pairs = "\0".join(f"{name}={value}" for name, value in environment.items())
            return Process(pid, process.ppid(), process.create_time(), ended, command, pairs.encode(errors="replace"))
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
