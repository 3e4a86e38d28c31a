"""A cycle with a sound pool is clean, and each way of breaking the pool is found: a soak that finds nothing has looked.

The pools are real; what is broken about them is broken here.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from stepherd.core.deadline import Timeouts
from stepherd.manager import failures
from stepherd.manager.env_worker import EnvWorker
from stepherd.manager.report import CloseReport, WorkerReport
from stepherd.manager.subprocess_env_manager import SubprocessEnvManager
from stepherd.spec.batch import StepBatch
from stepherd.testing import soak_cycle
from stepherd.testing.counting_env import CountingEnv, pass_time
from stepherd.testing.leftovers import SHARED_MEMORY
from stepherd.testing.soak_cycle import run_cycle
from stepherd.testing.soak_plan import CyclePlan, Fault
from stepherd.testing.soak_record import CycleRecord, Doing, SoakSettings

pytestmark = pytest.mark.slow  # every test opens a pool

LIMITS = Timeouts(spawn_s=20.0, reset_s=5.0, step_s=5.0, grace_s=5.0)
PLAN = CyclePlan(1, 7, 6, waits_for_all=True, resets_at=frozenset({0, 3}), settles=True, drains=True)
KILL = Fault(1, "kill", "idle", worker_id=1, env_index=0, at_round=2, after=0.0)

Close = Callable[..., CloseReport]


def settings(folder: Path, timeouts: Timeouts = LIMITS) -> SoakSettings:
    return SoakSettings(
        env=cloudpickle.dumps(CountingEnv),
        env_kwargs=cloudpickle.dumps({"length": 4}),
        env_name="CountingEnv",
        num_envs=2,
        envs_per_worker=1,
        steps_per_cycle=6,
        faults=(),
        seed=1,
        timeouts=timeouts,
        sys_path=tuple(sys.path),
        folder=str(folder),
    )


def one_cycle(folder: Path, *faults: Fault, timeouts: Timeouts = LIMITS, **habits: Any) -> CycleRecord:
    """Run one cycle here."""
    plan = dataclasses.replace(PLAN, faults=faults, **habits)
    record, refusal = run_cycle(settings(folder, timeouts), plan, lambda _: None, lambda: False)
    assert refusal is None
    return record


def found(record: CycleRecord) -> set[str]:
    return {violation.check for violation in record.violations}


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less for what will not go."""
    monkeypatch.setattr(soak_cycle, "GONE_WITHIN_S", 0.5)


@pytest.fixture
def after_close(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Give a function that makes every close do something more."""

    def break_it(do_more: Callable[[], object]) -> None:
        sound = SubprocessEnvManager.close

        def close(self: SubprocessEnvManager, grace_s: float | None = None) -> CloseReport:
            report = sound(self, grace_s)
            do_more()
            return report

        monkeypatch.setattr(SubprocessEnvManager, "close", close)

    return break_it


@pytest.mark.parametrize("waits_for_all", [True, False])
def test_a_sound_pool_is_clean(tmp_path: Path, waits_for_all: bool) -> None:
    record = one_cycle(tmp_path, waits_for_all=waits_for_all)

    assert record.violations == ()
    assert record.n_rounds == 6
    assert record.sent == record.delivered + record.discarded
    assert record.delivered >= 7
    assert record.memory_bytes is None or record.memory_bytes > 2**20
    assert list(tmp_path.iterdir()) == []


def test_a_fault_is_named_and_the_worker_replaced(tmp_path: Path) -> None:
    record = one_cycle(tmp_path, KILL)

    assert record.violations == ()
    assert [(fault.kind, fault.outcome) for fault in record.faults] == [("kill", "named")]
    assert record.n_restarts == len(record.restarts_s) == 1
    assert record.faults[0].noticed_s is not None


def test_whoever_looks_on_is_told_what_is_being_done(tmp_path: Path) -> None:
    told: list[Doing] = []

    run_cycle(settings(tmp_path), PLAN, told.append, lambda: False)

    phases = [doing.phase for doing in told]
    assert list(dict.fromkeys(phases)) == ["opening", "resetting", "stepping", "draining", "closing", "looking"]
    assert all(doing.bound_s > 0 for doing in told)


def test_a_cycle_can_be_cut_short(tmp_path: Path) -> None:
    record, _ = run_cycle(settings(tmp_path), PLAN, lambda _: None, lambda: True)

    assert record.n_rounds == 0
    assert record.violations == ()


def test_a_row_that_is_changed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = SubprocessEnvManager.recv

    def recv(self: SubprocessEnvManager, *arguments: Any, **more: Any) -> StepBatch:
        batch = sound(self, *arguments, **more)
        batch["CountingEnv"].reward[0] += 1
        return batch

    monkeypatch.setattr(SubprocessEnvManager, "recv", recv)

    assert found(one_cycle(tmp_path)) == {"values"}


def test_a_batch_that_comes_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = SubprocessEnvManager.recv
    kept: list[StepBatch] = []

    def recv(self: SubprocessEnvManager, *arguments: Any, **more: Any) -> StepBatch:
        kept.append(sound(self, *arguments, **more).copy())
        return kept[1] if len(kept) == 3 else kept[-1]

    monkeypatch.setattr(SubprocessEnvManager, "recv", recv)

    assert "values" in found(one_cycle(tmp_path))


def test_a_step_that_is_not_counted_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = EnvWorker.report

    def report(self: EnvWorker) -> WorkerReport:
        right = sound(self)
        return dataclasses.replace(right, delivered=right.delivered - 1, unbegun=right.unbegun + 1)

    monkeypatch.setattr(EnvWorker, "report", report)

    assert found(one_cycle(tmp_path)) == {"lost steps"}


def test_a_failure_that_is_not_told_rightly_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "report_of", lambda *_: "Something went wrong.")

    assert found(one_cycle(tmp_path, KILL)) == {"missing errors", "unexplained failures"}


def test_a_call_that_raises_what_it_should_not_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(*_: object) -> None:
        raise RuntimeError("the pool has lost its mind")

    monkeypatch.setattr(SubprocessEnvManager, "send", send)

    record = one_cycle(tmp_path)

    assert found(record) == {"crashes"}
    assert "the pool has lost its mind" in record.violations[0].text


def test_a_close_that_exceeds_its_bound_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after_close: Callable[[Callable[[], object]], None]
) -> None:
    monkeypatch.setattr(soak_cycle, "BUSY_MACHINE_S", 0.0)
    limits = Timeouts(spawn_s=20.0, reset_s=5.0, step_s=5.0, grace_s=0.6, kill_s=0.6)
    after_close(lambda: pass_time(limits.close_s))

    record = one_cycle(tmp_path, timeouts=limits)

    assert found(record) == {"hangs"}
    assert "closing took " in record.violations[0].text
    assert "1.8 s are promised" in record.violations[0].text


def test_a_descriptor_that_is_left_is_found(
    tmp_path: Path, after_close: Callable[[Callable[[], object]], None]
) -> None:
    left: list[int] = []
    after_close(lambda: left.append(os.open(os.devnull, os.O_RDONLY)))

    record = one_cycle(tmp_path)

    for fd in left:
        os.close(fd)
    assert found(record) == {"descriptors"}


def test_a_port_that_is_left_is_found(tmp_path: Path, after_close: Callable[[Callable[[], object]], None]) -> None:
    left: list[socket.socket] = []
    after_close(lambda: left.append(socket.create_server(("127.0.0.1", 0))))

    record = one_cycle(tmp_path)

    for server in left:
        server.close()
    assert found(record) == {"descriptors", "ports"}


def test_a_thread_that_is_left_is_found(tmp_path: Path, after_close: Callable[[Callable[[], object]], None]) -> None:
    end = threading.Event()
    threads: list[threading.Thread] = []

    def leave() -> None:
        threads.append(threading.Thread(target=end.wait, args=(20.0,), name="left"))
        threads[-1].start()

    after_close(leave)

    record = one_cycle(tmp_path)

    end.set()
    for thread in threads:
        thread.join(20.0)
    assert found(record) == {"threads"}


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="there is no /dev/shm here")
def test_shared_memory_that_is_left_is_found(
    tmp_path: Path, after_close: Callable[[Callable[[], object]], None]
) -> None:
    left = SHARED_MEMORY / f"stepherd-test-{os.getpid()}"
    after_close(left.touch)

    record = one_cycle(tmp_path)

    left.unlink()
    assert found(record) == {"shared memory"}


def test_a_process_that_is_left_is_found_and_ended(tmp_path: Path) -> None:
    with leaving_a_process():
        record = one_cycle(tmp_path)

    assert found(record) == {"orphans"}
    assert "is still there" in record.violations[0].text


@contextmanager
def leaving_a_process() -> Iterator[None]:
    """Make the next close leave a process that init adopts."""
    program = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    sound = SubprocessEnvManager.close

    def close(self: SubprocessEnvManager, grace_s: float | None = None) -> CloseReport:
        report = sound(self, grace_s)
        os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program])
        return report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SubprocessEnvManager, "close", close)
        yield
