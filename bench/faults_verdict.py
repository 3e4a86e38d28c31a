"""What a run of `faults.py` has shown, in the words of the table. Pure: reads what was told, starts nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

NAMES_A_WORKER = re.compile(r"\b(worker|env|environment)[ #(-]{0,2}\d", re.IGNORECASE)
SLOW_CLOSE_S = 2.0  # a close after a fault that takes longer is remarked


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table: what happens."""

    name: str
    label: str
    play: str
    """What the training loop does; see `faults_case.play`."""
    cause: str = ""
    """An error that matches this pattern says what happened."""
    fault: str = ""
    """What the faulty env does in the call `where`; see `faults_env.FAULTS`."""
    where: str = ""
    step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """Something that the process under test has written down."""

    what: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, as seen from outside."""

    told: Mapping[str, Told]
    """By what was told, the first time."""
    output: str
    """The end of what all its processes printed."""
    overdue: bool
    """The watchdog had to kill the trainer."""
    exit_code: int
    gone_at: float
    """When the last of its processes was gone, or given up."""
    orphans: tuple[str, ...]
    """Command lines of the processes that were still there."""


def judge(fault: Fault, ending: Ending) -> tuple[str, ...]:
    """Return the words for a cell.

    recovered       the loop went on with right data from every env; "unnamed" if nothing said why there was a pause
    named           an error, or the report of the close, says which worker and why
    clean           it came to its end, and there was nothing to say
    unnamed error   an error that does not say which worker, or why
    """
    if "begin" not in ending.told:
        return (f"did not start (exit code {ending.exit_code})",)
    words = _of_loop(fault, ending)
    words += _of_close(fault, ending) if "closing" in ending.told else _of_end(fault, ending, bool(words))
    if ending.orphans:
        words.append(f"{len(ending.orphans)} orphan{'s' * (len(ending.orphans) > 1)}")
    return tuple(words)


def _of_loop(fault: Fault, ending: Ending) -> list[str]:
    if "wrong data" in ending.told:
        return [_timed("wrong data", ending, "wrong data")]
    if "raised" in ending.told:
        return _of_error(fault, ending, "raised")
    if "went on without" in ending.told:
        return [_timed("went on without it", ending, "went on without")]
    if "went on" in ending.told:
        recovered = _timed("recovered", ending, "went on")
        return [recovered] if _says_who_and_why(fault, ending.output) else [recovered, "unnamed"]
    return []


def _of_error(fault: Fault, ending: Ending, what: str) -> list[str]:
    if _says_who_and_why(fault, f"{ending.told[what].text}\n{ending.output}"):
        return [_timed("named", ending, what)]
    unnamed = [_timed("unnamed error", ending, what)]
    return [*unnamed, "(cause on stderr)"] if re.search(fault.cause, ending.output) else unnamed


def _of_close(fault: Fault, ending: Ending) -> list[str]:
    told, is_close_row = ending.told, fault.play.endswith("close")
    exit_hung = ["exit hung"] if ending.overdue else []
    if "close raised" in told:
        words = _of_error(fault, ending, "close raised") if is_close_row else ["close raised"]
        return words + exit_hung
    if "closed" not in told:
        if ending.overdue:
            return ["hung" if is_close_row else "close hung"]
        return [f"ended in close with exit code {ending.exit_code}"]
    if is_close_row:
        is_named = fault.cause and _says_who_and_why(fault, told["closed"].text)
        return [_timed("named" if is_named else "clean", ending, "closed"), *exit_hung]
    took_s = told["closed"].at - told["closing"].at
    return [f"close {took_s:.1f} s"] * (took_s > SLOW_CLOSE_S) + exit_hung


def _of_end(fault: Fault, ending: Ending, has_outcome: bool) -> list[str]:
    """Return the words for a run in which nobody got as far as closing."""
    if ending.overdue:
        return ["exit hung" if has_outcome else "hung"]
    if has_outcome:
        return []
    expected = {"die": -9, "leave": 1}.get(fault.play)
    if ending.exit_code != expected:
        return [f"ended with exit code {ending.exit_code}"]
    return [] if ending.orphans else [f"clean {ending.gone_at - ending.told['begin'].at:.1f} s"]


def _says_who_and_why(fault: Fault, text: str) -> bool:
    return not fault.cause or bool(re.search(fault.cause, text) and NAMES_A_WORKER.search(text))


def _timed(word: str, ending: Ending, what: str) -> str:
    return f"{word} {ending.told[what].at - ending.told['begin'].at:.1f} s"
