"""Options over the file: typed beats written, and mistakes name the option."""

from __future__ import annotations

import pytest

from stepherd.core.errors import ConfigError
from stepherd.training.config import Config, Override, config_from_text, load_config

NUM_ENVS = ("env_settings", "num_envs")
DETERMINISTIC = Override("--deterministic", ("behaviors", "*", "network_settings", "deterministic"), True)


def problems(text: str, *overrides: Override) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_from_text(text, "f.yaml", overrides)
    return caught.value.problems


def loaded(text: str, *overrides: Override) -> Config:
    return config_from_text(text, "f.yaml", overrides)


def test_a_typed_option_beats_the_file_and_leaves_the_rest() -> None:
    config = loaded("env_settings: {num_envs: 2, seed: 5}\n", Override("--num-envs", NUM_ENVS, "8"))

    assert (config.env_settings.num_envs, config.env_settings.seed) == (8, 5)


def test_a_typed_option_beats_even_a_mistake_in_the_file() -> None:
    assert loaded("env_settings: {num_envs: x}\n", Override("--num-envs", NUM_ENVS, "8")).env_settings.num_envs == 8


def test_the_last_of_two_typed_values_counts() -> None:
    overrides = [Override("--num-envs", NUM_ENVS, value) for value in ("2", "3")]

    assert load_config(None, overrides).env_settings.num_envs == 3


def test_a_mistake_in_an_option_names_the_option() -> None:
    assert problems("debug: false\n", Override("--num-envs", NUM_ENVS, "0")) == [
        "--num-envs: expected a whole number, 1 or more, found '0'"
    ]


def test_options_are_checked_even_when_the_file_cannot_be_read() -> None:
    said = problems("", Override("--num-envs", NUM_ENVS, "0"))

    assert [line.partition(" ")[0] for line in said] == ["f.yaml:1:", "--num-envs:"]


@pytest.mark.parametrize(("written", "shown"), [("", "is empty"), ("3", "found 3"), ("[1]", "found a list")])
def test_a_section_of_the_file_that_is_none_stays_a_mistake_under_an_option(written: str, shown: str) -> None:
    said = problems(f"env_settings: {written}\n", Override("--num-envs", NUM_ENVS, "x"))

    assert len(said) == 2
    assert said[0].startswith("f.yaml:1: env_settings: ")
    assert shown in said[0]
    assert said[1].startswith("--num-envs: ")


@pytest.mark.parametrize("typed", ["7", "true", "1e5", "null", "~", "on"])
def test_a_text_option_is_taken_as_typed(typed: str) -> None:
    config = load_config(None, [Override("--run-id", ("checkpoint_settings", "run_id"), typed)])

    assert config.checkpoint_settings.run_id == typed


@pytest.mark.parametrize(("value", "expected"), [(3, 3), (3.0, 3), ("3", 3)])
def test_code_may_override_with_numbers(value: str | float, expected: int) -> None:
    assert load_config(None, [Override("num_envs=", NUM_ENVS, value)]).env_settings.num_envs == expected


def test_an_empty_text_option_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"^--run-id: expected a folder name .*, found nothing$"):
        load_config(None, [Override("--run-id", ("checkpoint_settings", "run_id"), "")])


def test_deterministic_reaches_every_behavior_and_the_default_settings() -> None:
    config = loaded("default_settings: {max_steps: 9}\nbehaviors: {A: {}, B: {max_steps: 3}}\n", DETERMINISTIC)

    assert config.default_settings is not None
    for settings in (config.default_settings, *config.behaviors.values()):
        assert settings.network_settings.deterministic


def test_deterministic_does_not_bring_default_settings_into_a_file_that_has_none() -> None:
    config = loaded("behaviors: {A: {}}\n", DETERMINISTIC)

    assert config.default_settings is None
    assert config.behaviors["A"].network_settings.deterministic


def test_deterministic_without_a_file_reaches_every_behavior_of_the_env() -> None:
    config = load_config(None, [DETERMINISTIC])

    assert config.behavior_settings(["Any"]).settings["Any"].network_settings.deterministic


def test_an_option_for_a_behavior_that_is_no_section_leaves_its_mistake() -> None:
    assert len(problems("behaviors:\n  A:\n  B: {}\n", DETERMINISTIC)) == 1


def test_an_option_does_not_change_the_section_that_an_anchor_shares() -> None:
    text = "behaviors:\n  A: {network_settings: &n {deterministic: false}}\n  B: {network_settings: *n}\n"
    path = ("behaviors", "A", "network_settings", "deterministic")

    config = loaded(text, Override("--only-a", path, True))

    assert config.behaviors["A"].network_settings.deterministic
    assert not config.behaviors["B"].network_settings.deterministic


@pytest.mark.parametrize(
    ("option", "path", "value"),
    [
        ("--env-args", ("env_settings", "env_args"), ("--level", "3")),
        ("--base-port", ("env_settings", "base_port"), "6000"),
        ("--num-areas", ("env_settings", "num_areas"), "2"),
        ("--no-graphics", ("engine_settings", "no_graphics"), True),
        ("--width", ("engine_settings", "width"), "100"),
    ],
)
def test_an_option_for_what_is_not_built_is_refused_by_name(
    option: str, path: tuple[str, ...], value: str | bool | tuple[str, ...]
) -> None:
    [said] = problems("debug: false\n", Override(option, path, value))

    assert said.startswith(f"{option}: Stepherd ")
    assert said.endswith(" yet")


@pytest.mark.parametrize(
    ("path", "value"),
    [(("env_settings", "env_args"), ()), (("env_settings", "base_port"), "5005"), (("engine_settings", "width"), "84")],
)
def test_an_option_for_what_is_not_built_may_say_off(path: tuple[str, ...], value: str | tuple[str, ...]) -> None:
    loaded("debug: false\n", Override("--off", path, value))
