"""Agents reach a score, trained by the command a person types; more envs are in `bench/learning.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runs.counted_envs import COUNT_DIR, counted_steps

pytestmark = [pytest.mark.slow, pytest.mark.learning, pytest.mark.timeout(280)]

ROOT = Path(__file__).parent.parent.parent


def learn(folder: Path, config: str, *options: str) -> str:
    """Train in `folder`; return what was printed."""
    (folder / "counts").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "stepherd", "learn", config, "--results-dir", str(folder), *options],
        cwd=ROOT,
        env=os.environ | {COUNT_DIR: str(folder / "counts"), "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def mean_reward(output: str) -> float:
    """The mean return of the last 100 episodes, as the end of a run prints it."""
    found = re.search(r"mean reward of the last 100 episodes (-?\d+\.\d+)", output)
    assert found, output
    return float(found[1])


def test_eight_workers_learn_cartpole_and_every_step_is_accounted_for(tmp_path: Path) -> None:
    env = "python:runs.counted_envs:make_cartpole"

    output = learn(tmp_path, "examples/cartpole.yaml", "--env", env, "--num-envs", "8", "--seed", "1")

    assert mean_reward(output) >= 475.0
    assert "100000 steps delivered, 0 discarded" in output
    assert counted_steps(tmp_path / "counts") == 100_000


def test_an_env_with_a_dict_observation_is_learned(tmp_path: Path) -> None:
    output = learn(tmp_path, "examples/courier.yaml", "--num-envs", "2", "--envs-per-worker", "2", "--seed", "1")

    assert mean_reward(output) >= 0.7


def test_continuous_actions_are_learned_in_the_units_of_the_env(tmp_path: Path) -> None:
    config = tmp_path / "target.yaml"
    config.write_text("""
default_settings:
  trainer_type: ppo
  hyperparameters: {batch_size: 256, buffer_size: 1024, learning_rate: 3.0e-3, num_epoch: 8, beta: 0.0, lambd: 0.9}
  network_settings: {hidden_units: 32}
  reward_signals: {extrinsic: {gamma: 0.5, strength: 1.0}}
  max_steps: 60000
env_settings: {env_path: "python:learning.target_env:TargetEnv", num_envs: 2, envs_per_worker: 8}
checkpoint_settings: {run_id: target}
""")

    output = learn(tmp_path, str(config), "--seed", "1")

    assert mean_reward(output) >= -3.5  # ten throws, each within a sixth of the range; a random policy gets -10
