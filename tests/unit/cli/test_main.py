"""`stepherd` picks the command, and says with code 2 what it does not understand."""

from __future__ import annotations

import argparse

import pytest

from stepherd._version import __version__
from stepherd.cli import learn
from stepherd.cli.main import main


def ended_with(words: list[str]) -> object:
    """Return the exit code with which the words end the process."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_with(["--version"]) == 0

    assert capsys.readouterr().out == f"stepherd {__version__}\n"


def test_no_command_is_a_mistake_that_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_with([]) == 2

    said = capsys.readouterr().err
    assert "usage: stepherd" in said
    assert "COMMAND" in said


def test_an_unknown_command_is_a_mistake_that_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_with(["lern"]) == 2

    said = capsys.readouterr().err
    assert "'lern'" in said
    assert all(command in said for command in ("learn", "soak", "check"))


def test_an_unknown_option_of_a_command_is_a_mistake_that_says_which_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended_with(["learn", "--num-env", "3"]) == 2

    assert "did you mean --num-envs?" in capsys.readouterr().err


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_with(["--help"]) == 0

    said = capsys.readouterr().out
    assert all(command in said for command in ("learn", "soak", "check"))


def test_learn_gets_what_was_typed_and_gives_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[argparse.Namespace] = []

    def pretended(typed: argparse.Namespace) -> int:
        got.append(typed)
        return 4

    monkeypatch.setattr(learn, "learn", pretended)

    assert main(["learn", "cartpole.yaml", "--num-envs", "3"]) == 4

    assert (got[0].config, got[0].num_envs) == ("cartpole.yaml", "3")
