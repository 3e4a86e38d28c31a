"""Trainer files as ML-Agents' users have them: what loads, and what the messages say about the rest."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd._version import __version__
from stepherd.core.errors import ConfigError
from stepherd.training.config import config_from_text, effective_yaml

NOT_BUILT = f"Stepherd {__version__} has not built"

BALL = """\
behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters:
      batch_size: 64
      buffer_size: 12000
      learning_rate: 0.0003
      beta: 0.001
      epsilon: 0.2
      lambd: 0.99
      num_epoch: 3
      learning_rate_schedule: linear
    network_settings:
      normalize: true
      hidden_units: 128
      num_layers: 2
      vis_encode_type: simple
    reward_signals:
      extrinsic:
        gamma: 0.99
        strength: 1.0
    keep_checkpoints: 5
    max_steps: 500000
    time_horizon: 1000
    summary_freq: 12000
"""

WALKER = """\
default_settings:
  trainer_type: ppo
  hyperparameters: {batch_size: 2048, buffer_size: 20480, learning_rate: 3e-4, beta: 5.0e-3, num_epoch: 3}
  network_settings: {normalize: true, hidden_units: 256, num_layers: 3}
  reward_signals:
    extrinsic: {gamma: 0.995, strength: 1.0}
  max_steps: 3.0e7
  time_horizon: 1000
  summary_freq: 30000
behaviors:
  Walker: {}
  WalkerStatic:
    max_steps: 1e7
env_settings:
  num_envs: 4
checkpoint_settings:
  run_id: walker-01
"""

PUSH_BLOCK = """\
behaviors:
  PushBlock:
    trainer_type: sac
    hyperparameters:
      batch_size: 128
      buffer_size: 50000
      tau: 0.005
      init_entcoef: 0.05
    network_settings:
      hidden_units: 256
      memory:
        sequence_length: 64
    reward_signals:
      extrinsic:
        gamma: 0.99
      curiosity:
        strength: 0.02
    behavioral_cloning:
      demo_path: Demos/Expert.demo
    self_play:
      window: 10
    threaded: true
environment_parameters:
  block_size:
    curriculum: []
engine_settings:
  time_scale: 100
  no_graphics: true
env_settings:
  env_args: [--level, "3"]
  base_port: 5010
"""

RELEASE_1 = """\
3DBall:
  trainer: ppo
  batch_size: 64
  use_recurrent: false
  max_steps: 5.0e5
"""

WRITTEN_BY_ML_AGENTS = """\
default_settings: null
behaviors:
  3DBall:
    trainer_type: ppo
    hyperparameters:
      batch_size: 64
      buffer_size: 12000
      learning_rate: 0.0003
      beta: 0.001
      epsilon: 0.2
      lambd: 0.99
      num_epoch: 3
      shared_critic: false
      learning_rate_schedule: linear
      beta_schedule: linear
      epsilon_schedule: linear
    checkpoint_interval: 500000
    network_settings:
      normalize: true
      hidden_units: 128
      num_layers: 2
      vis_encode_type: simple
      memory: null
      goal_conditioning_type: hyper
      deterministic: false
    reward_signals:
      extrinsic:
        gamma: 0.99
        strength: 1.0
        network_settings:
          normalize: false
          hidden_units: 128
          num_layers: 2
          vis_encode_type: simple
          memory: null
          goal_conditioning_type: hyper
          deterministic: false
    init_path: null
    keep_checkpoints: 5
    even_checkpoints: false
    max_steps: 500000
    time_horizon: 1000
    summary_freq: 12000
    threaded: false
    self_play: null
    behavioral_cloning: null
env_settings:
  env_path: null
  env_args: null
  base_port: 5005
  num_envs: 1
  num_areas: 1
  timeout_wait: 60
  seed: -1
  max_lifetime_restarts: 10
  restarts_rate_limit_n: 1
  restarts_rate_limit_period_s: 60
engine_settings:
  width: 84
  height: 84
  quality_level: 5
  time_scale: 20
  target_frame_rate: -1
  capture_frame_rate: 60
  no_graphics: false
  no_graphics_monitor: false
environment_parameters: null
checkpoint_settings:
  run_id: ppo
  initialize_from: null
  load_model: false
  resume: false
  force: false
  train_model: false
  inference: false
  results_dir: results
torch_settings:
  device: null
debug: false
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_from_text(text, "f.yaml")
    return caught.value.problems


def test_a_ppo_example_loads_as_it_is() -> None:
    ball = config_from_text(BALL).behaviors["3DBall"]

    assert ball.hyperparameters.buffer_size == 12_000
    assert ball.hyperparameters.beta_schedule == "linear"
    assert ball.network_settings.normalize


def test_default_settings_and_loose_numbers_load_as_they_are() -> None:
    config = config_from_text(WALKER)

    assigned = config.behavior_settings(["Walker", "WalkerDynamic"])
    assert {name: each.max_steps for name, each in assigned.settings.items()} == {
        "Walker": 30_000_000,
        "WalkerDynamic": 30_000_000,
    }
    assert assigned.unused == ("WalkerStatic",)
    assert config.behaviors["WalkerStatic"].max_steps == 10_000_000


def test_the_complete_configuration_that_ml_agents_writes_loads_without_a_word() -> None:
    config = config_from_text(WRITTEN_BY_ML_AGENTS)

    assert config.warnings == ()
    assert config.behaviors["3DBall"] == config_from_text(BALL).behaviors["3DBall"]


def test_a_file_for_what_is_not_built_is_refused_line_by_line() -> None:
    behavior = "behaviors.PushBlock"

    assert problems(PUSH_BLOCK) == [
        f"f.yaml:3: {behavior}.trainer_type: {NOT_BUILT} SAC yet",
        f"f.yaml:11: {behavior}.network_settings.memory: {NOT_BUILT} recurrent memory yet",
        f"f.yaml:16: {behavior}.reward_signals.curiosity: {NOT_BUILT} the curiosity reward signal yet",
        f"f.yaml:18: {behavior}.behavioral_cloning: {NOT_BUILT} behavioral cloning yet",
        f"f.yaml:20: {behavior}.self_play: {NOT_BUILT} self-play yet",
        f"f.yaml:22: {behavior}.threaded: {NOT_BUILT} trainers in threads of their own yet; leave it at false",
        f"f.yaml:23: environment_parameters: {NOT_BUILT} environment parameters, samplers and curricula yet",
        f"f.yaml:27: engine_settings.time_scale: {NOT_BUILT} Unity's engine settings yet; leave it at 20",
        f"f.yaml:28: engine_settings.no_graphics: {NOT_BUILT} Unity's engine settings yet; leave it at false",
        f"f.yaml:30: env_settings.env_args: {NOT_BUILT} arguments for simulators yet",
        f"f.yaml:31: env_settings.base_port: {NOT_BUILT} a choice of Unity's ports yet; leave it at 5005",
    ]


def test_a_file_of_the_first_release_is_told_where_behaviors_go() -> None:
    assert problems(RELEASE_1) == [
        "f.yaml:1: 3DBall: unknown key; if it is a behavior, write it below 'behaviors:', indented"
    ]


def test_a_flat_behavior_is_told_where_each_setting_goes() -> None:
    said = problems("behaviors:\n" + "\n".join(f"  {line}" for line in RELEASE_1.splitlines()))

    assert [line.partition(" network_settings")[0] for line in said] == [
        "f.yaml:3: behaviors.3DBall.trainer: unknown key; did you mean 'trainer_type'?",
        "f.yaml:4: behaviors.3DBall.batch_size: unknown key here; it belongs below 'behaviors.3DBall.hyperparameters'",
        "f.yaml:5: behaviors.3DBall.use_recurrent: unknown key; known are trainer_type, hyperparameters,",
    ]


JUNK = [
    "",
    "null",
    "3",
    "-1",
    "1e999",
    ".nan",
    "yes",
    "'x'",
    "[]",
    "[1, {a: 2}]",
    "{}",
    "{a: 1}",
    "&a",
    "*a",
    "!!int x",
    "!t {}",
    "|",
    "{",
    "'",
    "\t",
    "ppo",
    "sac",
]


@pytest.mark.slow
@settings(deadline=None)
@given(
    base=st.sampled_from([WALKER, PUSH_BLOCK, WRITTEN_BY_ML_AGENTS]),
    edits=st.lists(
        st.tuples(
            st.integers(0, 200), st.sampled_from(["value", "drop", "twice", "indent", "dedent"]), st.sampled_from(JUNK)
        ),
        max_size=4,
    ),
)
def test_whatever_happens_to_a_file_it_loads_or_says_what_is_wrong(
    base: str, edits: list[tuple[int, str, str]]
) -> None:
    lines = base.splitlines()
    for number, how, junk in edits:
        at = number % len(lines)
        line = lines[at]
        key = line.partition(":")[0]
        lines[at : at + 1] = {
            "value": [f"{key}: {junk}"],
            "drop": [],
            "twice": [line, line],
            "indent": [f"  {line}"],
            "dedent": [line[2:]],
        }[how]
        lines = lines or ["a: 1"]

    said: list[str] = []
    try:
        config = config_from_text("\n".join(lines), "f.yaml")
        again = config_from_text(effective_yaml(config))
    except ConfigError as error:
        said = error.problems

    assert all(problem.startswith("f.yaml:") and "\n" not in problem for problem in said)
    assert said or again.behaviors == config.behaviors
