"""Envs that are no failure but a nuisance: they step on, nobody waits for them, and what they start is gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepherd
from faults.processes import PATIENCE_S, is_running, wait_until_gone
from stepherd.core import events
from stepherd.core.deadline import Timeouts
from stepherd.manager.env_manager import EnvManager
from stepherd.manager.restarts import RestartPolicy
from stepherd.spec.batch import Actions, BehaviorSteps

if sys.platform != "linux":
    pytest.skip("looks at /proc", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def open_pool(
    env: str, *, num_workers: int = 2, log_dir: Path | None = None, grace_s: float = 20.0, **kwargs: Any
) -> AbstractContextManager[EnvManager]:
    """Open a pool of one of the faulty envs."""
    return stepherd.open_env_manager(
        f"python:stepherd.testing.faulty_envs:{env}",
        num_workers=num_workers,
        env_kwargs=kwargs,
        timeouts=Timeouts(step_s=30.0, grace_s=grace_s),
        restarts=RestartPolicy(-1, -1),
        log_dir=log_dir,
    )


def step(envs: EnvManager, choice: int = 1) -> BehaviorSteps:
    """Step all envs and return what they answered, when all have."""
    n = envs.n_envs
    envs.send(Actions(np.zeros((n, 1, 0)), np.full((n, 1, 1), choice, np.int32)))
    (steps,) = envs.recv(n).behaviors.values()
    return steps


def check_counts(envs: EnvManager, n_steps: int) -> None:
    """Step `n_steps` times and check every number."""
    (first,) = envs.reset().behaviors.values()
    episodes = first.obs[0][:, 0, 1].tolist()
    for n in range(1, n_steps + 1):
        steps = step(envs, n)
        assert steps.obs[0][:, 0, 1:].tolist() == [[episode, n, n] for episode in episodes]
        assert steps.reward.tolist() == [[100.0 * episode + n] for episode in episodes]


def check_clean(envs: EnvManager) -> None:
    """Close, and check that nobody has anything to remark."""
    report = envs.close()
    assert [(w.error, w.problems, w.n_restarts, w.exit) for w in report.workers] == [
        (None, (), 0, "exited with code 0")
    ] * len(report.workers)
    assert report.sent == report.delivered


def test_a_flood_of_output_holds_nobody_up_and_is_all_in_the_log(tmp_path: Path) -> None:
    with open_pool("FloodingEnv", kib=256, length=100, log_dir=tmp_path) as envs:
        check_counts(envs, 20)
        check_clean(envs)

    written = 20 * 2 * (256 * 1024 // 6) * len("flood ")
    assert [path.stat().st_size for path in sorted(tmp_path.iterdir())] == [written] * 2


@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
def test_an_env_that_closes_its_standard_streams_steps_on(where: str) -> None:
    with open_pool("DescriptorClosingEnv", which="standard", where=where, length=100) as envs:
        check_counts(envs, 5)
        check_clean(envs)


@pytest.mark.parametrize("where", ["constructor", "step"])
def test_an_env_that_leaves_the_folder_and_the_environment_steps_on_and_is_replaced_like_any_other(where: str) -> None:
    with open_pool("WanderingEnv", where=where, length=100) as envs:
        check_counts(envs, 3)
        os.kill(envs.statuses()[0].pid, signal.SIGKILL)

        step(envs)
        check_counts(envs, 3)

        assert envs.statuses()[0].n_restarts == 1


def test_a_huge_observation_arrives_whole() -> None:
    with open_pool("HugeObservationEnv", mib=16, length=3) as envs:
        envs.reset()
        for n in (1, 2, 3, 1):
            steps = step(envs)
            obs = (steps.final_obs if n == 3 else steps.obs)[0]

            assert obs.nbytes == 2 * 16 * 2**20
            assert (obs == n).all()
        check_clean(envs)


def test_a_huge_observation_that_nobody_takes_does_not_hold_up_the_close() -> None:
    with open_pool("HugeObservationEnv", mib=16) as envs:
        envs.reset()
        envs.send(Actions(np.zeros((2, 1, 0)), np.zeros((2, 1, 1), np.int32)))

    report = envs.close()

    assert report.discarded == 2
    assert report.took_s < PATIENCE_S
    assert [worker.exit for worker in report.workers] == ["exited with code 0"] * 2


def test_numbers_that_are_none_arrive_as_they_are() -> None:
    with open_pool("WrongObservationEnv", num_workers=1, wrong="nan") as envs:
        envs.reset()

        assert np.isnan(step(envs).obs[0]).all()
        check_clean(envs)


@pytest.mark.parametrize(("wrong", "reward"), [("nan", np.nan), ("infinity", np.inf)])
def test_rewards_that_are_not_finite_arrive_as_they_are(wrong: str, reward: float) -> None:
    with open_pool("WrongRewardEnv", num_workers=1, wrong=wrong) as envs:
        envs.reset()

        np.testing.assert_array_equal(step(envs).reward, [[reward]])
        check_clean(envs)


NATURES: dict[str, dict[str, Any]] = {
    "obedient": {},
    "stubborn": {"stubborn": True},
    "stopped": {"stopped": True},
}


@pytest.mark.parametrize("nature", sorted(NATURES))
@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
def test_a_simulator_is_gone_after_the_close(nature: str, where: str, tmp_path: Path) -> None:
    pids_path = tmp_path / "pids"
    with open_pool("ParentEnv", pids_path=str(pids_path), where=where, length=100, **NATURES[nature]) as envs:
        check_counts(envs, 2)
        pids = [int(line) for line in pids_path.read_text().split()]
        assert all(is_running(pid) for pid in pids)
        check_clean(envs)

        wait_until_gone(pids)


@pytest.mark.parametrize("nature", sorted(NATURES))
def test_a_simulator_is_gone_when_its_worker_was_killed_and_the_others_live(nature: str, tmp_path: Path) -> None:
    pids_path = tmp_path / "pids"
    with open_pool("ParentEnv", pids_path=str(pids_path), where="constructor", length=100, **NATURES[nature]) as envs:
        check_counts(envs, 2)
        pids = [int(line) for line in pids_path.read_text().split()]
        workers = [status.pid for status in envs.statuses()]
        of_the_first = [pid for pid in pids if os.getpgid(pid) == workers[0]]

        os.kill(workers[0], signal.SIGKILL)
        step(envs)

        wait_until_gone(of_the_first)
        assert all(is_running(pid) for pid in pids if pid not in of_the_first)


def test_a_simulator_in_a_session_of_its_own_is_found_killed_and_reported(tmp_path: Path) -> None:
    pids_path = tmp_path / "pids"
    with open_pool("ParentEnv", num_workers=1, pids_path=str(pids_path), where="constructor", own_session=True) as envs:
        (pid,) = (int(line) for line in pids_path.read_text().split())
        check_counts(envs, 1)

    report = envs.close()

    wait_until_gone([pid])
    assert any(f"it left process {pid}" in problem for problem in report.workers[0].problems)


def test_a_simulator_in_a_session_of_its_own_is_gone_before_its_workers_replacement_steps(tmp_path: Path) -> None:
    pids_path = tmp_path / "pids"
    with open_pool("ParentEnv", num_workers=1, pids_path=str(pids_path), where="constructor", own_session=True) as envs:
        (first,) = (int(line) for line in pids_path.read_text().split())
        envs.reset()

        os.kill(envs.statuses()[0].pid, signal.SIGKILL)
        step(envs)

        wait_until_gone([first])
        (second,) = (int(line) for line in pids_path.read_text().split() if int(line) != first)
        assert is_running(second)
    wait_until_gone([second])


def test_many_envs_that_nothing_can_end_politely_end_within_the_bound() -> None:
    timeouts = Timeouts(grace_s=0.5, kill_s=10.0)
    with stepherd.open_env_manager(
        "python:stepherd.testing.faulty_envs:SignalProofEnv",
        num_workers=6,
        env_kwargs={"where": "close", "blocks": True},
        timeouts=timeouts,
    ) as envs:
        envs.reset()

    report = envs.close()

    assert 2 * timeouts.grace_s <= report.took_s <= timeouts.close_s
    assert report.leaked == ()
    assert all(worker.exit.startswith("killed by SIGKILL") for worker in report.workers)


def test_an_env_that_fails_again_and_again_costs_only_its_own_steps(tmp_path: Path) -> None:
    happened: list[events.Event] = []
    counter = tmp_path / "counter"
    with stepherd.open_env_manager(
        "python:stepherd.testing.faulty_envs:ExitingEnv",
        num_workers=2,
        env_kwargs={"where": "step", "after": 3, "counter_path": str(counter), "length": 100},
        restarts=RestartPolicy(-1, -1),
        on_event=happened.append,
    ) as envs:
        envs.reset()
        for _ in range(12):
            step(envs)

    report = envs.close()

    n_failures = sum(isinstance(event, events.WorkerFailed) for event in happened)
    assert n_failures == sum(worker.n_restarts for worker in report.workers) == 6
    assert (report.sent, report.delivered, report.discarded, report.unbegun) == (24, 18, 6, 0)
    assert report.executed == counter.stat().st_size


def test_a_late_worker_costs_the_others_no_time(tmp_path: Path) -> None:
    with stepherd.open_env_manager(
        "python:stepherd.testing.faulty_envs:HangingEnv",
        num_workers=3,
        env_kwargs={"where": "step", "after": 1, "once_path": str(tmp_path / "once"), "length": 100_000},
        timeouts=Timeouts(step_s=2.0),
    ) as envs:
        envs.reset()
        step(envs)
        envs.send(Actions(np.zeros((3, 1, 0)), np.ones((3, 1, 1), np.int32)))
        begun = time.monotonic()
        n_answers = 0
        while not any(status.n_restarts for status in envs.statuses()):
            batch = envs.recv(1)
            n_answers += len(batch)
            ids = batch.env_ids.tolist()
            envs.send(Actions(np.zeros((len(ids), 1, 0)), np.ones((len(ids), 1, 1), np.int32)), ids)

        assert time.monotonic() - begun >= 2.0
        assert n_answers > 100  # two of them went on all the while
