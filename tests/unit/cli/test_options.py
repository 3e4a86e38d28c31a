"""The options of `stepherd learn`."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from stepherd.cli.options import (
    GROUPS,
    HIDDEN,
    UNBUILT,
    Option,
    StrictParser,
    add_learn_options,
    learn_parser,
    typed_overrides,
)
from stepherd.core.errors import ConfigError
from stepherd.training.config import Config, load_config
from stepherd.training.config.known import is_section, known_keys
from stepherd.training.config.unbuilt import ROWS

SHOWN = [option for group in GROUPS.values() for option in group]
DETERMINISTIC = ("behaviors", "*", "network_settings", "deterministic")


def typed(*words: str) -> dict[tuple[str, ...], object]:
    return {override.path: override.value for override in typed_overrides(learn_parser().parse_args(words))}


def option_name(option: Option) -> str:
    return option.name


def test_nothing_typed_overrides_nothing() -> None:
    parsed = learn_parser().parse_args([])

    assert parsed.config is None
    assert typed_overrides(parsed) == ()


def test_the_configuration_file_may_stand_anywhere() -> None:
    for words in (["f.yaml", "--seed", "3"], ["--seed", "3", "f.yaml"], ["--resume", "f.yaml", "--seed=3"]):
        assert learn_parser().parse_args(words).config == "f.yaml"


def test_only_what_was_typed_is_returned_and_as_text() -> None:
    assert typed("--num-envs", "8", "--resume", "--seed", "-1", "--env=gymnasium:CartPole-v1") == {
        ("env_settings", "env_path"): "gymnasium:CartPole-v1",
        ("env_settings", "num_envs"): "8",
        ("env_settings", "seed"): "-1",
        ("checkpoint_settings", "resume"): True,
    }


@pytest.mark.parametrize("option", [*SHOWN, *UNBUILT, *HIDDEN], ids=option_name)
def test_every_option_sets_its_path(option: Option) -> None:
    words = [option.name] if option.metavar is None else [option.name, "5"]

    [(path, value)] = typed(*words).items()

    assert path == option.path
    assert value == (True if option.metavar is None else ("5",) if option.nargs else "5")


@pytest.mark.parametrize("option", SHOWN, ids=option_name)
def test_every_shown_option_sets_a_setting_that_exists(option: Option) -> None:
    assert is_section(option.path[:-1])
    assert option.path[-1] in known_keys()[option.path[:-1]]
    assert option.path not in {row.path for row in ROWS}


@pytest.mark.parametrize("option", UNBUILT, ids=option_name)
def test_every_option_called_unbuilt_is_in_the_table(option: Option) -> None:
    assert option.path in {row.path for row in ROWS}


def test_the_names_are_those_of_ml_agents_and_ours() -> None:
    names = {option.name for option in (*SHOWN, *UNBUILT, *HIDDEN)}

    in_one_line = (
        "--env --env-args --base-port --num-envs --num-areas --timeout-wait --seed --max-lifetime-restarts"
        " --restarts-rate-limit-n --restarts-rate-limit-period-s --width --height --quality-level --time-scale"
        " --target-frame-rate --capture-frame-rate --no-graphics --no-graphics-monitor --run-id --initialize-from"
        " --resume --force --inference --load --train --results-dir --torch-device --debug --deterministic"
        " --envs-per-worker --spawn-s --reset-s --step-s --grace-s --kill-s"
    )
    assert names == set(in_one_line.split())


@pytest.mark.parametrize("option", [each for each in SHOWN if "(default: " in each.help], ids=option_name)
def test_the_default_in_the_help_is_the_real_one(option: Option) -> None:
    shown = option.help.rpartition("(default: ")[2].rstrip(")")
    section, key = option.path
    real = getattr(getattr(Config(), section), key)

    if shown == "--timeout-wait":
        assert real == Config().env_settings.timeout_wait
    elif real is None:
        assert shown in ("none", "cuda if there is one, else cpu")
    else:
        assert type(real)(shown) == real


@pytest.mark.parametrize("option", SHOWN, ids=option_name)
def test_an_option_with_a_value_and_a_default_says_so(option: Option) -> None:
    assert option.help[0].islower()
    assert option.metavar is None or "(default: " in option.help or option.name == "--env"


def test_env_args_swallow_the_rest_of_the_line() -> None:
    assert typed("f.yaml", "--env-args", "--num-envs", "8", "-x") == {
        ("env_settings", "env_args"): ("--num-envs", "8", "-x")
    }


def test_values_reach_the_configuration() -> None:
    words = ["--env", "gymnasium:CartPole-v1", "--num-envs", "4", "--envs-per-worker", "2", "--step-s", "0.5"]
    words += ["--run-id", "7", "--torch-device", "cpu", "--deterministic", "--debug", "--seed", "5"]

    config = load_config(None, typed_overrides(learn_parser().parse_args(words)), need_env=True)

    assert config.env_settings.total_envs == 8
    assert config.env_settings.step_s == 0.5
    assert config.env_settings.seed == 5
    assert config.checkpoint_settings.run_id == "7"
    assert config.torch_settings.device == "cpu"
    assert config.debug
    assert config.behavior_settings(["A"]).settings["A"].network_settings.deterministic


def test_mistakes_in_options_are_in_the_one_list_with_their_names() -> None:
    words = ["--num-envs", "two", "--seed", "1.5", "--no-graphics", "--grace-s", "0"]

    with pytest.raises(ConfigError) as caught:
        load_config(None, typed_overrides(learn_parser().parse_args(words)))

    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "--num-envs",
        "--seed",
        "--grace-s",
        "--no-graphics",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--num-env", "8"], "unrecognized arguments: --num-env; did you mean --num-envs?"),
        (["--nun-envs=8"], "unrecognized arguments: --nun-envs=8; did you mean --num-envs?"),
        (["--zzz"], "unrecognized arguments: --zzz\n"),
        (["a.yaml", "b.yaml"], "unrecognized arguments: b.yaml\n"),
        (["--num-envs"], "argument --num-envs: expected one argument"),
    ],
)
def test_what_argparse_refuses_ends_with_2_and_names_what_was_meant(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        learn_parser().parse_args(words)

    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_it_works_as_a_command_among_others(capsys: pytest.CaptureFixture[str]) -> None:
    parser = StrictParser(prog="stepherd")
    commands = parser.add_subparsers(dest="command")
    add_learn_options(commands.add_parser("learn"))

    parsed = parser.parse_args(["learn", "f.yaml", "--seed", "3"])
    with pytest.raises(SystemExit):
        parser.parse_args(["learn", "--sede", "3"])

    assert (parsed.command, parsed.config) == ("learn", "f.yaml")
    assert [override.option for override in typed_overrides(parsed)] == ["--seed"]
    assert "did you mean --seed?" in capsys.readouterr().err


def test_the_help_is_grouped_and_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    with pytest.raises(SystemExit) as caught:
        learn_parser().parse_args(["--help"])

    shown = capsys.readouterr().out
    assert caught.value.code == 0
    for heading in GROUPS:
        assert f"\n{heading}:\n" in shown
    for option in (*SHOWN, *UNBUILT):
        assert option.name in shown
    for option in HIDDEN:
        assert f"{option.name}\n" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "SUPPRESS" not in shown


def test_parsing_imports_neither_pydantic_nor_yaml() -> None:
    code = (
        "import sys; from stepherd.cli.options import learn_parser; learn_parser().parse_args(['f.yaml']);"
        " assert not {'pydantic', 'yaml', 'torch', 'numpy'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_an_unused_namespace_attribute_is_no_override() -> None:
    assert typed_overrides(argparse.Namespace(command="learn", config=None)) == ()
