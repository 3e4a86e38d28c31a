"""Programs that do unusual things around a pool: it works, or says what is wrong; it never hangs and leaves nobody."""

from __future__ import annotations

import subprocess
import sys

import pytest

from faults.processes import PATIENCE_S, end, read_line, start_script

if sys.platform == "win32":
    pytest.skip("there are no workers on Windows yet", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

POOL = """
import gc, os, signal, sys, threading, warnings
import numpy as np
import stepherd

def say(*words):
    print(*words, flush=True)

def work(envs, n_steps=3):
    envs.reset()
    for _ in range(n_steps):
        envs.send(stepherd.Actions(np.zeros((2, 1, 0)), np.zeros((2, 1, 1), np.int32)))
        envs.recv(2)

def a_pool(env="CountingEnv", **how):
    how = {"num_workers": 2, "timeouts": stepherd.Timeouts(grace_s=10.0, step_s=10.0)} | how
    return stepherd.open_env_manager(f"python:stepherd.testing.faulty_envs:{env}", **how)

def account(report):
    words = {worker.exit for worker in report.workers}
    say(report.sent, report.delivered, report.leaked, *words)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in time."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", POOL + program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


WELL = "6 6 () exited with code 0"


@pytest.mark.parametrize(
    "before",
    [
        "",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "signal.signal(signal.SIGINT, signal.SIG_IGN)",
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "sys.stdout.flush(); os.close(0)",
        "os.chdir(os.sep)",
        "threading.stack_size(2**20); threading.Thread(target=threading.Event().wait, args=(0.5,)).start()",
        "os.environ.clear()",
        "sys.setrecursionlimit(100000)",
        "gc.disable()",
    ],
)
def test_a_pool_works_and_closes_well_whatever_the_program_did_before(before: str) -> None:
    ran = run(f"{before}\nwith a_pool() as envs:\n    work(envs)\naccount(envs.close())")

    assert ran.stderr == ""
    assert ran.stdout.strip() == WELL
    assert ran.returncode == 0


@pytest.mark.parametrize(
    "before", ["signal.signal(signal.SIGCHLD, signal.SIG_IGN)", "signal.signal(signal.SIGCHLD, reap_all)"]
)
def test_a_program_that_reaps_all_children_itself_only_costs_the_words_for_how_they_ended(before: str) -> None:
    reap_all = """
def reap_all(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""

    ran = run(f"{reap_all}\n{before}\nwith a_pool() as envs:\n    work(envs)\naccount(envs.close())")

    assert ran.stderr == ""
    assert ran.stdout.startswith("6 6 () ended, how is not known")


def test_many_pools_one_after_another_leave_nothing_in_the_program() -> None:
    ran = run(
        """
def held():
    return len(os.listdir("/proc/self/fd")), threading.active_count()

with a_pool() as envs:
    work(envs)
before = held()
for _ in range(5):
    with a_pool() as envs:
        work(envs)
say(before == held())
"""
    )

    assert (ran.stdout.strip(), ran.stderr) == ("True", "")


def test_two_pools_at_a_time_do_not_know_of_each_other() -> None:
    ran = run(
        """
with a_pool() as first, a_pool() as second:
    for _ in range(3):
        work(first)
        work(second)
    account(first.close())
    work(second)
account(second.close())
"""
    )

    assert ran.stdout.splitlines() == ["18 18 () exited with code 0", "24 24 () exited with code 0"]
    assert ran.stderr == ""


def test_a_pool_inside_an_env_of_a_pool_works() -> None:
    ran = run(
        """
def nested():
    from stepherd.testing.faulty_envs import CountingEnv

    class Nested(CountingEnv):
        def __init__(self):
            super().__init__()
            self.inner = stepherd.open_env_manager(CountingEnv, num_workers=1).__enter__()
            self.inner.reset()

        def close(self):
            self.inner.close()

    return Nested()

with stepherd.open_env_manager(nested, num_workers=2) as envs:
    work(envs)
account(envs.close())
"""
    )

    assert (ran.stdout.strip(), ran.stderr) == (WELL, "")


def test_a_program_without_descriptors_is_told_so_and_keeps_none_of_the_workers() -> None:
    ran = run(
        """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
try:
    with a_pool(num_workers=30) as envs:
        say("it opened")
except OSError as error:
    say(error.strerror)
say(len(os.listdir("/proc/self/fd")) < 12)
"""
    )

    assert ran.stdout.splitlines() == ["Too many open files", "True"]
    assert ran.returncode == 0


def test_a_signal_handler_that_raises_in_a_recv_leaves_the_pool_usable() -> None:
    ran = run(
        """
class Alarm(Exception):
    pass

def ring(*_):
    raise Alarm

signal.signal(signal.SIGALRM, ring)
with a_pool(env_kwargs={"step_s": 0.5}) as envs:
    envs.reset()
    envs.send(stepherd.Actions(np.zeros((2, 1, 0)), np.ones((2, 1, 1), np.int32)))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        envs.recv()
    except Alarm:
        say("alarm")
    say(len(envs.recv(2)))
    work(envs, 2)
account(envs.close())
"""
    )

    assert ran.stdout.splitlines() == ["alarm", "2", WELL]
    assert ran.stderr == ""


def test_an_interrupt_while_starting_leaves_nobody() -> None:
    process = start_script(
        POOL
        + """
say("starting")
sys.stderr = open(os.devnull, "w")
with a_pool("HangingEnv", env_kwargs={"where": "constructor"}, timeouts=stepherd.Timeouts(grace_s=0.3)) as envs:
    say("it opened")
"""
    )
    try:
        assert read_line(process) == "starting"
        process.send_signal(2)

        code = process.wait(PATIENCE_S)
    finally:
        end(process)

    assert code in (-2, 130)
