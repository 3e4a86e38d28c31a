"""The effective configuration: complete, honest about the seed, and loadable."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd.core.errors import SpecError
from stepherd.spec.uri import read_uri
from stepherd.training.config import Config, Override, TrainerSettings, config_from_text, effective_yaml, load_config

CARTPOLE = """\
behaviors:
  CartPole:
    trainer_type: ppo
    hyperparameters: {learning_rate_schedule: constant}
    max_steps: 1e5
    even_checkpoints: true
    keep_checkpoints: 4
  Unused: {}
env_settings: {env_path: "gymnasium:CartPole-v1", timeout_wait: 30, step_s: 2}
checkpoint_settings: {run_id: "7"}
"""


def again(config: Config, behaviors: dict[str, TrainerSettings] | None = None) -> Config:
    return config_from_text(effective_yaml(config, behaviors), "again.yaml")


def test_it_is_complete_and_loads_to_the_same() -> None:
    config = config_from_text(CARTPOLE)

    reloaded = again(config)

    assert reloaded.model_dump() == config.model_dump()
    assert reloaded.warnings == ()


def test_it_has_the_drawn_seed_and_every_resolved_value() -> None:
    config = config_from_text(CARTPOLE)

    content = yaml.safe_load(effective_yaml(config))

    assert content["env_settings"]["seed"] == config.env_settings.seed >= 0
    assert content["env_settings"]["spawn_s"] == 30
    assert content["env_settings"]["step_s"] == 2
    assert content["behaviors"]["CartPole"]["hyperparameters"]["beta_schedule"] == "constant"
    assert content["behaviors"]["CartPole"]["checkpoint_interval"] == 25_000


def test_it_names_the_envs_behaviors_and_no_other() -> None:
    config = config_from_text(CARTPOLE)

    reloaded = again(config, config.behavior_settings(["CartPole"]).settings)

    assert list(reloaded.behaviors) == ["CartPole"]


def test_behaviors_that_had_the_default_settings_are_written_by_name() -> None:
    config = config_from_text("default_settings: {max_steps: 9}\n")

    reloaded = again(config, config.behavior_settings(["A"]).settings)

    assert reloaded.behaviors["A"].max_steps == 9
    assert reloaded.behavior_settings(["Late"]).settings["Late"].max_steps == 9


def test_a_run_without_a_file_is_recorded_so_that_it_serves_the_same_behaviors() -> None:
    config = load_config()

    assert again(config).behavior_settings(["Any"]).settings == {"Any": TrainerSettings()}


@pytest.mark.parametrize("name", ["resume", "force"])
def test_how_the_run_was_started_is_not_repeated_by_the_next(name: str) -> None:
    config = load_config(None, [Override(f"--{name}", ("checkpoint_settings", name), True)])

    content = yaml.safe_load(effective_yaml(config))

    assert getattr(config.checkpoint_settings, name)
    assert content["checkpoint_settings"][name] is False


def test_a_seed_that_was_not_drawn_is_a_programmers_mistake() -> None:
    with pytest.raises(AssertionError):
        effective_yaml(Config())


def test_values_are_repeated_rather_than_aliased() -> None:
    shared = TrainerSettings()

    written = effective_yaml(Config().with_drawn_seed(), {"A": shared, "B": shared})

    assert "&" not in written
    assert "*" not in written


@pytest.mark.parametrize(
    "run_id", ["007", "1e-3", "1_0", "true", "null", "~", "2024-05-01", "0x1F", "é ü", "+1", "0b1"]
)
def test_a_run_id_is_text_for_every_reader(run_id: str) -> None:
    config = load_config(None, [Override("--run-id", ("checkpoint_settings", "run_id"), run_id)])

    written = effective_yaml(config)

    assert yaml.safe_load(written)["checkpoint_settings"]["run_id"] == run_id
    assert again(config).checkpoint_settings.run_id == run_id


seconds_above_0 = st.floats(1e-12, 1e7)
fraction = st.floats(0, 1)
text = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=20
)


@st.composite
def trainer_dicts(draw: st.DrawFn) -> dict[str, Any]:
    """Draw settings of a behavior as a file may hold them."""
    batch_size = draw(st.integers(1, 4096))
    hyperparameters = {
        "batch_size": batch_size,
        "buffer_size": batch_size * draw(st.integers(1, 50)),
        "learning_rate": draw(st.floats(1e-12, 1)),
        "beta": draw(st.floats(0, 1)),
        "epsilon": draw(st.floats(1e-9, 1)),
        "lambd": draw(fraction),
        "num_epoch": draw(st.integers(1, 20)),
        **draw(
            st.fixed_dictionaries(
                {},
                optional={
                    f"{name}_schedule": st.sampled_from(["linear", "constant"])
                    for name in ("learning_rate", "beta", "epsilon")
                },
            )
        ),
    }
    return {
        "trainer_type": "ppo",
        "hyperparameters": hyperparameters,
        "network_settings": {"normalize": draw(st.booleans()), "deterministic": draw(st.booleans())},
        "reward_signals": {"extrinsic": {"gamma": draw(fraction), "strength": draw(st.floats(-1e6, 1e6))}},
        "init_path": draw(st.none() | text),
        "max_steps": draw(st.integers(1, 2**60)),
        "keep_checkpoints": draw(st.integers(1, 100)),
        "even_checkpoints": draw(st.booleans()),
    }


def is_uri(written: str) -> bool:
    try:
        read_uri(written)
    except SpecError:
        return False
    return True


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    behaviors=st.dictionaries(text, trainer_dicts(), max_size=3),
    seconds=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["timeout_wait", "spawn_s", "step_s", "kill_s"], seconds_above_0)
    ),
    env_path=st.none() | text.filter(is_uri),
    seed=st.integers(-1, 2**31 - 1),
)
def test_any_configuration_survives_being_written_and_read(
    behaviors: dict[str, Any], seconds: dict[str, float], env_path: str | None, seed: int
) -> None:
    env_settings = {"env_path": env_path, "seed": seed, **seconds}
    config = Config.model_validate({"behaviors": behaviors, "env_settings": env_settings}).with_drawn_seed()

    reloaded = again(config, config.behaviors)

    assert reloaded.model_dump(exclude={"default_settings"}) == config.model_dump(exclude={"default_settings"})
