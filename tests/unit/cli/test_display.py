"""What a run shows fits the terminal it is shown on, is cheap, and never ends the run."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from stepherd.cli.display import open_display, summary_text
from stepherd.training.progress import BehaviorProgress, Progress, TimeShares, WorkerStatus
from stepherd.training.statistics import Summary

SUMMARY = Summary("CartPole", 10_000, 12.3, mean_reward=45.2, std_reward=3.1, n_episodes=7)
LINE = "CartPole. Step: 10000. Time Elapsed: 12.300 s. Mean Reward: 45.200. Std of Reward: 3.100. Training."
CARTPOLE = BehaviorProgress("CartPole", 310_000, 500_000, 431.234, 1234)

PRINT_INTO_A_CLOSED_PIPE = """
import os, sys
from rich.console import Console
from stepherd.cli.display import open_display
reader, writer = os.pipe()
os.close(reader)
with open_display(Console(file=os.fdopen(writer, "w")), False) as display:
    display.message("nobody reads this")
    display.message("nor this")
print("the run went on", file=sys.stderr)
os._exit(7)
"""


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TornOffFile(io.StringIO):
    """The terminal that somebody closes."""

    is_torn_off = False

    def write(self, text: str) -> int:
        if self.is_torn_off:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


def workers(n: int, **of_them: str) -> tuple[WorkerStatus, ...]:
    return tuple(WorkerStatus(i, 8000 + i, of_them.get(f"w{i}", "stepping"), 0, 1000 * i, 1.0) for i in range(n))


def progress(n_workers: int = 8, *behaviors: BehaviorProgress) -> Progress:
    shares = TimeShares(simulate=0.45, transport=0.05, infer=0.2, update=0.25, other=0.05)
    return Progress("demo", behaviors or (CARTPOLE,), 5210.3, 754.0, 200.2, workers(n_workers), shares)


def terminal(file: io.StringIO | io.TextIOWrapper, width: int = 80, height: int = 24) -> Console:
    return Console(
        file=file, force_terminal=True, width=width, height=height, color_system="standard", legacy_windows=False
    )


def shown(of: Progress, width: int = 80, height: int = 24, clock: SetClock | None = None) -> list[str]:
    """Return the lines of a picture, without colours."""
    file = io.StringIO()
    with open_display(terminal(file, width, height), True, clock or SetClock()) as display:
        display.update(of)
    frame = re.split(r"\x1b\[2K", file.getvalue())[-1]  # each frame begins by clearing the one before
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).strip("\r\n").split("\n")]


def test_a_summary_is_the_line_that_ml_agents_prints() -> None:
    assert summary_text(SUMMARY) == LINE
    assert summary_text(replace(SUMMARY, mean_reward=None, std_reward=0.0, is_training=False)) == (
        "CartPole. Step: 10000. Time Elapsed: 12.300 s. No episode was completed since last summary. Not Training."
    )


def test_without_a_terminal_there_are_plain_whole_lines_and_nothing_else() -> None:
    file = io.StringIO()

    with open_display(Console(file=file, width=40), False) as display:
        display.update(progress())
        display.summary(SUMMARY)
        display.message("Worker 3 [/bold] failed: https://example.org " + "long " * 30 + "end")

    assert file.getvalue() == f"{LINE}\nWorker 3 [/bold] failed: https://example.org {'long ' * 30}end\n"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    file = io.StringIO()

    with open_display(terminal(file), True) as display:
        display.update(progress())
        display.summary(SUMMARY)

    assert file.getvalue() == f"{LINE}\n"


def test_a_terminal_shows_how_far_the_run_is() -> None:
    lines = shown(progress())

    assert re.fullmatch(r"demo  0:12:34, about 0:03:20 left +5,210 steps/s", lines[0])
    assert re.fullmatch(r"CartPole  ━+─+   62%  310,000 / 500,000", lines[1])
    assert lines[2].strip() == "mean reward 431.23 (last 100 of 1,234 episodes)"
    assert lines[3] == "8 workers: 8 stepping"
    assert lines[4:12] == [f"   {i} ● stepping   pid {8000 + i}    {1000 * i:>11,} steps" for i in range(8)]
    assert lines[12] == "time  simulate 45%  transport 5%  infer 20%  update 25%  other 5%"
    assert set(lines[13]) == {"━"}
    assert len(lines) == 14


def test_summaries_appear_above_the_picture() -> None:
    file = io.StringIO()
    with open_display(terminal(file, width=120), True, SetClock()) as display:
        display.update(progress())
        display.summary(SUMMARY)

    assert LINE in file.getvalue()
    assert file.getvalue().rindex("steps/s") > file.getvalue().index(LINE)


def test_pictures_are_drawn_four_times_a_second_at_most_and_the_last_one_always() -> None:
    clock = SetClock()
    file = io.StringIO()
    with open_display(terminal(file), True, clock) as display:
        for step in range(1, 101):
            clock.now = step / 100
            display.update(progress(1, replace(CARTPOLE, step=step)))
        n_drawn = file.getvalue().count("steps/s")

    assert n_drawn == 4
    assert "100 / 500,000" in file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [6, 24, 60])
@pytest.mark.parametrize("n_workers", [1, 8, 64, 300])
def test_a_picture_fits_its_terminal(width: int, height: int, n_workers: int) -> None:
    behaviors = [BehaviorProgress(f"行走 number {i}", i * 10**7, 10**9, i * 1e5, i) for i in range(12)]
    for n_behaviors in (1, 2, 12):
        lines = shown(progress(n_workers, *behaviors[:n_behaviors]), width, height)

        assert len(lines) < height
        assert max(map(cell_len, lines)) < width


@pytest.mark.parametrize("width", [60, 80, 120])
def test_many_workers_are_a_map_with_those_that_had_trouble_below(width: int) -> None:
    of = progress(64)
    crowd = list(of.workers)
    crowd[7] = replace(crowd[7], state="down", n_restarts=1)
    for i in range(20, 26):
        crowd[i] = replace(crowd[i], state="spawning", n_restarts=i - 18)

    lines = shown(replace(of, workers=tuple(crowd)), width)
    text = "\n".join(lines)

    assert "64 workers: ✗ 1 down, ○ 6 spawning, ● 57 stepping" in lines
    assert re.sub(r"[^●✗○]", "", "".join(lines[4:6])).startswith("●●●●●●●✗●●●●●●●●●●●●○○○○○○●●●●")
    assert re.search(r"   7 ✗ down +pid 8007 +7,000 steps  1 restart\n  25 ○ spawning +pid 8025 .* 7 restarts\n", text)
    assert "and 3 more that were restarted" in lines


def test_a_low_terminal_has_a_map_for_few_workers_too() -> None:
    lines = shown(progress(8), height=10)

    assert lines[3:5] == ["8 workers: ● 8 stepping", "●●●●●●●●"]
    assert len(lines) == 7


def test_a_state_that_is_not_known_here_is_shown_all_the_same() -> None:
    lines = shown(replace(progress(), workers=workers(2, w1="thinking")))

    assert "2 workers: 1 stepping, 1 thinking" in lines
    assert "   1 ? thinking   pid 8001          1,000 steps" in lines


def test_before_anything_has_happened_nothing_is_made_up() -> None:
    first = BehaviorProgress("CartPole", 0, 500_000, None, 0)
    lines = shown(Progress("demo", (first,), 0.0, 0.2, None, (), TimeShares()))

    assert re.fullmatch(r"demo  0:00:00 +0 steps/s", lines[0])
    assert lines[2].strip() == "no episode has ended yet"
    assert lines[3].startswith("time")


def test_a_step_beyond_the_limit_is_all_of_it_and_99_percent_is_not() -> None:
    lines = shown(progress(1, replace(CARTPOLE, step=500_123), replace(CARTPOLE, step=499_999)))

    assert "100%" in lines[1]
    assert " 99%" in lines[3]


def test_more_behaviors_than_fit_have_a_line_each_and_the_rest_a_number() -> None:
    lines = shown(progress(1, *(replace(CARTPOLE, name=f"Team{i}") for i in range(10))), height=40)

    assert re.fullmatch(r"Team0  ━+─+   62%  reward 431\.23", lines[1])
    assert lines[9] == "and 2 more behaviors"


def test_a_terminal_without_unicode_gets_letters() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    with open_display(terminal(file, width=100), True, SetClock()) as display:
        display.update(progress(9, replace(CARTPOLE, name="行")))
        display.message("行 failed")
        file.flush()

        assert b"*********" in re.sub(rb"\x1b\[[0-9;]*m", b"", raw.getvalue())
        assert b"S=simulate" in re.sub(rb"\x1b\[[0-9;]*m", b"", raw.getvalue())
        assert b"\\u884c failed" in raw.getvalue()


def test_a_terminal_that_is_torn_off_ends_the_display_and_not_the_run(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    file = TornOffFile()
    before = sys.stdout
    with caplog.at_level(logging.WARNING), open_display(terminal(file), True, clock) as display:
        display.update(progress())
        file.is_torn_off = True
        for clock.now in (1.0, 2.0, 3.0):
            display.update(progress())
            display.summary(SUMMARY)

    assert [record.getMessage() for record in caplog.records] == [
        "The display is lost ([Errno 5] Input/output error); the run goes on without it."
    ]
    assert sys.stdout is before


@pytest.mark.timeout(30)
def test_a_pipe_that_nobody_reads_any_more_does_not_end_the_run() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINT_INTO_A_CLOSED_PIPE],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=20,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 7
    assert done.stderr.endswith("the run went on\n")
    assert done.stderr.count("The display is lost") == 1


def test_an_error_in_the_block_comes_through_and_the_terminal_is_given_back() -> None:
    file = io.StringIO()
    before = sys.stdout

    def fail_in_the_block() -> None:
        with open_display(terminal(file), True, SetClock()) as display:
            display.update(progress())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_block()

    assert sys.stdout is before
    assert file.getvalue().endswith("\x1b[?25h")  # the cursor is back
