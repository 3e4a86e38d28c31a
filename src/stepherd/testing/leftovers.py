"""What a piece of code leaves behind: processes, descriptors, files, ports and threads that were not there before.

    with leaves_nothing():          # fails with a list of all that is still there two seconds later
        run_my_training()

Knows nothing of pytest; `no_leftovers` makes a fixture of it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import Waiter
from stepherd.testing.footprint import (
    Process,
    descriptors_of,
    find_started_here,
    is_used_by_others_only,
    listening_ports,
    read_process,
    take_footprint,
)

MARK = "STEPHERD_STARTED_DURING"  # the environment variable that tells whose a process is
GONE_WITHIN_S = 2.0  # what ends by itself has ended by then, even on a busy machine
LOOK_EVERY_S = 0.02
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no SIGKILL, and its SIGTERM cannot be refused
MEANT_TO_STAY = ("torchinductor_*", "pytest-of-*")  # made once, by whoever comes first, and kept on purpose
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - watched, never written to


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is there now and was not there before, each thing once. False when there is nothing."""

    processes: tuple[Process, ...] = ()
    descriptors: tuple[tuple[int, str], ...] = ()
    """Numbers, each with what it is open on."""
    files: tuple[Path, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    """(pid, TCP port) for each port that is still listened on."""
    threads: tuple[str, ...] = ()
    """Names of the threads that would keep the program from ending."""

    def __bool__(self) -> bool:
        return bool(self.processes or self.descriptors or self.files or self.threads)

    def __str__(self) -> str:
        lines = [str(process) for process in self.processes]
        lines += [f"descriptor {fd}: {target}" for fd, target in self.descriptors]
        lines += [f"port {port}: process {pid} listens" for pid, port in self.ports]
        lines += [f"file {path}" for path in self.files]
        lines += [f"thread {name!r}" for name in self.threads]
        return "\n".join(["left behind:", *(f"  {line}" for line in lines)]) if lines else "nothing left behind"

    def kill_processes(self) -> None:
        """Kill the processes that are still the same ones, so that what comes next starts clean. Never blocks."""
        for process in self.processes:
            now = read_process(process.pid)
            if now is not None and now.started == process.started and not now.has_ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, KILL)


class LeftoverWatch:
    """What there was when the watch began, to compare with. Made by `watch_leftovers`."""

    def __init__(self, folders: Sequence[Path], mark: bytes) -> None:
        self._folders = tuple(folders)
        self._mark = mark
        self._before = take_footprint(self._folders)

    def look(self) -> Leftovers:
        """Return what is left behind at this moment. Never blocks."""
        before, now = self._before, take_footprint(self._folders)
        new_pids = now.pids - before.pids
        processes = tuple(find_started_here(sorted(new_pids), self._mark)) if new_pids else ()
        descriptors = tuple(sorted(now.descriptors - before.descriptors))
        threads = [t for t in threading.enumerate() if not t.daemon and t.native_id not in before.threads]
        held = [(os.getpid(), target) for _, target in descriptors]
        held += [(process.pid, target) for process in processes for _, target in descriptors_of(process.pid)]
        return Leftovers(
            processes,
            descriptors,
            tuple(path for path in sorted(now.files - before.files) if self._is_ours(path)),
            tuple(listening_ports(held)) if held else (),
            tuple(thread.name for thread in threads),
        )

    def wait(self, deadline: Deadline) -> Leftovers:
        """Wait until nothing is left behind; return what still is when `deadline` has passed.

        Unreachable objects are collected first: one that holds a descriptor has not leaked it for good. Blocks until
        `deadline` at the latest.
        """
        leftovers = self.look()
        if leftovers:
            gc.collect()
            leftovers = self.look()
        while leftovers and not deadline.passed:
            with closing(Waiter[None]()) as nothing:
                nothing.wait(deadline.or_earlier(deadline.clock() + LOOK_EVERY_S))
            leftovers = self.look()
        return leftovers

    def _is_ours(self, path: Path) -> bool:
        meant_to_stay = any(path.match(pattern) for pattern in MEANT_TO_STAY)
        return not meant_to_stay and not is_used_by_others_only(path, self._mark)


@contextmanager
def watch_leftovers(folders: Sequence[Path] | None = None) -> Iterator[LeftoverWatch]:
    """Watch what the body leaves behind; ask the watch after the body.

    `folders` are those in which a new file counts, by default shared memory and the temporary folder.
    """
    mark = uuid.uuid4().hex
    outer = os.environ.get(MARK)
    os.environ[MARK] = f"{outer} {mark}" if outer else mark  # a watch within a watch: both find what is left
    try:
        yield LeftoverWatch(folders if folders is not None else default_folders(), mark.encode())
    finally:
        if outer is None:
            os.environ.pop(MARK, None)  # the body may have emptied the environment
        else:
            os.environ[MARK] = outer


@contextmanager
def leaves_nothing(*, within_s: float = GONE_WITHIN_S) -> Iterator[None]:
    """Check that the body leaves nothing behind; things on their way out have `within_s` seconds to go.

    What is left is killed, so that it can't disturb what comes next. Blocks for `within_s` at most.

    Raises:
        AssertionError: something is left; the message lists it. Not raised over an error of the body.
    """
    with watch_leftovers() as watch:
        yield
    leftovers = watch.wait(Deadline.after(within_s))
    leftovers.kill_processes()
    if leftovers:
        raise AssertionError(str(leftovers))


def default_folders() -> tuple[Path, ...]:
    """Return the folders that programs leave files in: shared memory, where there is any, and the temporary one."""
    shared_memory = (SHARED_MEMORY,) if SHARED_MEMORY.is_dir() else ()
    return (*shared_memory, Path(tempfile.gettempdir()))
