"""What ML-Agents has given up: still taken, with a warning."""

from __future__ import annotations

import pytest

from stepherd.core.errors import ConfigError
from stepherd.training.config import Override, config_from_text, load_config


def test_load_model_is_resume() -> None:
    config = config_from_text("checkpoint_settings:\n  load_model: true\n", "f.yaml")

    assert config.checkpoint_settings.resume
    assert config.warnings == ("f.yaml:2: checkpoint_settings.load_model: is the old name of resume",)


def test_the_option_load_is_resume() -> None:
    config = load_config(None, [Override("--load", ("checkpoint_settings", "load_model"), True)])

    assert config.checkpoint_settings.resume
    assert config.warnings == ("--load: is the old name of resume",)


def test_train_model_has_no_effect() -> None:
    config = config_from_text("checkpoint_settings: {train_model: true}\n", "f.yaml")

    assert "has no effect" in config.warnings[0]


@pytest.mark.parametrize("name", ["load_model", "train_model"])
def test_false_is_taken_without_a_word(name: str) -> None:
    assert config_from_text(f"checkpoint_settings: {{{name}: false}}\n").warnings == ()


@pytest.mark.parametrize("name", ["load_model", "train_model"])
def test_another_kind_of_value_is_a_mistake(name: str) -> None:
    with pytest.raises(ConfigError, match="expected true or false, found 3"):
        config_from_text(f"checkpoint_settings: {{{name}: 3}}\n")


def test_a_framework_has_no_effect_on_behaviors_and_defaults() -> None:
    config = config_from_text("default_settings: {framework: pytorch}\nbehaviors: {A: {framework: tensorflow}}\n")

    assert [warning.split(": ")[1] for warning in config.warnings] == [
        "default_settings.framework",
        "behaviors.A.framework",
    ]
