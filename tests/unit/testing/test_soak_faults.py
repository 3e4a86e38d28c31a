"""Faults reach the process they are meant for, at their moment, and what became of each is known."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepherd.core.events import WorkerFailed, WorkerReady, WorkerStarted
from stepherd.testing.soak_env import Page, page_path
from stepherd.testing.soak_faults import Victims
from stepherd.testing.soak_plan import Fault, Where

PATIENCE_S = 20.0
STAYS = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]


@contextlib.contextmanager
def a_process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(STAYS) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def victims(folder: Path, *faults: Fault) -> Iterator[Victims]:
    made = Victims(folder, 1, faults, slow_step_s=0.5, slow_reset_s=0.7)
    try:
        yield made
    finally:
        made.close()


def fault(kind: str, where: Where = "step", *, at_round: int = 1, after: float = 0.0) -> Fault:
    return Fault(1, kind, where, worker_id=0, env_index=0, at_round=at_round, after=after)


def end_of(process: subprocess.Popen[bytes]) -> int:
    return -process.wait(PATIENCE_S)


@pytest.mark.parametrize("after_s", [0.0, 0.02])
def test_a_signal_reaches_the_worker_now_or_a_little_later(tmp_path: Path, after_s: float) -> None:
    with a_process() as process, victims(tmp_path) as found:
        found.hear(WorkerStarted(0, process.pid, 0))

        found.strike(fault("segv"), after_s)
        found.wait_for_timers()

        assert end_of(process) == signal.SIGSEGV
        assert [(i.pid, i.struck) for i in found.injections] == [(process.pid, True)]


def test_a_fault_for_a_worker_without_a_process_does_not_strike(tmp_path: Path) -> None:
    with a_process() as process, victims(tmp_path) as found:
        found.strike(fault("kill"))
        found.hear(WorkerStarted(0, process.pid, 0))
        found.hear(WorkerFailed(0, process.pid, 0, "died", "…", 0.0))
        found.strike(fault("kill"))

        assert [i.struck for i in found.injections] == [False, False]
        assert process.poll() is None


def test_a_signal_to_a_process_that_was_reaped_reaches_nobody(tmp_path: Path) -> None:
    with a_process() as process, victims(tmp_path) as found:
        found.hear(WorkerStarted(0, process.pid, 0))
        process.kill()
        process.wait(PATIENCE_S)

        found.strike(fault("kill"))

        assert [i.struck for i in found.injections] == [False]


@pytest.mark.parametrize(
    ("at_round", "generation", "strikes"), [(0, 0, True), (0, 1, False), (5, 0, False), (5, 1, True)]
)
def test_a_fault_in_a_start_strikes_the_first_process_or_a_replacement(
    tmp_path: Path, at_round: int, generation: int, strikes: bool
) -> None:
    with a_process() as process, victims(tmp_path, fault("kill", "spawn", at_round=at_round)) as found:
        found.hear(WorkerStarted(0, process.pid, generation))
        found.wait_for_timers()

        assert [i.struck for i in found.injections] == [True] * strikes


def test_an_order_lands_on_the_page_of_the_env_and_counts_once_it_was_obeyed(tmp_path: Path) -> None:
    env_page = Page(page_path(tmp_path, os.getpid(), 0), makes_it=True)
    with victims(tmp_path) as found:
        found.hear(WorkerStarted(0, os.getpid(), 0))
        found.hear(WorkerReady(0, os.getpid(), 0, 0.1))

        found.strike(fault("slow"))
        (order,) = env_page.orders(0)
        assert (order.kind, order.where, order.amount) == ("slow", "step", 500_000)
        assert not found.injections[0].struck

        env_page.begin()
        env_page.note_obeyed(1)
        found.settle()
        assert found.injections[0].struck
        assert found.lives[0].begun == 1
    env_page.close()


def test_whoever_asked_is_told_of_failures(tmp_path: Path) -> None:
    with a_process() as process, victims(tmp_path) as found:
        failed: list[int] = []
        found.on_failure = failed.append
        found.hear(WorkerStarted(0, process.pid, 0))

        found.hear(WorkerFailed(0, process.pid, 0, "died", "…", 0.0))

        assert failed == [0]
        assert found.lives[0].failure is not None
