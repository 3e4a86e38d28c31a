"""The settings: ML-Agents' defaults, its rules between settings, and ranges."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from stepherd.core.deadline import Timeouts
from stepherd.training.config import (
    CheckpointSettings,
    Config,
    EnvSettings,
    ExtrinsicReward,
    NetworkSettings,
    PPOHyperparameters,
    TorchSettings,
    TrainerSettings,
)
from stepherd.training.config.models import Settings


def test_the_defaults_of_a_behavior_are_those_of_ml_agents() -> None:
    assert TrainerSettings().model_dump() == {
        "trainer_type": "ppo",
        "hyperparameters": {
            "batch_size": 1024,
            "buffer_size": 10240,
            "learning_rate": 3e-4,
            "learning_rate_schedule": "linear",
            "beta": 5e-3,
            "beta_schedule": "linear",
            "epsilon": 0.2,
            "epsilon_schedule": "linear",
            "lambd": 0.95,
            "num_epoch": 3,
            "clip_values": False,  # ours
        },
        "network_settings": {"normalize": False, "hidden_units": 128, "num_layers": 2, "deterministic": False},
        "reward_signals": {"extrinsic": {"gamma": 0.99, "strength": 1.0}},
        "init_path": None,
        "checkpoint_interval": 500_000,
        "keep_checkpoints": 5,
        "even_checkpoints": False,
        "max_steps": 500_000,
        "time_horizon": 64,
        "summary_freq": 50_000,
    }


def test_the_defaults_of_a_run_are_those_of_ml_agents_and_ours() -> None:
    assert Config().model_dump(exclude={"behaviors"}) == {
        "default_settings": None,
        "env_settings": {
            "env_path": None,
            "num_envs": 1,
            "envs_per_worker": 1,
            "seed": -1,
            "timeout_wait": 60.0,
            "spawn_s": 60.0,
            "reset_s": 60.0,
            "step_s": 60.0,
            "grace_s": 5.0,
            "kill_s": 5.0,
            "max_lifetime_restarts": 10,
            "restarts_rate_limit_n": 1,
            "restarts_rate_limit_period_s": 60.0,
        },
        "engine_settings": {},
        "checkpoint_settings": {
            "run_id": "ppo",
            "initialize_from": None,
            "resume": False,
            "force": False,
            "inference": False,
            "results_dir": "results",
        },
        "torch_settings": {"device": None},
        "debug": False,
    }


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        TrainerSettings().max_steps = 3


def test_schedules_follow_the_learning_rate_unless_written() -> None:
    copied = PPOHyperparameters(learning_rate_schedule="constant")
    written = PPOHyperparameters(learning_rate_schedule="constant", beta_schedule="linear")

    assert (copied.beta_schedule, copied.epsilon_schedule) == ("constant", "constant")
    assert (written.beta_schedule, written.epsilon_schedule) == ("linear", "constant")


def test_even_checkpoints_spread_over_the_whole_training() -> None:
    settings = TrainerSettings(even_checkpoints=True, max_steps=1003, keep_checkpoints=10, checkpoint_interval=7)

    assert settings.checkpoint_interval == 100


def test_even_checkpoints_are_a_step_apart_when_there_are_more_than_steps() -> None:
    assert TrainerSettings(even_checkpoints=True, max_steps=3, keep_checkpoints=5).checkpoint_interval == 1


@pytest.mark.parametrize("kept", [0, -1])
def test_even_checkpoints_need_a_number_of_them(kept: int) -> None:
    with pytest.raises(ValidationError, match="no number of checkpoints to spread evenly"):
        TrainerSettings(even_checkpoints=True, keep_checkpoints=kept)


@pytest.mark.parametrize("kept", [0, -1])
def test_no_or_a_negative_number_of_checkpoints_keeps_all(kept: int) -> None:
    assert TrainerSettings(keep_checkpoints=kept).checkpoint_interval == 500_000


def test_a_buffer_smaller_than_a_minibatch_is_refused() -> None:
    with pytest.raises(
        ValidationError, match=r"512 steps, is smaller than one minibatch, batch_size 1024 \(the default\)"
    ):
        PPOHyperparameters(buffer_size=512)


def test_a_buffer_of_one_minibatch_is_enough() -> None:
    assert PPOHyperparameters(buffer_size=64, batch_size=64).buffer_size == 64


@pytest.mark.parametrize(
    "written", [set(each) for n in range(4) for each in itertools.combinations(("spawn_s", "reset_s", "step_s"), n)]
)
def test_time_limits_that_are_not_written_are_timeout_wait(written: set[str]) -> None:
    settings = EnvSettings(timeout_wait=7, **dict.fromkeys(written, 1.0))  # type: ignore[arg-type]  # of one type here

    for name in ("spawn_s", "reset_s", "step_s"):
        assert getattr(settings, name) == (1.0 if name in written else 7.0)


def test_time_limits_come_as_the_managers_timeouts() -> None:
    settings = EnvSettings(spawn_s=1, reset_s=2, step_s=3, grace_s=4, kill_s=5)

    assert settings.timeouts == Timeouts(spawn_s=1, reset_s=2, step_s=3, grace_s=4, kill_s=5)
    assert EnvSettings().timeouts == Timeouts()


def test_envs_are_counted_over_all_workers() -> None:
    assert EnvSettings(num_envs=3, envs_per_worker=4).total_envs == 12


GOOD: list[tuple[type[Settings], str, Any]] = [
    (PPOHyperparameters, "learning_rate", 1),
    (PPOHyperparameters, "beta", 0),
    (PPOHyperparameters, "epsilon", 1),
    (PPOHyperparameters, "lambd", 0),
    (PPOHyperparameters, "lambd", 1),
    (PPOHyperparameters, "buffer_size", 5.0e5),
    (ExtrinsicReward, "gamma", 0),
    (ExtrinsicReward, "gamma", 1),
    (ExtrinsicReward, "strength", -2),
    (NetworkSettings, "num_layers", 1),
    (TrainerSettings, "keep_checkpoints", -5),
    (EnvSettings, "seed", -1),
    (EnvSettings, "seed", 2**31 - 1),
    (EnvSettings, "max_lifetime_restarts", -1),
    (EnvSettings, "max_lifetime_restarts", 0),
    (EnvSettings, "restarts_rate_limit_n", -1),
    (EnvSettings, "step_s", 0.01),
    (CheckpointSettings, "run_id", "cart pole-2.1"),
    (CheckpointSettings, "run_id", "...x"),
    (CheckpointSettings, "run_id", "a..b"),
    (CheckpointSettings, "results_dir", "/tmp/runs"),
    (TorchSettings, "device", "cuda:0"),
    (TorchSettings, "device", "cpu"),
    (TorchSettings, "device", None),
]


@pytest.mark.parametrize(("model", "name", "value"), GOOD)
def test_a_value_at_the_edge_of_its_range_is_taken(model: type[Settings], name: str, value: Any) -> None:
    assert getattr(model(**{name: value}), name) == value


BAD: list[tuple[type[Settings], str, Any]] = [
    (PPOHyperparameters, "batch_size", 0),
    (PPOHyperparameters, "batch_size", 1024.9),
    (PPOHyperparameters, "batch_size", True),
    (PPOHyperparameters, "batch_size", "64"),
    (PPOHyperparameters, "batch_size", None),
    (PPOHyperparameters, "buffer_size", 1e30),
    (PPOHyperparameters, "buffer_size", float("inf")),
    (PPOHyperparameters, "learning_rate", 0),
    (PPOHyperparameters, "learning_rate", 3),
    (PPOHyperparameters, "learning_rate", float("nan")),
    (PPOHyperparameters, "learning_rate_schedule", "cosine"),
    (PPOHyperparameters, "beta", -1e-9),
    (PPOHyperparameters, "beta", float("inf")),
    (PPOHyperparameters, "epsilon", 0),
    (PPOHyperparameters, "lambd", 1.01),
    (PPOHyperparameters, "num_epoch", 0),
    (ExtrinsicReward, "gamma", -0.1),
    (ExtrinsicReward, "gamma", 1.1),
    (ExtrinsicReward, "strength", float("nan")),
    (ExtrinsicReward, "strength", True),
    (ExtrinsicReward, "strength", 10**400),
    (NetworkSettings, "normalize", "false"),
    (NetworkSettings, "normalize", 0),
    (NetworkSettings, "hidden_units", 0),
    (NetworkSettings, "num_layers", 0),
    (TrainerSettings, "max_steps", 0),
    (TrainerSettings, "time_horizon", 0),
    (TrainerSettings, "summary_freq", 0),
    (TrainerSettings, "checkpoint_interval", 0),
    (TrainerSettings, "init_path", ""),
    (TrainerSettings, "trainer_type", "sac"),
    (EnvSettings, "num_envs", 0),
    (EnvSettings, "envs_per_worker", 0),
    (EnvSettings, "seed", -2),
    (EnvSettings, "seed", 2**31),
    (EnvSettings, "timeout_wait", 0),
    (EnvSettings, "timeout_wait", float("inf")),
    (EnvSettings, "timeout_wait", 1e8),
    (EnvSettings, "kill_s", None),
    (EnvSettings, "max_lifetime_restarts", -2),
    (EnvSettings, "restarts_rate_limit_period_s", 0),
    (CheckpointSettings, "run_id", ""),
    (CheckpointSettings, "run_id", "."),
    (CheckpointSettings, "run_id", ".."),
    (CheckpointSettings, "run_id", "../up"),
    (CheckpointSettings, "run_id", "a/../b"),
    (CheckpointSettings, "run_id", "/absolute"),
    (CheckpointSettings, "run_id", "a//b"),
    (CheckpointSettings, "run_id", "a/"),
    (CheckpointSettings, "run_id", "a\\b"),
    (CheckpointSettings, "run_id", "a\nb"),
    (CheckpointSettings, "run_id", "a\n"),
    (CheckpointSettings, "run_id", "--resume"),
    (CheckpointSettings, "run_id", 3),
    (CheckpointSettings, "results_dir", ""),
    (TorchSettings, "device", "gpu 1"),
    (TorchSettings, "device", "cuda:"),
    (Config, "debug", 1),
]


@pytest.mark.parametrize(("model", "name", "value"), BAD)
def test_a_value_outside_its_range_is_refused(model: type[Settings], name: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        model(**{name: value})

    [error] = caught.value.errors()
    assert error["loc"] == (name,)
    assert error["msg"].startswith("expected ")


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError):
        TrainerSettings(max_step=3)  # type: ignore[call-arg]  # what is tested
