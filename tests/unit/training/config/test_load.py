"""Loading: one list of every mistake, each with its line; defaults under behaviors, options over the file."""

from __future__ import annotations

import pathlib

import pytest

from stepherd.core.errors import ConfigError
from stepherd.training.config import Config, Override, TrainerSettings, config_from_text, load_config


def problems(text: str, *overrides: Override) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_from_text(text, "f.yaml", overrides)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


def option(name: str, path: str, value: str | bool = True) -> Override:
    return Override(name, tuple(path.split(".")), value)


def test_a_file_is_read_from_disk_and_its_name_is_in_the_messages(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "cartpole.yaml"
    file.write_text("behaviors:\n  CartPole:\n    max_steps: 0\n")

    with pytest.raises(ConfigError) as caught:
        load_config(file)

    assert caught.value.problems == [
        f"{file}:3: behaviors.CartPole.max_steps: expected a whole number, 1 or more, found 0"
    ]


def test_without_a_file_everything_has_its_default() -> None:
    config = load_config()

    assert config.behaviors == {}
    assert config.unnamed_settings == TrainerSettings()


def test_numbers_are_taken_as_users_write_them() -> None:
    config = config_from_text(
        "behaviors:\n  A:\n    trainer_type: ppo\n    max_steps: 5.0e5\n"
        "    hyperparameters: {learning_rate: 1e-3, buffer_size: 20_480, beta: 0}\n"
    )

    settings = config.behaviors["A"]
    assert settings.max_steps == 500_000
    assert type(settings.max_steps) is int
    assert settings.hyperparameters.learning_rate == 1e-3
    assert settings.hyperparameters.buffer_size == 20_480


def test_every_mistake_is_reported_at_once_in_file_order() -> None:
    said = problems(
        """\
default_settings:
  trainer_type: ppo
  hyperparameters:
    batch_sise: 3
    gamma: 0.99
    learning_rate: 3,0e-4
    beta: '0.005'
    num_epoch: 3.5
    epsilon: .nan
    lambd: 1.5
  network_settings:
    normalize: 'false'
    hidden_units: yes
  max_steps: 5M
behaviors:
  A: {}
  B:
    max_steps: 1e5
    max_steps: 2e5
    reward_signals:
      curiosit: {}
    trainer_type: PPO
  C:
env_settings:
  num_env: 8
  seed: -2
  step_s: [1]
  run_id: 5
  spawn_s: {a: 1}
torch_settings:
  device: gpu 1
checkpoint_settings: [1]
engine_settings: 3
CartPole:
  trainer_type: ppo
debug:
foo: 1
""",
        option("--num-envs", "env_settings.num_envs", "two"),
        option("--kill-s", "env_settings.kill_s", "-1"),
    )

    assert said == [
        "f.yaml:4: default_settings.hyperparameters.batch_sise: unknown key; did you mean 'batch_size'?",
        (
            "f.yaml:5: default_settings.hyperparameters.gamma: unknown key here;"
            " it belongs below 'default_settings.reward_signals.extrinsic'"
        ),
        (
            "f.yaml:6: default_settings.hyperparameters.learning_rate: expected a number above 0, at most 1,"
            " found '3,0e-4' (a number has no comma; write 0.99, 1000)"
        ),
        (
            "f.yaml:7: default_settings.hyperparameters.beta: expected a number, 0 or more, found the text '0.005'"
            " (remove the quotes)"
        ),
        "f.yaml:8: default_settings.hyperparameters.num_epoch: expected a whole number, 1 or more, found 3.5",
        "f.yaml:9: default_settings.hyperparameters.epsilon: expected a number above 0, at most 1, found .nan",
        "f.yaml:10: default_settings.hyperparameters.lambd: expected a number from 0 to 1, found 1.5",
        (
            "f.yaml:12: default_settings.network_settings.normalize: expected true or false, found the text 'false'"
            " (remove the quotes)"
        ),
        (
            "f.yaml:13: default_settings.network_settings.hidden_units: expected a whole number, 1 or more,"
            " found yes, which YAML reads as true"
        ),
        "f.yaml:14: default_settings.max_steps: expected a whole number, 1 or more, found '5M'",
        "f.yaml:19: behaviors.B.max_steps: is written twice, here and on line 18; keep one",
        "f.yaml:20: behaviors.B.reward_signals: must name 'extrinsic', the only reward signal that is built",
        "f.yaml:21: behaviors.B.reward_signals.curiosit: unknown key; did you mean 'curiosity'?",
        "f.yaml:22: behaviors.B.trainer_type: expected ppo, found 'PPO'; did you mean 'ppo'?",
        "f.yaml:23: behaviors.C: is empty; write its settings below it, indented, or {} for the defaults",
        "f.yaml:25: env_settings.num_env: unknown key; did you mean 'num_envs'?",
        "f.yaml:26: env_settings.seed: expected a whole number, -1 or more, found -2",
        "f.yaml:27: env_settings.step_s: expected a number above 0, at most 10000000, found a list",
        "f.yaml:28: env_settings.run_id: unknown key here; it belongs below 'checkpoint_settings'",
        "f.yaml:29: env_settings.spawn_s: expected a number above 0, at most 10000000, found a section",
        "f.yaml:31: torch_settings.device: expected a device such as cpu, cuda or cuda:0, found 'gpu 1'",
        "f.yaml:32: checkpoint_settings: expected a section (settings below it, indented), found a list",
        "f.yaml:33: engine_settings: expected a section (settings below it, indented), found 3",
        "f.yaml:34: CartPole: unknown key; if it is a behavior, write it below 'behaviors:', indented",
        "f.yaml:36: debug: expected true or false, found nothing",
        (
            "f.yaml:37: foo: unknown key; known are default_settings, behaviors, env_settings, engine_settings,"
            " checkpoint_settings, torch_settings, debug"
        ),
        "--num-envs: expected a whole number, 1 or more, found 'two'",
        "--kill-s: expected a number above 0, at most 10000000, found '-1'",
    ]


@pytest.mark.parametrize(
    "section", ["default_settings", "behaviors", "env_settings", "checkpoint_settings", "torch_settings"]
)
def test_an_empty_section_is_a_mistake(section: str) -> None:
    assert problems(f"debug: false\n{section}:\n") == [
        f"f.yaml:2: {section}: is empty; write its settings below it, indented, or {{}} for the defaults"
    ]


def test_a_behavior_that_is_not_indented_is_explained() -> None:
    assert problems("behaviors:\nCartPole:\n  trainer_type: ppo\n") == [
        "f.yaml:1: behaviors: is empty; write its settings below it, indented, or {} for the defaults",
        "f.yaml:2: CartPole: unknown key; if it is a behavior, write it below 'behaviors:', indented",
    ]


@pytest.mark.parametrize("section", ["behaviors", "env_settings", "engine_settings", "environment_parameters"])
def test_a_section_without_settings_is_taken_as_all_defaults(section: str) -> None:
    assert config_from_text(f"{section}: {{}}\n").model_dump(exclude={"env_settings"}) == Config().model_dump(
        exclude={"env_settings"}
    )


# default_settings


DEFAULTS = """\
default_settings:
  trainer_type: ppo
  max_steps: 111
  hyperparameters:
    batch_size: 32
    buffer_size: 64
  network_settings:
    hidden_units: 7
behaviors:
  A:
    max_steps: 222
    hyperparameters:
      buffer_size: 128
  B: {}
"""


def test_default_settings_lie_below_every_behavior_section_by_section() -> None:
    config = config_from_text(DEFAULTS)

    a, b = config.behaviors["A"], config.behaviors["B"]
    assert (a.max_steps, b.max_steps) == (222, 111)
    assert (a.hyperparameters.batch_size, a.hyperparameters.buffer_size) == (32, 128)
    assert a.network_settings.hidden_units == b.network_settings.hidden_units == 7
    assert b == config.default_settings


def test_a_schedule_in_the_defaults_is_copied_in_each_behavior() -> None:
    config = config_from_text(
        "default_settings: {trainer_type: ppo, hyperparameters: {learning_rate_schedule: constant}}\n"
        "behaviors: {A: {hyperparameters: {beta_schedule: linear}}}\n"
    )

    hyperparameters = config.behaviors["A"].hyperparameters
    assert (hyperparameters.beta_schedule, hyperparameters.epsilon_schedule) == ("linear", "constant")


def test_a_mistake_in_the_defaults_is_reported_once_and_there() -> None:
    assert problems(DEFAULTS.replace("hidden_units: 7", "hidden_units: 0")) == [
        "f.yaml:8: default_settings.network_settings.hidden_units: expected a whole number, 1 or more, found 0"
    ]


def test_a_rule_between_a_default_and_a_behaviors_own_value_points_at_the_behavior() -> None:
    assert problems(DEFAULTS.replace("buffer_size: 128", "batch_size: 128")) == [
        (
            "f.yaml:13: behaviors.A.hyperparameters.batch_size: the buffer of one update, 64 steps, is smaller than one"
            " minibatch, batch_size 128"
        )
    ]


def test_a_rule_broken_within_the_defaults_points_there_once() -> None:
    assert problems(
        "default_settings:\n  keep_checkpoints: 0\n  even_checkpoints: true\nbehaviors: {A: {}, B: {}}\n"
    ) == [
        (
            "f.yaml:2: default_settings.keep_checkpoints: keep_checkpoints is 0, so there is no number of checkpoints"
            " to spread evenly; set it to 1 or more, or even_checkpoints to false"
        )
    ]


def test_null_default_settings_are_none_as_ml_agents_writes_them() -> None:
    assert config_from_text("default_settings: null\nbehaviors: {A: {}}\n").default_settings is None


def test_hyperparameters_need_a_trainer_type_as_in_ml_agents() -> None:
    said = problems("behaviors:\n  A:\n    hyperparameters: {batch_size: 0}\n")

    assert said == [
        "f.yaml:3: behaviors.A.hyperparameters.batch_size: expected a whole number, 1 or more, found 0",
        "f.yaml:3: behaviors.A.hyperparameters: needs a trainer_type beside it; write 'trainer_type: ppo'",
    ] or said == [
        "f.yaml:3: behaviors.A.hyperparameters: needs a trainer_type beside it; write 'trainer_type: ppo'",
        "f.yaml:3: behaviors.A.hyperparameters.batch_size: expected a whole number, 1 or more, found 0",
    ]


def test_a_trainer_type_in_the_defaults_serves_the_behaviors() -> None:
    text = "default_settings: {trainer_type: ppo}\nbehaviors: {A: {hyperparameters: {num_epoch: 4}}}\n"

    assert config_from_text(text).behaviors["A"].hyperparameters.num_epoch == 4


# Anchors


def test_anchors_and_merge_keys_work() -> None:
    config = config_from_text(
        "behaviors:\n  A: &a\n    trainer_type: ppo\n    hyperparameters: &h {batch_size: 32, buffer_size: 64}\n"
        "  B: *a\n  C:\n    <<: *a\n    hyperparameters: {<<: *h, batch_size: 16}\n"
    )

    sizes = {name: settings.hyperparameters.batch_size for name, settings in config.behaviors.items()}
    assert sizes == {"A": 32, "B": 32, "C": 16}


def test_a_mistake_in_an_anchor_is_reported_once_where_it_is_written() -> None:
    text = "behaviors:\n  A: &a\n    max_steps: 0\n    summary_frq: 1\n    self_play: {}\n  B: *a\n  C:\n    <<: *a\n"

    assert [said.partition(" ")[0] for said in problems(text)] == ["f.yaml:3:", "f.yaml:4:", "f.yaml:5:"]


def test_a_mistake_in_an_anchor_outside_all_sections_is_still_explained() -> None:
    text = "common: &c\n  batch_sise: 4\nbehaviors:\n  A:\n    trainer_type: ppo\n    hyperparameters: *c\n"

    assert problems(text)[1] == "f.yaml:2: common.batch_sise: unknown key; did you mean 'batch_size'?"


# Texts


@pytest.mark.parametrize("written", ["7", "007", "1e-3", "'true'", "2024-05-01", "0x10"])
def test_a_run_id_that_looks_like_something_else_is_taken_as_written(written: str) -> None:
    config = config_from_text(f"checkpoint_settings: {{run_id: {written}}}\n")

    assert config.checkpoint_settings.run_id == written.strip("'")


def test_a_text_that_yaml_reads_as_a_truth_value_needs_quotes() -> None:
    assert problems("checkpoint_settings:\n  results_dir: on\n") == [
        (
            "f.yaml:2: checkpoint_settings.results_dir: expected a folder, found on, which YAML reads as true;"
            " put it in quotes if you mean the text"
        )
    ]


def test_a_long_value_is_shown_short() -> None:
    [said] = problems(f"env_settings:\n  num_envs: {'9' * 6000}\n")

    assert len(said) < 200


def test_odd_behavior_names_are_quoted_in_paths() -> None:
    assert problems('behaviors:\n  Ball?team=0: {max_steps: 0}\n  "a.b\\nc": {max_steps: 0}\n') == [
        "f.yaml:2: behaviors.Ball?team=0.max_steps: expected a whole number, 1 or more, found 0",
        "f.yaml:3: behaviors.'a.b\\nc'.max_steps: expected a whole number, 1 or more, found 0",
    ]


# The env and the seed


@pytest.mark.parametrize("text", ["debug: true\n", "env_settings: {env_path: null}\n", "env_settings: {num_envs: 2}\n"])
def test_a_missing_env_is_a_mistake_only_when_one_is_needed(tmp_path: pathlib.Path, text: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)

    assert load_config(file).env_settings.env_path is None
    with pytest.raises(
        ConfigError, match=r"f\.yaml: names no env; set env_settings\.env_path, or give --env"
    ) as caught:
        load_config(file, need_env=True)
    assert len(caught.value.problems) == 1


def test_an_env_given_as_an_option_is_enough() -> None:
    config = load_config(None, [option("--env", "env_settings.env_path", "gymnasium:CartPole-v1")], need_env=True)

    assert config.env_settings.env_path == "gymnasium:CartPole-v1"


def test_a_missing_env_is_not_added_to_a_file_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.yaml", need_env=True)

    assert len(caught.value.problems) == 1


def test_a_seed_of_minus_one_is_drawn_from_ml_agents_range() -> None:
    seeds = {config_from_text("env_settings: {seed: -1}\n").env_settings.seed for _ in range(30)}

    assert all(0 <= seed < 10_000 for seed in seeds)
    assert len(seeds) > 1


def test_a_seed_that_is_written_stays() -> None:
    assert config_from_text("env_settings: {seed: 0}\n").env_settings.seed == 0


def test_a_run_cannot_be_initialized_from_itself() -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_text("checkpoint_settings:\n  run_id: a\n  initialize_from: a\n", "f.yaml")

    assert "f.yaml:3" in str(caught.value)
    assert "resume it" in str(caught.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("builds/3DBall.x86_64", "Unity builds are not built yet"),
        ("unity:builds/3DBall", "envs of the kind 'unity' are not built yet"),
        ("python:nomodule", "names no module"),
    ],
)
def test_an_env_that_cannot_be_is_a_mistake_in_the_file_and_not_of_a_worker(written: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_text(f"env_settings:\n  env_path: '{written}'\n", "f.yaml")

    assert "f.yaml:2" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("run_id", ["team/cartpole", "...", "con", "a:b"])
def test_a_run_id_that_cannot_be_a_folder_everywhere_is_a_mistake(run_id: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a run id"):
        config_from_text(f"checkpoint_settings:\n  run_id: '{run_id}'\n", "f.yaml")
