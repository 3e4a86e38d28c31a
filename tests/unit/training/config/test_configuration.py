"""Behaviors of an env and what the configuration says about them."""

from __future__ import annotations

import pytest

from stepherd.core.errors import ConfigError
from stepherd.training.config import Config, TrainerSettings, config_from_text, load_config


def test_named_behaviors_have_their_own_settings_in_the_envs_order() -> None:
    config = config_from_text("behaviors: {A: {max_steps: 1}, B: {max_steps: 2}}\n")

    assigned = config.behavior_settings(["B", "A"])

    assert {name: settings.max_steps for name, settings in assigned.settings.items()} == {"B": 2, "A": 1}
    assert list(assigned.settings) == ["B", "A"]
    assert assigned.unused == ()


def test_a_behavior_that_is_not_named_has_the_default_settings() -> None:
    config = config_from_text("default_settings: {max_steps: 9}\nbehaviors: {A: {max_steps: 1}}\n")

    assert config.behavior_settings(["A", "New"]).settings["New"].max_steps == 9


def test_a_behavior_the_env_does_not_have_is_only_unused() -> None:
    config = config_from_text("behaviors: {A: {}, Other: {}, More: {}}\n")

    assert config.behavior_settings(["A"]).unused == ("Other", "More")


def test_without_a_file_every_behavior_has_ppos_defaults() -> None:
    assert load_config().behavior_settings(["Any"]).settings == {"Any": TrainerSettings()}
    assert Config().behavior_settings(["Any"]).settings == {"Any": TrainerSettings()}


def test_a_behavior_without_settings_is_a_mistake_that_lists_both_sides_names() -> None:
    config = config_from_text("debug: false\nbehaviors: {cartpole: {}, Ball: {}}\n", "f.yaml")

    with pytest.raises(ConfigError) as caught:
        config.behavior_settings(["CartPole", "Ball", "Zebra"])

    names = "(the env has 'CartPole', 'Ball', 'Zebra'; the configuration has 'cartpole', 'Ball')"
    assert caught.value.problems == [
        (
            f"f.yaml:2: behaviors: the env's behavior 'CartPole' has no settings {names};"
            " rename 'cartpole' to 'CartPole', or add default_settings"
        ),
        (
            f"f.yaml:2: behaviors: the env's behavior 'Zebra' has no settings {names};"
            " name 'Zebra' below behaviors, or add default_settings"
        ),
    ]


@pytest.mark.parametrize("text", ["debug: true\n", "behaviors: {}\n"])
def test_a_file_without_behaviors_serves_none_as_in_ml_agents(text: str) -> None:
    with pytest.raises(ConfigError, match="the configuration has none"):
        config_from_text(text).behavior_settings(["A"])


def test_a_configuration_built_in_code_must_name_its_behaviors_once_it_names_any() -> None:
    config = Config(behaviors={"A": TrainerSettings()})

    assert config.behavior_settings(["A"]).settings == {"A": TrainerSettings()}
    with pytest.raises(ConfigError, match=r"^configuration: behaviors: "):
        config.behavior_settings(["B"])


def test_a_drawn_seed_stays() -> None:
    seeded = Config().with_drawn_seed()

    assert seeded.env_settings.seed >= 0
    assert seeded.with_drawn_seed() is seeded


def test_a_file_that_loads_without_doubt_gives_no_warning() -> None:
    assert config_from_text("behaviors: {A: {}}\n").warnings == ()
