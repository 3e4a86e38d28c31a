"""Runs one cell of `faults.py` in a process and a session of its own, and leaves no process behind. Linux only.

Every process of a cell inherits a mark in its environment, by which it is found in /proc, whoever its parent is by
then. Sessions of marked processes are killed whole, so that one without the mark goes too.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.faults_verdict import Ending, Fault, Told

HERE = Path(__file__).resolve().parent
CASE_FILES = ("faults_case.py", "faults_env.py", "faults_pools.py")
PROGRAM = "from bench.faults_case import main; main()"  # a script would be imported again by the peers' workers
MARK = "STEPHERD_BENCH_FAULTS"
START_S = 120.0  # for the imports before the fault; PyTorch takes its time on a busy machine
OPENING_S = 20.0  # more than other faults have, for one in the constructor: workers import PyTorch after it began
GONE_WITHIN_S = 2.0  # what is left so long after its trainer is an orphan
KILLED_WITHIN_S = 10.0  # for the kernel to end what was killed
LOOK_EVERY_S = 0.05
OUTPUT_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs; zombies don't."""

    pid: int
    session: int
    is_marked: bool


def run_case(fault: Fault, library: str, python: str, mark: str, run_folder: Path, watchdog_s: float) -> Ending:
    """Run one cell under `python`, in a folder below `run_folder`.

    Blocks for `watchdog_s` from the fault on, and for some seconds more at each end.
    """
    with tempfile.TemporaryDirectory(dir=run_folder, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "bench").mkdir()
        for file in CASE_FILES:
            shutil.copy(HERE / file, folder / "bench" / file)
        process = _start(fault, library, python, mark, folder)
        try:
            overdue = _watch(process, folder / "events", watchdog_s + OPENING_S * (fault.play == "open"))
            if overdue:
                process.kill()
            process.wait(KILLED_WITHIN_S)
            gone_at = _wait_until_gone(mark)
            orphans = tuple(_command_of(process.pid) for process in find_processes(mark))
        finally:
            sweep(mark)
            process.wait(KILLED_WITHIN_S)
        told = _read_told(folder / "events")
        output = (folder / "output").read_bytes()[-OUTPUT_BYTES:].decode(errors="replace")
    return Ending(told, output, overdue, process.returncode, gone_at, orphans)


def find_processes(mark: str) -> list[Process]:
    """Return all processes that run with `mark` in the environment or share a session with one that has it."""
    running = [process for entry in Path("/proc").iterdir() if (process := _read_process(entry, mark.encode()))]
    sessions = {process.session for process in running if process.is_marked} - {os.getsid(0)}
    return [process for process in running if process.is_marked or process.session in sessions]


def sweep(mark: str) -> None:
    """Kill all that `find_processes` finds, until it finds nothing. Blocks for `KILLED_WITHIN_S` at most.

    Raises:
        RuntimeError: something could not be killed.
    """
    give_up_at, n_empty_looks = time.monotonic() + KILLED_WITHIN_S, 0
    while n_empty_looks < 2:  # one look can miss a process that is just being started
        found = find_processes(mark)
        n_empty_looks = 0 if found else n_empty_looks + 1
        if found and time.monotonic() > give_up_at:
            raise RuntimeError(f"could not be killed: {', '.join(_command_of(process.pid) for process in found)}")
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.Signals["SIGKILL"])
        time.sleep(LOOK_EVERY_S)


@contextlib.contextmanager
def sweeper(mark: str) -> Iterator[Path]:
    """Give a folder; when the body is done, sweep and remove it, also if this process is killed in the middle."""
    folder = tempfile.mkdtemp(prefix="stepherd-faults-")
    program = "import sys; from bench.faults_run import sweep_at_end; sweep_at_end(*sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", program, mark, folder], cwd=HERE.parent, stdin=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    try:
        yield Path(folder)
    finally:
        process.stdin.close()
        process.wait(2 * KILLED_WITHIN_S)


def sweep_at_end(mark: str, folder: str) -> None:
    """Wait until the other end of stdin is closed, which the end of its process does too; then sweep."""
    sys.stdin.buffer.read()
    sweep(mark)
    shutil.rmtree(folder, ignore_errors=True)


def _start(fault: Fault, library: str, python: str, mark: str, folder: Path) -> subprocess.Popen[bytes]:
    case = {
        "library": library,
        "play": fault.play,
        "fault": fault.fault,
        "where": fault.where,
        "step_s": fault.step_s,
    }
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [python, "-c", PROGRAM, json.dumps(case)],
            cwd=folder,
            env=os.environ | {MARK: mark, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _watch(process: subprocess.Popen[bytes], events: Path, watchdog_s: float) -> bool:
    """Wait for the trainer's end; return whether it did not come in time."""
    give_up_at, has_begun = time.monotonic() + START_S, False
    while process.poll() is None:
        begin = None if has_begun else _read_told(events).get("begin")
        if begin is not None:
            give_up_at, has_begun = begin.at + watchdog_s, True
        if time.monotonic() >= give_up_at:
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def _wait_until_gone(mark: str) -> float:
    give_up_at = time.monotonic() + GONE_WITHIN_S
    while find_processes(mark) and time.monotonic() < give_up_at:
        time.sleep(LOOK_EVERY_S)
    return time.monotonic()


def _read_told(events: Path) -> dict[str, Told]:
    told: dict[str, Told] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in events.read_text().splitlines(keepends=True):
            if line.endswith("\n"):  # a process can be killed in the middle of a line
                event = Told(**json.loads(line))
                told.setdefault(event.what, event)
    return told


def _read_process(entry: Path, mark: bytes) -> Process | None:
    if not entry.name.isdigit():
        return None
    try:
        state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
        is_marked = f"\0{MARK}=".encode() + mark in b"\0" + (entry / "environ").read_bytes()
    except (OSError, ValueError):  # it has ended meanwhile, or is not ours to look at
        return None
    return None if state in "ZX" else Process(int(entry.name), int(session), is_marked)


def _command_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"{pid} (gone)"
    return f"{pid} {b' '.join(words).decode(errors='replace')[:100]}"
