"""The same faults in four libraries, side by side: who hangs, who says what was wrong, who goes on, who leaves orphans.

    python bench/faults.py --peer-python .venv-peers/bin/python
    python bench/faults.py --library stepherd --only hang-step      # Stepherd alone needs no peers

Three envs in three workers; one of them misbehaves. Each cell is a run in a process and a session of its own, watched
from outside: when the watchdog's time is up it is killed, as a person would. Two seconds after its end, however that
came, the processes it has left are counted, and killed. Linux only. Exit code 1 if Stepherd hung, left a failure
without a name, handed out wrong data or left a process.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # its parts name each other `bench.…`, here and where copied

from bench.faults_run import run_case, sweep, sweeper  # noqa: E402 - after the line above
from bench.faults_verdict import Fault, judge  # noqa: E402 - the same

AT_ONCE = 2
LABEL_WIDTH, CELL_WIDTH = 26, 22

PEER_VERSIONS = """
from importlib.metadata import version
import platform
names = "gymnasium", "stable-baselines3", "tianshou", "numpy", "torch"
print("peers on Python", platform.python_version() + ":", ", ".join(f"{name} {version(name)}" for name in names))
"""

KILLED = r"SIGKILL|signal 9|code:? -9"
RAISED = r"ValueError.*deliberate"
LATE = r"timed out|not answered"
NOT_ENDED = rf"{LATE}|did not end"

FAULTS = (
    Fault("kill-step", "worker SIGKILLed in mid-step", "step", KILLED, "kill", "step"),
    Fault("kill-idle", "worker SIGKILLed while idle, then step", "kill, step", KILLED),
    Fault("stop-step", "worker SIGSTOPped, then step", "stop, step", LATE),
    Fault("stop-close", "worker SIGSTOPped, then close", "stop, close", NOT_ENDED),
    Fault("raise-step", "env raises in step", "step", RAISED, "raise", "step"),
    Fault("raise-reset", "env raises in reset", "reset", RAISED, "raise", "reset"),
    Fault("raise-constructor", "env raises in its constructor", "open", RAISED, "raise", "constructor"),
    Fault("exit-step", "env exits with code 3 in step", "step", r"code:? 3\b", "exit", "step"),
    Fault("segfault", "segmentation fault in step", "step", r"SIGSEGV|signal 11|code:? -11", "segfault", "step"),
    Fault("hang-step", "env hangs in step", "step", LATE, "hang", "step"),
    Fault("hang-close", "env hangs in close", "close", NOT_ENDED, "hang", "close"),
    Fault("hang-gil", "env hangs in step, holding the GIL", "step", LATE, "hold the GIL", "step"),
    Fault("unpicklable", "env raises in step what cannot be pickled", "step", RAISED, "raise unpicklable", "step"),
    Fault(
        "no-sigterm", "env ignores SIGTERM, hangs in step; close", "send, close", NOT_ENDED, "ignore SIGTERM", "step"
    ),
    Fault("flood", "env floods stdout", "step", "", "flood", "step"),
    Fault("parent-killed", "trainer SIGKILLed with steps in flight", "die", step_s=0.5),
    Fault("parent-raises", "trainer raises and nobody closes", "leave"),
    Fault("simulator", "trainer SIGKILLed; each env has a simulator", "die", fault="simulator", step_s=0.5),
    Fault("unread", "close with an unread step in flight", "send, close", step_s=0.5),
)


@dataclass(frozen=True, slots=True)
class Library:
    """A column of the table, or notes below it."""

    name: str
    title: str
    option: str = ""
    """What is not the default; then its cells are notes."""
    default: str = ""
    """The same library without that."""


LIBRARIES = (
    Library("gymnasium", "Gymnasium AsyncVectorEnv"),
    Library("sb3", "SB3 SubprocVecEnv"),
    Library("tianshou", "Tianshou SubprocVectorEnv"),
    Library("stepherd", "Stepherd open_env_manager"),
    Library("gymnasium-limited", "Gymnasium", "timeout=3 for reset_wait, step_wait and close", "gymnasium"),
    Library("tianshou-limited", "Tianshou", "wait_num=3, timeout=3", "tianshou"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run has shown."""

    fault: str
    library: str
    words: tuple[str, ...]
    texts: tuple[str, ...]
    """What the training loop was told: errors, and the report of the close."""
    orphans: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing hung, stayed unnamed, was wrong or was left behind."""
        return all(word.startswith(("recovered", "named", "clean", "close ")) for word in self.words)


def main() -> int:
    """Run the cells, print the table, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", type=Path, help="a Python that has requirements-peers.txt")
    fault_names, library_names = [fault.name for fault in FAULTS], [library.name for library in LIBRARIES]
    parser.add_argument("--only", action="append", choices=fault_names, metavar="FAULT", help=", ".join(fault_names))
    parser.add_argument(
        "--library", action="append", choices=library_names, metavar="NAME", help=", ".join(library_names)
    )
    parser.add_argument("--watchdog-s", type=float, default=20.0, help="how long a fault may take to come to an end")
    parser.add_argument("--json", action="store_true", help="print the cells as JSON")
    typed = parser.parse_args()
    faults = [fault for fault in FAULTS if not typed.only or fault.name in typed.only]
    libraries = [library for library in LIBRARIES if not typed.library or library.name in typed.library]
    if typed.peer_python is None and any(library.name != "stepherd" for library in libraries):
        parser.error("--peer-python is needed for all but `--library stepherd`")
    cells = run_all(faults, libraries, typed.peer_python, typed.watchdog_s)
    setting = describe_setting(typed.peer_python)
    if typed.json:
        print(json.dumps({"setting": setting, "cells": [dataclasses.asdict(cell) for cell in cells]}, indent=1))
    else:
        print(setting, end="\n\n")
        print_table(faults, libraries, cells)
    return int(not all(cell.is_good for cell in cells if cell.library == "stepherd"))


def run_all(
    faults: Sequence[Fault], libraries: Sequence[Library], peer_python: Path | None, watchdog_s: float
) -> list[Cell]:
    """Run every cell, two at a time. Whatever happens to this process, none of theirs is left."""
    run = f"{uuid.uuid4().hex}/"
    peer = str(peer_python.absolute()) if peer_python else ""  # not resolved: a venv's Python is a link out of it

    def run_one(fault: Fault, library: Library) -> Cell:
        mark = f"{run}{fault.name}/{library.name}/"
        python = sys.executable if library.name == "stepherd" else peer
        ending = run_case(fault, library.name, python, mark, folder, watchdog_s)
        texts = tuple(told.text for told in ending.told.values() if told.text)
        return Cell(fault.name, library.name, judge(fault, ending), texts, ending.orphans)

    cells: list[Cell] = []
    with sweeper(run) as folder, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(run_one, *pair) for pair in itertools.product(faults, libraries)]
        try:
            for future in futures:
                cells.append(future.result())
                print(f"{cells[-1].fault:18} {cells[-1].library:18} {', '.join(cells[-1].words)}", file=sys.stderr)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            sweep(run)  # and the two that run come to their end
            raise
    return cells


def describe_setting(peer_python: Path | None) -> str:
    """Return versions and machine in a line."""
    commit = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    said = [f"Stepherd {_said_by(commit)}", f"Python {platform.python_version()}"]
    if peer_python:
        said.append(_said_by([str(peer_python), "-c", PEER_VERSIONS]))
    return ", ".join([*said, f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, Linux {platform.release()}"])


def _said_by(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60.0, check=False)
    return done.stdout.strip()


def print_table(faults: Sequence[Fault], libraries: Sequence[Library], cells: Sequence[Cell]) -> None:
    """Print a row for each fault and a column for each library, then the notes on options."""
    words = {(cell.fault, cell.library): cell.words for cell in cells}
    columns = [library for library in libraries if not library.option]
    _print_row("", [tuple(library.title.split()) for library in columns])
    for fault in faults:
        _print_row(fault.label, [words[fault.name, library.name] for library in columns])
    for library in libraries:
        if library.option:
            print(f"{library.title} with {library.option}; where it makes a difference:")
            for fault in faults:
                with_option, default = words[fault.name, library.name], words.get((fault.name, library.default), ())
                if _without_seconds(with_option) != _without_seconds(default):
                    print(f"  {fault.label}: {', '.join(with_option)}")


def _without_seconds(words: Sequence[str]) -> list[str]:
    return [re.sub(r" [0-9.]+ s$", "", word) for word in words]


def _print_row(label: str, row: Sequence[Sequence[str]]) -> None:
    lines = itertools.zip_longest(textwrap.wrap(label, LABEL_WIDTH), *row, fillvalue="")
    for first, *others in lines:
        print(f"{first:{LABEL_WIDTH + 2}}{''.join(f'{word:{CELL_WIDTH}}' for word in others)}".rstrip())
    print()


if __name__ == "__main__":
    sys.exit(main())
