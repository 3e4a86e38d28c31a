"""Whatever becomes of the parent, its workers and their simulators are gone within two seconds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.processes import (
    PATIENCE_S,
    end,
    is_running,
    read_line,
    read_pids,
    start_script,
    wait_until,
    wait_until_gone,
)

if sys.platform != "linux":
    pytest.skip("the whole table is promised on Linux", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

OPEN = """
import os, signal, sys, time
from pathlib import Path
import numpy as np
import stepherd
from stepherd.testing.faulty_envs import GilHoldingEnv, ParentEnv

pids_path, where, grace_s = sys.argv[1:]

def say(word):
    print(word, flush=True)

class Stuck(GilHoldingEnv):
    # Starts two simulators that ignore SIGTERM, one of them stopped, and gets stuck in native code.
    def __init__(self):
        self.simulators = [
            ParentEnv(pids_path=pids_path, where="constructor", stubborn=True, stopped=stopped)
            for stopped in (False, True)
        ]
        super().__init__(where=where)

    def fault(self):
        Path(f"{pids_path}.stuck-{os.getpid()}").touch()
        super().fault()

def send():
    envs.send(stepherd.Actions(np.zeros((2, 1, 0)), np.zeros((2, 1, 1), np.int32)))

manager = stepherd.open_env_manager(Stuck, num_workers=2, timeouts=stepherd.Timeouts(grace_s=float(grace_s)))
"""
IN_A_BLOCK = """
with manager as envs:
    for status in envs.statuses():
        say(status.pid)
"""
WORKING = (
    IN_A_BLOCK
    + """
    envs.reset()
    send()
    say("working")
"""
)
QUIET = """
    sys.stderr = open(os.devnull, "w")
"""


@contextlib.contextmanager
def a_parent(
    program: str, folder: Path, *, where: str = "step", grace_s: float = 0.3, n_stuck: int = 2
) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Start a parent; give it and the pids of its workers and simulators. Nothing of it is left after the block.

    `where` says in which call the envs get stuck; waits until `n_stuck` have, if the program lets them.
    """
    pids_path = folder / "pids"
    process = start_script(OPEN + program, pids_path, where, str(grace_s))
    pids: list[int] = []
    try:
        pids += read_pids(process, 2)
        pids += [int(line) for line in pids_path.read_text().split()]
        assert len(pids) == 6
        wait_until(lambda: len(list(folder.glob("pids.stuck-*"))) >= n_stuck, "the envs are stuck")
        yield process, pids
    finally:
        end(process)
        for pid in pids:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


def say_something(process: subprocess.Popen[bytes]) -> None:
    """Let the parent go on from where it reads its input."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("raise ZeroDivisionError", 1),
        ("sys.exit(7)", 7),
        ("pass", 0),
        ("os._exit(9)", 9),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_however_a_parent_ends_in_the_block_its_workers_and_simulators_end_too(
    ending: str, code: int, tmp_path: Path
) -> None:
    with a_parent(WORKING + QUIET + f"    sys.stdin.readline()\n    {ending}", tmp_path) as (process, pids):
        assert all(is_running(pid) for pid in pids)

        say_something(process)
        ended = process.wait(PATIENCE_S)

        wait_until_gone(pids)
        assert ended == code


CALLS = {
    "reset": "envs.reset()",
    "step": "envs.reset()\n    send()\n    envs.recv()",
    "close": "envs.close(grace_s=100.0)",
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("where", sorted(CALLS))
def test_a_parent_killed_in_any_call_takes_everybody_along(number: signal.Signals, where: str, tmp_path: Path) -> None:
    with a_parent(IN_A_BLOCK + f"    {CALLS[where]}", tmp_path, where=where) as (process, pids):
        process.send_signal(number)
        process.wait(PATIENCE_S)

        wait_until_gone(pids)


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise ZeroDivisionError"], ids=["end", "exit", "error"])
def test_a_parent_that_forgets_to_close_leaves_nobody_behind(ending: str, tmp_path: Path) -> None:
    program = "envs = manager.__enter__()" + WORKING.replace("with manager as envs:", "if True:")
    with a_parent(program + QUIET + f"    sys.stdin.readline()\n    {ending}", tmp_path) as (process, pids):
        say_something(process)
        process.wait(PATIENCE_S)

        wait_until_gone(pids)


def test_ctrl_c_while_waiting_closes_the_pool_and_goes_on_as_an_interrupt(tmp_path: Path) -> None:
    with a_parent(WORKING + QUIET + "    envs.recv()", tmp_path) as (process, pids):
        process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)

        wait_until_gone(pids)
        assert code == -signal.SIGINT


@pytest.mark.parametrize("n", [1, 2])
def test_ctrl_c_in_the_middle_of_a_close_ends_it_now(n: int, tmp_path: Path) -> None:
    with a_parent(IN_A_BLOCK + QUIET, tmp_path, where="close", grace_s=100.0) as (process, pids):
        begun = time.monotonic()

        for _ in range(n):
            process.send_signal(signal.SIGINT)
        code = process.wait(PATIENCE_S)

        assert time.monotonic() - begun < PATIENCE_S
        wait_until_gone(pids)
        assert code == -signal.SIGINT


FORKS = {
    "os.fork": "sibling = os.fork()\n    if not sibling: time.sleep(100)\n    say(sibling)",
    "multiprocessing": (
        "import multiprocessing as mp\n"
        "    it = mp.get_context('fork').Process(target=time.sleep, args=(100,))\n"
        "    it.start()\n"
        "    say(it.pid)"
    ),
    "subprocess": (
        "import subprocess\n"
        "    it = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], close_fds=False)\n"
        "    say(it.pid)"
    ),
}


@pytest.mark.parametrize("how", sorted(FORKS))
def test_another_child_of_the_parent_that_lives_on_does_not_keep_the_workers_alive(how: str, tmp_path: Path) -> None:
    with a_parent(WORKING + f"    {FORKS[how]}\n    time.sleep(100)", tmp_path) as (process, pids):
        assert read_line(process) == "working"
        sibling = int(read_line(process))

        process.kill()
        process.wait(PATIENCE_S)

        try:
            wait_until_gone(pids)
            assert is_running(sibling)
        finally:
            os.kill(sibling, signal.SIGKILL)


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("raise ZeroDivisionError", 1), ("os._exit(4)", 4)])
def test_a_forked_copy_on_its_way_out_goes_its_own_way_and_leaves_the_workers_alone(
    ending: str, code: int, tmp_path: Path
) -> None:
    program = f"""
    copy = os.fork()
    if not copy:
        sys.stderr = open(os.devnull, "w")
        {ending}
    say(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
    sys.stdin.readline()
"""
    with a_parent(IN_A_BLOCK + program, tmp_path, n_stuck=0) as (process, pids):
        assert int(read_line(process)) == code
        assert all(is_running(pid) for pid in pids)

        say_something(process)
        process.wait(PATIENCE_S)

        wait_until_gone(pids)


def test_a_simulator_whose_worker_died_goes_with_the_parent_that_had_not_noticed_yet(tmp_path: Path) -> None:
    with a_parent(WORKING + "    time.sleep(100)", tmp_path) as (process, pids):
        workers, simulators = pids[:2], pids[2:]
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not any(is_running(worker) for worker in workers), "the workers have ended")
        survived = all(is_running(simulator) for simulator in simulators)

        process.kill()
        process.wait(PATIENCE_S)

        assert survived
        wait_until_gone(simulators)


def test_nothing_is_left_in_the_temporary_folder_or_in_shared_memory_after_a_kill(tmp_path: Path) -> None:
    folders = [Path(tempfile.gettempdir()), Path("/dev/shm")]
    before = [set(folder.iterdir()) for folder in folders]
    with a_parent(WORKING + "    time.sleep(100)", tmp_path) as (process, pids):
        process.kill()
        process.wait(PATIENCE_S)

        wait_until_gone(pids)
    assert [set(folder.iterdir()) for folder in folders] == before
