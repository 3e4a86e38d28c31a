"""Runs every check of `models/shutdown.pml` with Spin; `docs/shutdown-model.md` tells what they mean.

Spin turns a model into a C program, `pan`, which visits every state that the model can reach. A finding is what it
stops at; no finding counts only if the search was complete.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "models" / "shutdown.pml"
GENERATE_S = 10.0
COMPILE_S = 40.0
SEARCH_S = 80.0  # 5 s of processor time for three workers; the rest is for a busy machine
MEMORY_MB = 2000  # three workers take 500

DEADLOCK = "invalid end state"
ENDLESS = "non-progress cycle"
LOST = "assertion violated !(lost)"
LOST_ON_THE_QUEUE = "assertion violated (lost==0)"
MISTAKEN = "assertion violated !(mistaken)"
ORPHAN = "assertion violated !(orphan)"

FOR_SAFETY = ("-DSAFETY",)
FOR_CYCLES = ("-DNP",)
FAST = ("-O2",)  # worth its second of compiling from about half a million states on

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(GENERATE_S + COMPILE_S + SEARCH_S),
    pytest.mark.skipif(
        shutil.which("spin") is None or shutil.which("gcc") is None,
        reason="checking the shutdown protocol needs Spin and gcc (Debian: apt-get install spin gcc)",
    ),
]

Record = Callable[[str, object], None]


@dataclass(frozen=True, slots=True)
class Search:
    """What one run of `pan` found, and whether it saw everything there is."""

    finding: str | None
    is_complete: bool
    n_states: int
    output: str


def search(folder: Path, options: str, compiled: tuple[str, ...] = FOR_SAFETY, run: tuple[str, ...] = ()) -> Search:
    """Check the model with `options` (names without -D) in `folder`. Blocks for the three limits above at most."""
    defines = [f"-D{option}" for option in options.split()]
    pan = ["-DNOREDUCE", "-DNOFAIR", f"-DMEMLIM={MEMORY_MB}", "-w", "-o", "pan", "pan.c"]
    output_of(["spin", "-a", *defines, str(MODEL)], folder, GENERATE_S)
    output_of(["gcc", *compiled, *pan], folder, COMPILE_S)
    output = output_of(["./pan", "-n", "-w22", *run], folder, SEARCH_S)
    errors, finding = re.search(r"errors: (\d+)", output), re.search(r"^pan:1: (.*?) \(at depth", output, re.MULTILINE)
    states = re.search(r"(\d+) states, stored", output)
    assert errors, output
    assert states, output
    assert bool(int(errors[1])) == bool(finding), output
    incomplete = ("max search depth too small", "out of memory", "Search not completed", "aborting")
    return Search(
        finding=" ".join(finding[1].split()) if finding else None,
        is_complete=not any(words in output for words in incomplete),
        n_states=int(states[1]),
        output=output,
    )


def output_of(command: list[str], folder: Path, within_s: float) -> str:
    done = subprocess.run(command, cwd=folder, timeout=within_s, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_clean(found: Search, record: Record) -> None:
    record("n_states", found.n_states)
    assert found.finding is None, found.output
    assert found.is_complete, found.output


@pytest.mark.parametrize(("n_workers", "pipe_items"), [(1, 0), (2, 1), (3, 1), (3, 2)])
def test_a_shared_queue_deadlocks_once_more_steps_are_on_their_way_than_its_pipe_holds(
    tmp_path: Path, n_workers: int, pipe_items: int
) -> None:
    found = search(tmp_path, f"SHARED_QUEUE WORKERS={n_workers} PIPE_ITEMS={pipe_items}")

    assert found.finding == DEADLOCK, found.output


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_a_shared_queue_hides_its_deadlock_while_every_step_fits_into_the_pipe(
    tmp_path: Path, record_property: Record, n_workers: int
) -> None:
    found = search(tmp_path, f"SHARED_QUEUE WORKERS={n_workers} PIPE_ITEMS={n_workers}")

    check_clean(found, record_property)


def test_a_cancelled_feeder_ends_the_deadlock(tmp_path: Path, record_property: Record) -> None:
    found = search(tmp_path, "SHARED_QUEUE CANCEL WORKERS=3", run=("-A",))  # -A: assertions aside

    check_clean(found, record_property)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_a_cancelled_feeder_loses_steps(tmp_path: Path, n_workers: int) -> None:
    found = search(tmp_path, f"SHARED_QUEUE CANCEL WORKERS={n_workers}")

    assert found.finding == LOST_ON_THE_QUEUE, found.output


def test_a_cancelled_feeder_loses_the_error_of_an_env(tmp_path: Path) -> None:
    found = search(tmp_path, "SHARED_QUEUE CANCEL RAISES WORKERS=3", run=("-E",))  # -E: deadlocks aside

    assert found.finding == LOST_ON_THE_QUEUE, found.output


def test_a_trainer_waits_for_ever_for_the_error_that_a_cancelled_feeder_has_lost(tmp_path: Path) -> None:
    found = search(tmp_path, "SHARED_QUEUE CANCEL RAISES WORKERS=3", run=("-A",))

    assert found.finding == DEADLOCK, found.output


@pytest.mark.parametrize(
    ("options", "compiled"),
    [
        ("WORKERS=1 STEPS=2 RESTARTS=1", ()),
        ("WORKERS=1 STEPS=2 RESTARTS=1 TWO_SPEEDS", ()),
        ("WORKERS=2 STEPS=2", ()),
        ("WORKERS=2 STEPS=2 TWO_SPEEDS", ()),
        ("WORKERS=2 STEPS=2 COMMANDS=1", ()),
        ("WORKERS=2 STEPS=2 PARENT_LIVES", ()),
        ("WORKERS=2 RESTARTS=1", FAST),
        ("WORKERS=3", FAST),
    ],
)
def test_bell_and_leash_never_hang_nor_lose_a_message_nor_leave_anybody_behind(
    tmp_path: Path, record_property: Record, options: str, compiled: tuple[str, ...]
) -> None:
    found = search(tmp_path, options, (*FOR_SAFETY, *compiled))

    check_clean(found, record_property)


def test_bell_and_leash_need_no_deadline_as_long_as_nothing_fails(tmp_path: Path, record_property: Record) -> None:
    found = search(tmp_path, "WORKERS=3 STEPS=2 NO_FAULTS BUG_NO_TIMEOUT")

    check_clean(found, record_property)


@pytest.mark.parametrize(
    "options", ["WORKERS=1 STEPS=2 RESTARTS=1", "WORKERS=2", "WORKERS=2 TWO_SPEEDS", "WORKERS=2 PARENT_LIVES"]
)
def test_every_run_of_bell_and_leash_comes_to_an_end(tmp_path: Path, record_property: Record, options: str) -> None:
    found = search(tmp_path, options, FOR_CYCLES, run=("-l",))

    check_clean(found, record_property)


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ("BUG_NO_TIMEOUT PARENT_LIVES", DEADLOCK),
        ("BUG_SEND_BLOCKS COMMANDS=1 PARENT_LIVES", DEADLOCK),
        ("BUG_RING_BEFORE_NUMBER BUG_NO_TIMEOUT NO_FAULTS", DEADLOCK),
        ("BUG_NO_DRAIN", LOST),
        ("BUG_NO_LAST_LOOK", LOST),
        ("BUG_DEATH_FIRST", LOST),
        ("BUG_RESET_IS_END", LOST),
        ("BUG_NUMBER_FORGOTTEN TWO_SPEEDS", LOST),
        ("BUG_RING_BEFORE_DATA", MISTAKEN),
        ("BUG_LATE_IS_KEPT STEPS=2", MISTAKEN),
        ("BUG_NO_LEASH", ORPHAN),
        ("BUG_NO_LEASH_READ", ORPHAN),
        ("BUG_NO_GROUP", ORPHAN),
        ("BUG_NO_KILL", ORPHAN),
    ],
)
def test_spin_finds_what_each_safety_mechanism_is_good_for_once_it_is_gone(
    tmp_path: Path, options: str, finding: str
) -> None:
    found = search(tmp_path, f"WORKERS=1 {options}")

    assert found.finding == finding, found.output


def test_spin_finds_that_restarts_without_a_budget_never_end(tmp_path: Path) -> None:
    found = search(tmp_path, "WORKERS=1 RESTARTS=1 BUG_NO_BUDGET", FOR_CYCLES, run=("-l",))

    assert found.finding == ENDLESS, found.output


@pytest.mark.parametrize(("options", "finding"), [("LIMIT_FREEZE_AT_BIRTH", ORPHAN), ("BELL=1", LOST)])
def test_spin_finds_the_limits_that_the_documentation_names(tmp_path: Path, options: str, finding: str) -> None:
    found = search(tmp_path, f"WORKERS=1 {options}")

    assert found.finding == finding, found.output
