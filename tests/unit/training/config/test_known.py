"""Unknown keys: the nearest known one, the section a misplaced one belongs in, or what there is."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepherd.core.errors import ConfigError
from stepherd.training.config import Config, config_from_text
from stepherd.training.config.known import is_section, known_keys
from stepherd.training.config.tree import KeyPath

ML_AGENTS_KEYS: dict[KeyPath, str] = {
    (): "default_settings behaviors env_settings engine_settings environment_parameters checkpoint_settings"
    " torch_settings debug",
    ("behaviors", "*"): "trainer_type hyperparameters network_settings reward_signals behavioral_cloning self_play"
    " checkpoint_interval keep_checkpoints even_checkpoints max_steps time_horizon summary_freq threaded init_path",
    ("behaviors", "*", "hyperparameters"): "batch_size buffer_size learning_rate learning_rate_schedule beta"
    " beta_schedule epsilon epsilon_schedule lambd num_epoch shared_critic",
    ("behaviors", "*", "network_settings"): "normalize hidden_units num_layers vis_encode_type goal_conditioning_type"
    " deterministic memory",
    ("behaviors", "*", "reward_signals"): "extrinsic curiosity gail rnd",
    ("behaviors", "*", "reward_signals", "extrinsic"): "gamma strength network_settings",
    ("env_settings",): "env_path env_args base_port num_envs num_areas timeout_wait seed max_lifetime_restarts"
    " restarts_rate_limit_n restarts_rate_limit_period_s",
    ("engine_settings",): "width height quality_level time_scale target_frame_rate capture_frame_rate no_graphics"
    " no_graphics_monitor",
    ("checkpoint_settings",): "run_id initialize_from resume force inference results_dir",
    ("torch_settings",): "device",
}
OURS: dict[KeyPath, str] = {
    ("env_settings",): "envs_per_worker spawn_s reset_s step_s grace_s kill_s",
    ("behaviors", "*", "hyperparameters"): "clip_values",
}


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_from_text(text, "f.yaml")
    return caught.value.problems


def test_the_known_keys_are_those_of_ml_agents_and_ours() -> None:
    known = known_keys()

    for path, names in ML_AGENTS_KEYS.items():
        assert sorted(known[path]) == sorted([*names.split(), *OURS.get(path, "").split()])
    for path in list(known):
        if path[:2] == ("behaviors", "*"):
            in_defaults: KeyPath = ("default_settings", *path[2:])
            assert set(known[path]) == set(known[in_defaults])


@pytest.mark.parametrize(("path", "expected"), [((), True), (("behaviors", "A"), True), (("nonsense",), False)])
def test_a_section_is_recognised(path: KeyPath, expected: bool) -> None:
    assert is_section(path) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("behaviours: {}\n", "behaviours: unknown key; did you mean 'behaviors'?"),
        ("Env_Settings: {}\n", "Env_Settings: unknown key; did you mean 'env_settings'?"),
        ("env_settings: {num-envs: 3}\n", "env_settings.num-envs: unknown key; did you mean 'num_envs'?"),
        ("env_settings: {numEnvs: 3}\n", "env_settings.numEnvs: unknown key; did you mean 'num_envs'?"),
        (
            "env_settings: {time_scale: 3}\n",
            "env_settings.time_scale: unknown key here; it belongs below 'engine_settings'",
        ),
        ("seed: 3\n", "seed: unknown key here; it belongs below 'env_settings'"),
        (
            "checkpoint_settings: {debug: true}\n",
            "checkpoint_settings.debug: unknown key here; it belongs at the top level",
        ),
        (
            "behaviors: {A: {gamma: 0.9}}\n",
            "behaviors.A.gamma: unknown key here; it belongs below 'behaviors.A.reward_signals.extrinsic'",
        ),
        (
            "behaviors: {A: {network_settings: {max_steps: 9}}}\n",
            "behaviors.A.network_settings.max_steps: unknown key here; it belongs below 'behaviors.A'",
        ),
        ("max_steps: 3\n", "max_steps: unknown key here; it belongs below 'behaviors.<name>'"),
        ("torch_settings: {zzz: 3}\n", "torch_settings.zzz: unknown key; known are device"),
        ("engine_settings: {zzz: 3}\n", "engine_settings.zzz: unknown key"),
        ("env_settings: {self_plai: 3}\n", "env_settings.self_plai: unknown key"),
        ("behaviors: {A: {self_plai: 3}}\n", "behaviors.A.self_plai: unknown key; did you mean 'self_play'?"),
        ("engine_settings: {widht: 84}\n", "engine_settings.widht: unknown key; did you mean 'width'?"),
    ],
)
def test_an_unknown_key_is_explained(text: str, said: str) -> None:
    assert problems(text) == [f"f.yaml:1: {said}"]


SECTIONS = sorted(path for path in known_keys() if path[:1] != ("behaviors",) or len(path) > 1)


RETIRED = {"framework", "load_model", "train_model"}


@st.composite
def typos(draw: st.DrawFn) -> tuple[KeyPath, str]:
    """Draw a section and a key that it knows, with one letter lost, added, replaced or swapped with the next."""
    section = draw(st.sampled_from(SECTIONS))
    key = draw(st.sampled_from(known_keys()[section]))
    at = draw(st.integers(0, len(key) - 1))
    letter = draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz_"))
    before, here, after = key[:at], key[at], key[at + 1 :]
    swapped = before + after[:1] + here + after[1:]
    return section, draw(
        st.sampled_from([before + after, before + letter + here + after, before + letter + after, swapped])
    )


@pytest.mark.slow
@settings(deadline=None)
@given(typos())
def test_a_typo_in_any_known_key_is_reported_with_its_line(case: tuple[KeyPath, str]) -> None:
    section, typo = case
    assume(typo not in known_keys()[section] and typo not in RETIRED and typo[:1].isalpha())
    path = tuple("Name" if key == "*" else key for key in section)
    indent = "  " * len(path)
    lines = [f"{'  ' * depth}{key}:" for depth, key in enumerate(path)]
    if path[-1:] == ("reward_signals",):
        lines.append(f"{indent}extrinsic: {{}}")  # what this section cannot do without

    said = problems("\n".join([*lines, f"{indent}{typo}: 1"]))

    where = f"f.yaml:{len(lines) + 1}: {'.'.join((*path, typo))}: unknown key"
    assert len([line for line in said if line.startswith(where)]) == 1, said


def test_the_models_and_the_table_never_know_the_same_key() -> None:
    known = known_keys()

    assert all(len(set(keys)) == len(keys) for keys in known.values())
    assert set(Config.model_fields) < set(known[()])
