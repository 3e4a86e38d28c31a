"""What tests of processes share: Python programs as strings, looks at /proc, and waiting with a bound."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.testing.footprint import descriptors_of, read_process

PYTHON = [sys.executable, "-I", "-S", "-c"]
"""The fastest start there is, without anything installed."""
GONE_WITHIN_S = 2.0  # the promise: nothing outlives a dead parent for longer
PATIENCE_S = 30.0  # nothing takes so long unless it hangs, on the busiest machine
LOOK_EVERY_S = 0.01

SLEEPS = "import time; print(flush=True); time.sleep(120)"


def is_running(pid: int) -> bool:
    """Return whether there is a process `pid` that has not ended."""
    process = read_process(pid)
    return process is not None and not process.has_ended


def open_descriptors() -> list[int]:
    """Return the numbers of this process's open descriptors."""
    return sorted(fd for fd, _ in descriptors_of(os.getpid()))


def wait_until(condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    """Wait until `condition` holds; fail with `what` was waited for when it does not in time."""
    deadline = Deadline.after(within_s)
    while not condition():
        assert not deadline.passed, f"waited {within_s} s in vain until {what}"
        select.select([], [], [], LOOK_EVERY_S)


def wait_until_gone(pids: Iterable[int], within_s: float = GONE_WITHIN_S) -> None:
    """Wait until none of the processes runs; kill those that still do, and fail."""
    left = set(pids)

    def all_gone() -> bool:
        left.intersection_update([pid for pid in left if is_running(pid)])
        return not left

    try:
        wait_until(all_gone, f"these have gone: {left}", within_s)
    finally:
        for pid in left:
            os.kill(pid, signal.Signals["SIGKILL"])


def start_script(program: str, *arguments: str | Path, fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start a program that can import whatever this one can; its input and output are pipes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        pass_fds=tuple(fds),
    )


def read_pids(process: subprocess.Popen[bytes], n: int) -> list[int]:
    """Read `n` numbers, one a line, from the output of a script; fail when it ends or takes too long."""
    return [int(read_line(process)) for _ in range(n)]


def read_line(process: subprocess.Popen[bytes]) -> str:
    """Read a line, and no byte more, from the output of a script; fail when it ends or takes too long."""
    assert process.stdout is not None
    line = b""
    deadline = Deadline.after(PATIENCE_S)
    while not line.endswith(b"\n"):
        assert wait_readable(process.stdout.fileno(), deadline), f"nothing after {line!r} within {PATIENCE_S} s"
        byte = os.read(process.stdout.fileno(), 1)
        assert byte, f"the script ended after {line!r}"
        line += byte
    return line.decode().rstrip("\n")


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a script if it still runs, reap it and close its pipes."""
    process.kill()
    process.wait(PATIENCE_S)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
