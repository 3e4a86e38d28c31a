"""What is not built: refused in one sentence with its line, accepted when it is off, never ignored."""

from __future__ import annotations

import pytest
import yaml

from stepherd import _version
from stepherd.core.errors import ConfigError
from stepherd.training.config import config_from_text
from stepherd.training.config.unbuilt import HYPERPARAMETERS_OF_SAC, ROWS, Unbuilt

SENTENCE = f"Stepherd {_version.__version__} has not built "


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_from_text(text, "f.yaml")
    return caught.value.problems


def text_of(row: Unbuilt, value: object) -> str:
    """Return a file that sets the key of `row` to `value` and is right otherwise."""
    path = tuple("Name" if key == "*" else key for key in row.path)
    for key in reversed(path):
        value = {key: value}
    assert isinstance(value, dict)
    settings = value.get("default_settings", value.get("behaviors", {}).get("Name"))
    if settings is not None:
        settings["trainer_type"] = "ppo"
        if "reward_signals" in settings:
            settings["reward_signals"].setdefault("extrinsic", {})
    return yaml.safe_dump(value, sort_keys=False)


def row_name(row: Unbuilt) -> str:
    return ".".join(row.path)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
@pytest.mark.parametrize("value", [{"anything": {"below": 1}}, [1], "text", 12345, True], ids=str)
def test_a_key_of_the_table_is_refused_in_one_sentence(row: Unbuilt, value: object) -> None:
    if value in row.off:
        return
    text = text_of(row, value)

    [said] = problems(text)

    line = next(number for number, line in enumerate(text.splitlines(), 1) if f"{row.path[-1]}:" in line)
    if row.path[-1] == "network_settings":
        line = text.splitlines().index(next(each for each in text.splitlines() if "network_settings" in each)) + 1
    path = ".".join("Name" if key == "*" else key for key in row.path)
    assert said.startswith(f"f.yaml:{line}: {path}: {SENTENCE}{row.what} yet")


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_a_key_of_the_table_that_says_off_is_accepted(row: Unbuilt) -> None:
    for off in row.off:
        config_from_text(text_of(row, off))


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_a_blank_key_of_the_table_is_a_mistake(row: Unbuilt) -> None:
    text = text_of(row, "MARK").replace(" MARK", "")

    [said] = problems(text)

    assert said.endswith(": is empty; remove the line")


@pytest.mark.parametrize(("key", "value"), [("num_areas", "true"), ("base_port", "'5005'"), ("env_args", "{}")])
def test_off_is_recognised_by_type_too(key: str, value: str) -> None:
    assert len(problems(f"env_settings:\n  {key}: {value}\n")) == 1


def test_network_settings_of_the_extrinsic_reward_are_off_when_they_are_defaults() -> None:
    text = "behaviors:\n  A:\n    reward_signals:\n      extrinsic:\n        network_settings: {hidden_units: %s}\n"

    config_from_text(text % 128)
    assert len(problems(text % 64)) == 1


@pytest.mark.parametrize(("trainer", "what"), [("sac", "SAC"), ("poca", "MA-POCA")])
def test_a_trainer_that_is_not_built_is_refused_once_whatever_its_hyperparameters(trainer: str, what: str) -> None:
    text = (
        f"behaviors:\n  A:\n    trainer_type: {trainer}\n    hyperparameters: {{tau: 0.1, buffer_size: 1, what: 3}}\n"
    )

    assert problems(text) == [f"f.yaml:3: behaviors.A.trainer_type: {SENTENCE}{what} yet"]


def test_the_rest_of_a_behavior_with_another_trainer_is_still_checked() -> None:
    assert [
        said.partition(" ")[0] for said in problems("behaviors:\n  A:\n    trainer_type: sac\n    max_steps: 0\n")
    ] == [
        "f.yaml:3:",
        "f.yaml:4:",
    ]


def test_a_plugin_trainer_is_refused_and_a_typo_is_corrected() -> None:
    [plugin] = problems("default_settings: {trainer_type: dreamer}\n")
    [typo] = problems("default_settings: {trainer_type: pp0}\n")

    assert f"{SENTENCE}trainers from plugins, such as 'dreamer', yet" in plugin
    assert "expected ppo, found 'pp0'; did you mean 'ppo'?" in typo


def test_a_trainer_type_of_another_kind_is_a_wrong_value() -> None:
    [said] = problems("default_settings: {trainer_type: [ppo]}\n")

    assert said.endswith("expected ppo, found a list")


def test_another_trainer_in_the_defaults_is_refused_once_there() -> None:
    text = (
        "default_settings:\n  trainer_type: sac\n  hyperparameters: {tau: 0.1}\nbehaviors: {A: {}, B: {max_steps: 2}}\n"
    )

    assert problems(text) == [f"f.yaml:2: default_settings.trainer_type: {SENTENCE}SAC yet"]


@pytest.mark.parametrize("name", HYPERPARAMETERS_OF_SAC)
def test_a_hyperparameter_of_sac_under_ppo_is_called_that(name: str) -> None:
    text = f"behaviors:\n  A:\n    trainer_type: ppo\n    hyperparameters:\n      {name}: 1\n"

    assert problems(text) == [f"f.yaml:5: behaviors.A.hyperparameters.{name}: belongs to SAC, not to PPO"]


def test_a_lone_reward_signal_that_is_not_built_is_one_mistake() -> None:
    assert len(problems("behaviors:\n  A:\n    reward_signals:\n      curiosity: {strength: 0.1}\n")) == 1


def test_reward_signals_without_any_are_a_mistake() -> None:
    [said] = problems("behaviors:\n  A:\n    reward_signals: {}\n")

    assert "must name 'extrinsic'" in said


def test_every_row_reads_as_a_sentence() -> None:
    for row in ROWS:
        assert row.refusal().startswith(f"{SENTENCE}{row.what} yet")
        assert "\n" not in row.refusal()
