"""The kernel kills a worker's whole group when the leash closes, whoever died, however, and whatever still lives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.processes import (
    PATIENCE_S,
    end,
    is_running,
    open_descriptors,
    read_pids,
    start_script,
    wait_until,
    wait_until_gone,
)
from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.process.child import Child
from stepherd.process.exits import Exit
from stepherd.process.leash import Leash

if sys.platform != "linux":
    pytest.skip("the kernel holds the leash on Linux only", allow_module_level=True)

WORKER = """
import ctypes, os, signal, subprocess, sys, time
from stepherd.process import leash
leash.put_on(int(sys.argv[1]))
"""
SIMULATOR = """
command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(120)"]
print(subprocess.Popen(command, stdout=subprocess.DEVNULL, close_fds={close_fds}).pid, flush=True)
"""
STUCK = """
print(os.getpid(), flush=True)
ctypes.PyDLL(None).usleep(ctypes.c_uint(120 * 10**6))
"""
STOPPED_SIMULATOR = (
    SIMULATOR.replace("print(", "simulator = (").replace(".pid, flush=True", "")
    + """
simulator.send_signal(signal.SIGSTOP)
print(simulator.pid, flush=True)
"""
)

PARENT = """
import os, sys, time
from stepherd.process.child import Child
child = Child(lambda fd: [sys.executable, "-c", sys.argv[1], str(fd)], pass_fds=[], output_fd=1)
"""
LIVES = "time.sleep(120)"
FORKS_A_SIBLING = """
sibling = os.fork()
if sibling:
    print(sibling, flush=True)
time.sleep(120)
"""


@contextlib.contextmanager
def a_parent(program: str, worker: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a parent that starts a worker; kill it at the end of the block."""
    process = start_script(program, worker)
    try:
        yield process
    finally:
        end(process)


@contextlib.contextmanager
def a_worker(program: str, output: Path) -> Iterator[Child]:
    """Start a worker of this process; kill and reap it at the end of the block."""
    with output.open("wb") as file:
        child = Child(lambda fd: [sys.executable, "-c", program, str(fd)], pass_fds=[], output_fd=file.fileno())
    try:
        yield child
    finally:
        child.kill()
        wait_until(child.reap, "it can be reaped")


@pytest.mark.parametrize("close_fds", [True, False])
def test_a_killed_parent_takes_along_a_worker_stuck_in_native_code_and_its_simulator(close_fds: bool) -> None:
    with a_parent(PARENT + LIVES, WORKER + SIMULATOR.format(close_fds=close_fds) + STUCK) as parent:
        pids = read_pids(parent, 2)

        parent.kill()

        wait_until_gone(pids)


def test_a_killed_parent_takes_along_a_simulator_that_is_stopped() -> None:
    with a_parent(PARENT + LIVES, WORKER + STOPPED_SIMULATOR.format(close_fds=True) + STUCK) as parent:
        pids = read_pids(parent, 2)

        parent.kill()

        wait_until_gone(pids)


def test_a_forked_sibling_of_the_parent_does_not_keep_the_worker_alive() -> None:
    with a_parent(PARENT + FORKS_A_SIBLING, WORKER + STUCK) as parent:
        sibling, worker = sorted(read_pids(parent, 2), key=lambda pid: os.getpgid(pid) == pid)
        lived = is_running(sibling) and is_running(worker)

        parent.kill()

        assert lived
        wait_until_gone([worker])
        assert is_running(sibling)
        os.kill(sibling, signal.SIGKILL)


def test_a_forked_sibling_that_ends_does_not_take_the_worker_along() -> None:
    forks_and_ends = "pid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)\nprint(os.getpid(), flush=True)\n"
    with a_parent(PARENT + forks_and_ends + LIVES, WORKER + STUCK) as parent:
        pids = read_pids(parent, 2)

        assert all(is_running(pid) for pid in pids)
        parent.kill()
        wait_until_gone(pids)


@pytest.mark.parametrize("ending", ["os._exit(0)", "sys.exit(0)", "raise ValueError", "os.kill(os.getpid(), 15)"])
def test_a_parent_that_ends_in_any_way_takes_the_worker_along(ending: str) -> None:
    with a_parent(PARENT + f"sys.stderr.close(); sys.stdin.read(); {ending}", WORKER + STUCK) as parent:
        pids = read_pids(parent, 1)
        assert parent.stdin is not None

        parent.stdin.close()
        parent.wait(PATIENCE_S)

        wait_until_gone(pids)


@pytest.mark.parametrize("close_fds", [True, False])
def test_a_simulator_goes_with_the_parent_also_when_its_worker_died_first(close_fds: bool) -> None:
    dies = "print(os.getpid(), flush=True)\nos._exit(3)"
    with a_parent(PARENT + LIVES, WORKER + SIMULATOR.format(close_fds=close_fds) + dies) as parent:
        simulator, worker = read_pids(parent, 2)
        wait_until(lambda: not is_running(worker), "the worker has ended")
        survived = is_running(simulator)

        parent.kill()

        assert survived
        wait_until_gone([simulator])


def test_a_slipped_leash_kills_the_group_of_a_parent_that_lives(tmp_path: Path) -> None:
    with a_worker(WORKER + SIMULATOR.format(close_fds=True) + STUCK, tmp_path / "output") as child:
        wait_until(lambda: len((tmp_path / "output").read_text().split()) == 2, "it is stuck")
        simulator, _ = map(int, (tmp_path / "output").read_text().split())

        child._leash.slip()

        assert wait_readable(child.exit_fd, Deadline.after(PATIENCE_S))
        assert child.look() == Exit(None, signal.SIGKILL)
        wait_until_gone([simulator])


def test_a_worker_whose_parent_is_gone_before_the_leash_is_on_ends_at_once() -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    program = "import os; os.setsid()\n" + WORKER + "print('lives on')"
    process = start_script(program, str(read_end), fds=[read_end])
    os.close(read_end)
    output, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 1
    assert output == b""


def test_a_process_that_leads_no_group_of_its_own_refuses_the_leash() -> None:
    read_end, write_end = os.pipe()
    program = "import sys; sys.stderr.close()\n" + WORKER
    process = start_script(program, str(read_end), fds=[read_end])
    process.communicate(timeout=PATIENCE_S)
    os.close(read_end)
    os.close(write_end)

    assert process.returncode == 1


def test_a_leash_can_be_slipped_as_often_as_you_like() -> None:
    before = open_descriptors()
    leash = Leash()

    for _ in range(2):
        leash.slip()

    assert open_descriptors() == before


def test_no_program_started_elsewhere_inherits_a_leash() -> None:
    leash = Leash()

    inheritable = [os.get_inheritable(fd) for fd in (leash.child_end, leash._write_end)]
    leash.slip()

    assert inheritable == [False, False]
