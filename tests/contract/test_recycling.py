"""Healthy workers that are replaced on purpose: between episodes, without losing a step, without costing budget."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepherd
from contract.env_manager_contract import check_account, choose
from stepherd.core import events
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.restarts import NEVER
from stepherd.testing.faulty_envs import steps_counted

if sys.platform == "win32":
    pytest.skip("there are no workers on Windows yet", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

LENGTH = 4
ENV = "python:stepherd.testing.faulty_envs:CountingEnv"


def play(folder: Path, n_steps: int, **options: Any) -> tuple[stepherd.CloseReport, list[events.Event], int, int]:
    """Step every env up to `n_steps` times; return the report, the events, the ended episodes and the lost rows."""
    seen: list[events.Event] = []
    n_ended = n_lost = 0
    with stepherd.open_env_manager(
        ENV,
        env_kwargs={"length": LENGTH, "counter_path": str(folder / "steps")},
        restarts=NEVER,
        on_event=seen.append,
        **options,
    ) as envs:
        batch = envs.reset(seed=1)
        for _ in range(n_steps):
            choose(envs, np.zeros(len(batch), np.int64), batch.env_ids.tolist())
            batch = envs.recv()
            (steps,) = batch.behaviors.values()
            n_ended += int(steps.ended.sum())
            n_lost += int(batch.lost.sum())
            assert not (steps.ended[:, 0] & batch.lost).any()
    return envs.close(), seen, n_ended, n_lost


def test_a_worker_is_recycled_after_so_many_episodes_and_no_step_is_lost(tmp_path: Path) -> None:
    report, seen, n_ended, n_lost = play(tmp_path, 60, num_workers=2, recycle=RecyclePolicy(after_episodes=3))

    recycled = [event for event in seen if isinstance(event, events.WorkerRecycled)]
    assert recycled
    assert recycled[0].why == "after 3 episodes"
    assert sum(worker.n_recycled for worker in report.workers) == len(recycled)
    assert not any(isinstance(event, events.WorkerFailed) for event in seen)
    assert report.discarded == 0
    assert n_lost >= len(recycled) - 2
    assert report.delivered // LENGTH - 2 <= n_ended <= report.delivered // LENGTH  # no episode was cut off
    check_account(report, steps_counted(tmp_path / "steps"))


def test_a_worker_with_several_envs_lets_each_finish_its_episode_first(tmp_path: Path) -> None:
    report, seen, n_ended, _ = play(
        tmp_path, 60, num_workers=1, envs_per_worker=3, recycle=RecyclePolicy(after_episodes=4)
    )

    assert any(isinstance(event, events.WorkerRecycled) for event in seen)
    assert report.discarded == 0
    assert n_ended >= report.delivered // LENGTH - 3
    check_account(report, steps_counted(tmp_path / "steps"))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_worker_that_has_grown_too_large_is_recycled(tmp_path: Path) -> None:
    _, seen, _, _ = play(tmp_path, 3 * LENGTH, num_workers=1, recycle=RecyclePolicy(above_rss_mib=1.0))

    recycled = [event for event in seen if isinstance(event, events.WorkerRecycled)]
    assert recycled
    assert "MiB" in recycled[0].why


def test_a_reset_takes_the_occasion_to_recycle_a_worker_that_was_waiting_for_episodes_to_end(tmp_path: Path) -> None:
    seen: list[events.Event] = []
    with stepherd.open_env_manager(
        ENV,
        num_workers=1,
        envs_per_worker=2,
        env_kwargs={"length": LENGTH, "counter_path": str(tmp_path / "steps")},
        recycle=RecyclePolicy(after_episodes=1),
        on_event=seen.append,
    ) as envs:
        envs.reset()
        for _ in range(LENGTH):  # only env 0 acts, and ends an episode
            choose(envs, [0], [0])
            envs.recv(1)
        choose(envs, [0, 0], [0, 1])  # env 0 is held, env 1 is in the middle of its episode
        envs.recv(1)

        batch = envs.reset()

    assert len(batch) == 2
    assert any(isinstance(event, events.WorkerRecycled) for event in seen)
    check_account(envs.close(), steps_counted(tmp_path / "steps"))


@pytest.mark.parametrize("wrong", [{"after_episodes": 0}, {"above_rss_mib": 0.0}, {"above_rss_mib": float("inf")}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RecyclePolicy(**wrong)
