"""The fault table with real processes: every fault at every moment, with its outcome and its time bound.

All faults of one moment happen in one pool, at once and among healthy workers, and each row looks at what became of
its own worker: dozens of processes would take minutes one after another.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet

import stepherd
from faults.processes import PATIENCE_S, is_running, wait_until
from faults.table import FAULTS, LATE, Fault, When, faults_when, make_claimed
from stepherd.core import events
from stepherd.core.deadline import Timeouts
from stepherd.core.errors import EnvNeverReady, TooFewReady, WorkerFailed
from stepherd.manager.env_manager import EnvManager
from stepherd.manager.report import CloseReport, WorkerReport
from stepherd.manager.restarts import NEVER, RestartPolicy
from stepherd.spec.batch import Actions
from stepherd.testing.faulty_envs import steps_counted
from stepherd.testing.footprint import read_process
from stepherd.testing.leftovers import leaves_nothing

if sys.platform != "linux":
    pytest.skip("the whole table is promised on Linux", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(110)]

N_HEALTHY = 2
LENGTH = 4  # steps in an episode
TIMEOUTS = Timeouts(spawn_s=40.0, reset_s=3.0, step_s=3.0, grace_s=3.0, kill_s=10.0)
NOTICED_S = 5.0  # from the moment something is known to the event that says so, on a machine that is busy
LATE_SPAWN_S = 6.0  # all of these start at once, and one that hangs must get as far as that
EVERY_WORKER = RestartPolicy(-1, -1)


@dataclass
class Record:
    """What happened in one pool."""

    failures: dict[int, events.WorkerFailed] = field(default_factory=dict)
    """By pid."""
    failed_after_s: dict[int, float] = field(default_factory=dict)
    """By pid, since the call in which it failed had begun."""
    worker_of: dict[str, int] = field(default_factory=dict)
    """The worker of each fault."""
    pid_of: dict[str, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    """The envs that came back marked lost."""
    report: CloseReport | None = None
    n_counted: int = 0
    wrong: list[str] = field(default_factory=list)
    """Numbers of healthy envs that are not what they must be."""

    def of(self, fault: Fault) -> WorkerReport:
        """Return the close report of a fault's worker."""
        assert self.report is not None
        return self.report.workers[self.worker_of[fault.name]]


class Scene:
    """One pool with all faults of one moment in it, and who plays with it."""

    def __init__(self, when: When, folder: Path, restarts: RestartPolicy = EVERY_WORKER) -> None:
        self.when, self.folder = when, folder
        self.record = Record()
        self._begun = time.monotonic()
        self._counter = folder / "counter"
        claims = folder / "claims"
        claims.mkdir()
        self._claims = claims
        self.faults = faults_when(when)
        after = {"next episode": 1, "step": 1, "idle": 1}.get(when, 0)
        self.manager = stepherd.open_env_manager(
            functools.partial(
                make_claimed, folder=str(claims), when=when, after=after, length=LENGTH, counter_path=str(self._counter)
            ),
            num_workers=len(self.faults) + N_HEALTHY,
            timeouts=TIMEOUTS,
            restarts=restarts,
            log_dir=folder / "logs",
            on_event=self._note,
        )

    def play(self) -> Record:
        """Let every fault happen, see everybody come back, and close."""
        with self.manager as envs:
            self._begin()
            self._learn_who_is_who(envs)
            envs.reset(seed=1)
            if self.when != "close":
                self._step_until_all_are_back(envs)
            for _ in range(2 * LENGTH):
                self._step(envs)
        self.record.report = envs.close()
        self.record.n_counted = steps_counted(self._counter)
        return self.record

    def _step_until_all_are_back(self, envs: EnvManager) -> None:
        for _ in range(LENGTH):
            self._step(envs)
        if self.when == "idle":
            self._wait_until_idle_faults_have_happened()
            self._step(envs)

    def _step(self, envs: EnvManager) -> None:
        """Step every env once; wait for those that come back from a restart too."""
        self._begin()
        envs.send(Actions(np.zeros((envs.n_envs, 1, 0)), np.ones((envs.n_envs, 1, 1), np.int32)))
        batch = envs.recv(envs.n_envs, within_s=PATIENCE_S + 30.0)
        self.record.lost.update(int(env_id) for env_id in batch.env_ids[batch.lost])
        steps = batch["Claimed"]
        for row in np.nonzero(~batch.lost)[0]:
            obs = (steps.final_obs if steps.ended[row, 0] else steps.obs)[0][row, 0]
            if obs[3] != 1.0 or steps.reward[row, 0] != 100.0 * obs[1] + obs[2]:
                self.record.wrong.append(f"env {row}: {obs.tolist()}, {steps.reward[row, 0]}")

    def _wait_until_idle_faults_have_happened(self) -> None:
        for fault in self.faults:
            pid = self.record.pid_of[fault.name]
            wait_until(functools.partial(_is_out_of_action, pid), f"{fault.name} has happened")

    def _learn_who_is_who(self, envs: EnvManager) -> None:
        worker_of_pid = {status.pid: status.worker_id for status in envs.statuses()}
        for fault in self.faults:
            pid = int((self._claims / fault.name).read_text())
            self.record.pid_of[fault.name] = pid
            self.record.worker_of[fault.name] = worker_of_pid[pid]

    def _begin(self) -> None:
        self._begun = time.monotonic()

    def _note(self, event: events.Event) -> None:
        if isinstance(event, events.WorkerFailed):
            self.record.failures[event.pid] = event
            self.record.failed_after_s[event.pid] = time.monotonic() - self._begun


def _is_out_of_action(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not is_running(pid) or (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] in "Tt")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[When, Record]:
    """Keep what happened, so that each moment is played once."""
    return {}


def play_once(when: When, records: dict[When, Record], tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Return what happened at this moment; the first to ask lets it happen."""
    if when not in records:
        with leaves_nothing():
            records[when] = Scene(when, tmp_path_factory.mktemp(when.replace(" ", "-"))).play()
    return records[when]


def rows(*moments: When) -> list[ParameterSet]:
    """Return a test for each fault at each moment."""
    return [pytest.param(w, fault, id=f"{w}-{fault.name}") for w in moments for fault in faults_when(w)]


DOING = {
    "reset": "while resetting env {env} (after 0 steps in this process)",
    "next episode": f"while resetting env {{env}} (after {LENGTH} steps in this process)",
    "step": "while stepping env {env} (step 2 in this process)",
    "idle": "while ",  # a stopped worker is found out in the next step, if it got so far
}


@pytest.mark.parametrize(("when", "fault"), rows("reset", "next episode", "step", "idle"))
def test_a_fault_is_named_in_time_and_its_worker_replaced(
    when: When, fault: Fault, records: dict[When, Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = play_once(when, records, tmp_path_factory)
    pid, env = record.pid_of[fault.name], record.worker_of[fault.name]
    failure = record.failures[pid]
    limit_s = TIMEOUTS.step_s if fault.cause == LATE else 0.0

    assert failure.cause == fault.cause
    assert fault.words in failure.text
    assert failure.text.startswith(f"Worker {env} (pid {pid}, env {env} of ")
    assert (fault.doing or DOING[when].format(env=env)) in failure.text
    assert limit_s <= record.failed_after_s[pid] <= limit_s + NOTICED_S
    assert record.of(fault).n_restarts == 1
    assert record.of(fault).exit == "exited with code 0"
    assert env in record.lost or when == "reset"  # a reset begins everything anew, so nothing is lost
    assert not is_running(pid)


@pytest.mark.parametrize("fault", faults_when("close"), ids=lambda fault: fault.name)
def test_a_fault_in_the_close_is_remarked_within_the_bound(
    fault: Fault, records: dict[When, Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = play_once("close", records, tmp_path_factory)
    worker, report = record.of(fault), record.report
    assert report is not None

    assert worker.exit.startswith(fault.closing.exit)
    assert len(worker.problems) == 1
    assert fault.closing.remark.format(env=worker.worker_id) in worker.problems[0]
    assert worker.error is None
    assert not worker.leaked
    assert report.took_s <= TIMEOUTS.close_s
    assert not is_running(record.pid_of[fault.name])


@pytest.mark.parametrize("when", ["reset", "next episode", "step", "idle", "close"])
def test_healthy_workers_notice_nothing_and_every_step_is_accounted_for(
    when: When, records: dict[When, Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = play_once(when, records, tmp_path_factory)
    report = record.report
    assert report is not None
    healthy = [worker for worker in report.workers if worker.worker_id not in record.worker_of.values()]

    assert len(healthy) == N_HEALTHY
    assert all(w.n_restarts == 0 and w.error is None and w.problems == () for w in healthy)
    assert all(w.sent == w.delivered for w in healthy)
    assert set(record.failures) == (set() if when == "close" else set(record.pid_of.values()))
    assert report.leaked == ()
    assert report.sent == report.delivered + report.discarded + report.unbegun
    assert report.executed == record.n_counted
    assert record.wrong == []


@dataclass(frozen=True)
class Attempt:
    """What became of a pool whose only env has a fault in its constructor."""

    error: str
    took_s: float
    report: CloseReport


@pytest.fixture(scope="module")
def attempts() -> dict[str, Attempt]:
    """Keep what happened, by the name of the fault."""
    return {}


def attempt_to_open(fault: Fault) -> Attempt:
    """Open a pool that cannot open."""
    timeouts = Timeouts(spawn_s=LATE_SPAWN_S if fault.cause == LATE else 40.0, grace_s=2.0)
    env = f"python:stepherd.testing.faulty_envs:{fault.env}"
    kwargs = {"where": "constructor", **fault.kwargs}
    manager = stepherd.open_env_manager(env, num_workers=1, env_kwargs=kwargs, timeouts=timeouts)
    begun = time.monotonic()
    with pytest.raises(EnvNeverReady) as caught, manager:
        pytest.fail("it opened")
    return Attempt(str(caught.value), time.monotonic() - begun, manager.close())


@pytest.mark.parametrize("fault", faults_when("spawn"), ids=lambda fault: fault.name)
def test_a_fault_in_the_constructor_ends_the_start_with_its_name(fault: Fault, attempts: dict[str, Attempt]) -> None:
    if not attempts:  # the first to ask lets them all happen; most of the time is waiting for those that hang
        faults = faults_when("spawn")
        with ThreadPoolExecutor(max_workers=len(faults)) as threads:
            attempts.update(zip([one.name for one in faults], threads.map(attempt_to_open, faults), strict=True))
    attempt = attempts[fault.name]
    (worker,) = attempt.report.workers

    assert fault.words in attempt.error
    assert attempt.error.startswith(f"Worker 0 (pid {worker.pid}, env 0 of python:stepherd.testing.faulty_envs:")
    assert "while building its envs" in attempt.error
    assert attempt.took_s <= (LATE_SPAWN_S if fault.cause == LATE else PATIENCE_S) + NOTICED_S
    assert not is_running(worker.pid)


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.name in ("raises ValueError", "SIGKILL", "SIGSTOP")], ids=lambda fault: fault.name
)
def test_without_a_budget_a_fault_ends_the_run_with_its_name(fault: Fault, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    manager = stepherd.open_env_manager(
        f"python:stepherd.testing.faulty_envs:{fault.env}",
        num_workers=2,
        env_kwargs={
            "once_path": str(tmp_path / "once"),
            "counter_path": str(counter),
            "after": 1,
            **fault.kwargs,
        },
        timeouts=Timeouts(step_s=1.0, grace_s=2.0),
        restarts=NEVER,
    )
    begun = 0.0

    def work() -> None:
        nonlocal begun
        with manager as envs:
            envs.reset()
            for _ in range(3):
                begun = time.monotonic()
                envs.send(Actions(np.zeros((2, 1, 0)), np.zeros((2, 1, 1), np.int32)))
                envs.recv(2)

    with pytest.raises(WorkerFailed, match=r"It is not replaced again: .*max_lifetime_restarts") as caught:
        work()

    took_s = time.monotonic() - begun
    report = manager.close()
    assert fault.words in str(caught.value)
    assert took_s <= 1.0 + NOTICED_S + 2.0
    assert report.executed == steps_counted(counter)
    assert report.workers[caught.value.worker_id].error is not None
    assert report.workers[1 - caught.value.worker_id].exit == "exited with code 0"


@pytest.mark.parametrize("round_number", range(2))
def test_a_worker_killed_in_the_middle_of_a_step_costs_the_other_seven_nothing(
    round_number: int, tmp_path: Path
) -> None:
    counter = tmp_path / "counter"
    happened: list[events.Event] = []
    with stepherd.open_env_manager(
        "python:stepherd.testing.faulty_envs:CountingEnv",
        num_workers=8,
        env_kwargs={"counter_path": str(counter), "step_s": 0.3, "length": 1000},
        timeouts=Timeouts(grace_s=5.0),
        on_event=happened.append,
    ) as envs:
        envs.reset()
        victim = envs.statuses()[3].pid
        envs.send(Actions(np.zeros((8, 1, 0)), np.full((8, 1, 1), 7, np.int32)))
        wait_until(lambda: steps_counted(counter) == 8, "all are in the middle of a step")

        os.kill(victim, 9)
        begun = time.monotonic()
        answers: dict[int, list[float]] = {}
        lost: list[int] = []
        while len(answers) < 8:
            batch = envs.recv(1)
            lost += batch.env_ids[batch.lost].tolist()
            answers.update(zip(batch.env_ids.tolist(), batch["CountingEnv"].obs[0][:, 0, 2:].tolist(), strict=True))
        took_s = time.monotonic() - begun

        assert lost == [3]
        assert answers == {env_id: [0.0, -1.0] if env_id == 3 else [1.0, 7.0] for env_id in range(8)}
        assert took_s <= PATIENCE_S
    report = envs.close()
    (failure,) = [event for event in happened if isinstance(event, events.WorkerFailed)]
    assert failure.text.startswith(f"Worker 3 (pid {victim}, env 3 of python:stepherd.testing.faulty_envs:CountingEnv")
    assert "while stepping env 3 (step 1 in this process): killed by SIGKILL" in failure.text
    assert (report.sent, report.delivered, report.discarded, report.unbegun) == (8, 7, 1, 0)
    assert report.executed == steps_counted(counter) == 8
    assert read_process(victim) is None


def test_a_recv_that_has_no_time_left_is_not_what_a_fault_looks_like(tmp_path: Path) -> None:
    with stepherd.open_env_manager(
        "python:stepherd.testing.faulty_envs:HangingEnv", num_workers=1, timeouts=Timeouts(step_s=60.0, grace_s=0.5)
    ) as envs:
        envs.reset()
        envs.send(Actions(np.zeros((1, 1, 0)), np.zeros((1, 1, 1), np.int32)))
        begun = time.monotonic()

        with pytest.raises(TooFewReady):
            envs.recv(1, within_s=0.1)

        assert time.monotonic() - begun < 0.1 + NOTICED_S
    assert envs.close().workers[0].discarded == {"it was not taken before the close": 1}
