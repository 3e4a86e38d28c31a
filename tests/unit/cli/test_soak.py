"""`stepherd soak` says what it does, writes what was asked for, and ends with the right code, also when interrupted."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live

from stepherd.cli.main import main
from stepherd.cli.soak import Picture, check_writable, read_kwargs
from stepherd.core.deadline import Timeouts
from stepherd.testing.soak_plan import KINDS
from stepherd.testing.soak_record import CycleRecord, Doing, FaultOutcome, Violation
from stepherd.testing.soak_report import SoakReport
from stepherd.testing.soak_run import SoakProgress

COUNTING = "python:stepherd.testing.faulty_envs:CountingEnv"
SMALL = ["--num-envs", "2", "--steps-per-cycle", "10", "--seed", "3"]
PATIENCE_S = 30.0

slow = pytest.mark.slow


def a_report(*found: Violation) -> SoakReport:
    faults = (FaultOutcome("kill", "step", "named"), FaultOutcome("raise", "step", "too late"))
    cycles = (CycleRecord(1, 1.0, 100, 4000, 3990, 8, 2, n_restarts=3, faults=faults),)
    return SoakReport("gymnasium:CartPole-v1", 4, 1, ("kill", "raise"), 7, Timeouts(), "again", cycles, (), found, 1.0)


def a_moment(*found: Violation) -> SoakProgress:
    doing = Doing(2, "stepping", 5.0, n_rounds=40, states={"stepping": 3, "spawning": 1})
    return SoakProgress(a_report(*found), 65.0, n_cycles=4, within_s=None, doing=doing)


def picture_of(moment: SoakProgress, width: int, encoding: str = "utf-8", height: int = 24) -> list[str]:
    """Return the lines of a picture, without colours."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    console = Console(file=file, force_terminal=True, width=width, height=height, legacy_windows=False)
    with Live(console=console, auto_refresh=False) as live:
        Picture(console, live).update(moment)
    frame = re.split(r"\x1b\[2K", raw.getvalue().decode(encoding))[-1]  # each begins by clearing the one before
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame)
    return [line.rstrip() for line in text.replace("\r", "").strip("\n").split("\n")]


@pytest.mark.parametrize("width", [80, 120])
def test_a_picture_fits_the_terminal_and_says_how_far_it_is(width: int) -> None:
    lines = picture_of(a_moment(), width)

    assert all(cell_len(line) < width for line in lines)
    assert re.fullmatch(r"gymnasium:CartPole-v1  seed 7 +0:01:05, about 0:03:15 left", lines[0])
    assert re.fullmatch(r"cycle 2 of 4  ━+─+   25%", lines[1])
    assert lines[2] == "stepping, round 40: 3 stepping, 1 spawning"
    assert lines[3] == "3,990 steps  3 restarts  1 fault: kill 1"
    assert lines[4] == "0 violations"


@pytest.mark.parametrize(("width", "height"), [(20, 24), (80, 3), (10, 2)])
def test_a_picture_on_a_tiny_terminal_is_cut(width: int, height: int) -> None:
    lines = picture_of(a_moment(), width, height=height)

    assert len(lines) <= max(1, height - 1)


def test_a_picture_on_a_terminal_without_unicode_has_none() -> None:
    assert all(line.isascii() for line in picture_of(a_moment(), 80, "ascii"))


def test_a_violation_is_said_once_and_those_like_it_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Picture(None, None)
    first, second = (
        Violation("orphans", 1, "process 7 is still there"),
        Violation("orphans", 2, "process 9 is still there"),
    )

    picture.update(a_moment(first))
    picture.update(a_moment(first, second))

    assert capsys.readouterr().out == "VIOLATION cycle 1: orphans: process 7 is still there\n"


def test_without_a_terminal_a_cycle_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    picture = Picture(None, None)
    moment = a_moment()
    done = replace(moment, record=moment.report.cycles[0])

    for progress in (moment, done, done):
        picture.update(progress)

    assert capsys.readouterr().out == "0:01:05  cycle 1 of 4: 3,990 steps, 3 restarts, 1 fault, 0 violations\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--faults", "earthquake"], "'earthquake' is no kind of fault"),
        (["--num-envs", "0"], "num_envs must be 1 or more"),
        (["--minutes", "-1"], "minutes a number above 0"),
        (["--step-s", "0"], "step_s must be a finite number"),
        (["--env-kwargs", "{"], "--env-kwargs is no JSON"),
        (["--env-kwargs", "[1]"], "must be a JSON object"),
        (["--json", "/no/such/folder/x"], "/no/such/folder/x cannot be written"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert main(["soak", COUNTING, *words]) == 2
    assert complaint in capsys.readouterr().err


def test_what_is_no_env_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "unity:Game.x86_64"]) == 2
    assert "not built yet" in capsys.readouterr().err


def test_help_names_every_fault_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["soak", "--help"])

    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{kind}," in text or f", {kind}" in text for kind in KINDS)
    assert "0 clean, 1 violations, 2 wrong command line, 3 the env cannot be built, 130 stopped by Ctrl-C" in text


def test_keyword_arguments_are_a_json_object() -> None:
    assert read_kwargs(None) == {}
    assert read_kwargs('{"size": 3, "name": "x"}') == {"size": 3, "name": "x"}


def test_files_are_tried_before_the_soak(tmp_path: Path) -> None:
    check_writable(None, tmp_path / "new")
    with pytest.raises(ValueError, match="cannot be written"):
        check_writable(tmp_path)


@slow
def test_a_clean_soak_ends_with_0_and_writes_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", str(tmp_path / "soak.json"), "--junit", str(tmp_path / "soak.xml")]

    assert main(["soak", COUNTING, "--cycles", "1", *SMALL, *files]) == 0

    said = capsys.readouterr().out
    assert said.startswith(f"Soaking {COUNTING}, seed 3.\n0:00:0")
    assert "0 violations of 13 checks" in said
    assert json.loads((tmp_path / "soak.json").read_text())["is_clean"]
    assert ET.parse(tmp_path / "soak.xml").getroot().find("testsuite") is not None


@slow
def test_a_violation_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    raising = "python:stepherd.testing.faulty_envs:RaisingEnv"

    code = main(["soak", raising, "--env-kwargs", '{"where": "close"}', "--cycles", "1", *SMALL])

    assert code == 1
    said = capsys.readouterr().out
    assert (
        "VIOLATION cycle 0: unexplained failures: worker 0 at the close: close() raised ValueError: deliberate" in said
    )
    assert "Again: stepherd soak" in said


@slow
def test_an_env_that_cannot_be_built_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "gymnasium:NoSuchEnv-v0", "--cycles", "1", *SMALL]) == 3
    assert "NoSuchEnv" in capsys.readouterr().err


def start(*words: str, terminal: int | None = None) -> subprocess.Popen[str]:
    """Start the command, with its output on a pipe or a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepherd", "soak", COUNTING, *SMALL, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if terminal is None else terminal,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    )


@slow
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_the_soak_with_the_table_of_what_was_done(name: str, code: int) -> None:
    with start("--cycles", "1000") as process:
        assert process.stdout is not None
        while "cycle 1 of 1000" not in (line := process.stdout.readline()):
            assert line, "it ended early"

        process.send_signal(signal.Signals[name])
        said, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == code
    assert "(interrupted)" in said
    assert "0 violations of 13 checks" in said


@slow
def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    hangs = "python:stepherd.testing.faulty_envs:HangingEnv"
    words = [sys.executable, "-m", "stepherd", "soak", hangs, *SMALL]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Soaking")
        time.sleep(1.0)  # into the trial, whose step takes a minute

        began_at = time.monotonic()
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # or it would be taken for an echo of the first
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert time.monotonic() - began_at < 5.0
    assert "SIGINT asked to stop, then SIGINT to stop at once" in said
    assert "No cycle was done." in said


@slow
def test_a_terminal_shows_a_picture_and_then_the_table() -> None:
    ours, theirs = pty.openpty()
    shown = b""
    with start("--cycles", "1", terminal=theirs) as process:
        os.close(theirs)
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            shown += piece
        os.close(ours)
        assert process.wait(PATIENCE_S) == 0

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert "cycle 1 of 1  ─" in text
    assert "looking, round" in text or "stepping, round" in text or "opening, round" in text
    assert "0 violations of 13 checks" in text
