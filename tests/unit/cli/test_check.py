"""`stepherd check` prints its findings to the width of the terminal and ends with the right code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepherd.cli.main import main

COUNTING = "python:stepherd.testing.faulty_envs:CountingEnv"
RAISING = "python:stepherd.testing.faulty_envs:RaisingEnv"
HANGING = "python:stepherd.testing.faulty_envs:HangingEnv"
PATIENCE_S = 30.0

slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("columns", [60, 200])
def test_a_safe_env_ends_with_0_and_its_findings_fit(
    columns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    assert main(["check", COUNTING, "--steps", "20", "--json", str(tmp_path / "check.json")]) == 0

    said = capsys.readouterr()
    assert max(map(len, said.out.splitlines())) <= min(columns, 120)
    assert "17 ok, 0 warnings, 0 failures: safe to run in parallel." in said.out
    assert said.err == ""
    assert json.loads((tmp_path / "check.json").read_text())["is_safe"]


@slow
def test_a_failure_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", RAISING, "--steps", "20", "--env-kwargs", '{"after": 3}']) == 1
    assert "ValueError: deliberate" in capsys.readouterr().out


@slow
def test_an_env_that_cannot_be_built_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "python:no.such.module:Env"]) == 3
    assert "there is no module 'no.such.module'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([COUNTING, "--steps", "0"], "steps must be 1 or more"),
        ([COUNTING, "--grace-s", "0"], "grace_s must be a finite number"),
        ([COUNTING, "--env-kwargs", "{"], "--env-kwargs is no JSON"),
        ([COUNTING, "--json", "/no/such/folder/x"], "cannot be written"),
        (["pettingzoo:chess"], "not built yet"),
    ],
)
def test_a_wrong_command_line_ends_with_2(capsys: pytest.CaptureFixture[str], words: list[str], complaint: str) -> None:
    assert main(["check", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_typo_is_told_which_option_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", COUNTING, "--step", "3"])

    assert ended.value.code == 2
    assert "did you mean --steps" in capsys.readouterr().err


@slow
def test_ctrl_c_ends_it_at_once_and_leaves_nothing() -> None:
    """Bound: no grace is given."""
    words = [sys.executable, "-m", "stepherd", "check", HANGING]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)  # into the step that hangs

        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert said == "Stopped.\n"
