"""How a process ended is said in words that a person can act on."""

from __future__ import annotations

import signal

import pytest

from stepherd.process.exits import HINTS, Exit, signal_name


@pytest.mark.parametrize(
    ("exit_status", "text"),
    [
        (Exit(0), "exited with code 0"),
        (Exit(3), "exited with code 3"),
        (Exit(None, 9), "killed by SIGKILL (often the kernel's out-of-memory killer, or a `kill -9`)"),
        (Exit(None, 11), "killed by SIGSEGV (a crash in native code)"),
        (Exit(None, 11, core_dumped=True), "killed by SIGSEGV (a crash in native code; a core dump was written)"),
        (Exit(None, 10), "killed by SIGUSR1"),
        (Exit(None, 200), "killed by signal 200"),
    ],
)
@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals have other numbers here")
def test_an_exit_in_words(exit_status: Exit, text: str) -> None:
    assert str(exit_status) == text


def test_a_core_dump_is_mentioned_also_for_a_signal_without_a_hint() -> None:
    assert str(Exit(None, 200, core_dumped=True)) == "killed by signal 200; a core dump was written"


def test_an_exit_that_was_lost_says_what_may_have_taken_it() -> None:
    exit_status = Exit(None)

    assert exit_status.unknown
    assert not exit_status.clean
    assert "SIGCHLD" in str(exit_status)


@pytest.mark.parametrize(("exit_status", "clean"), [(Exit(0), True), (Exit(1), False), (Exit(None, 15), False)])
def test_only_code_zero_is_clean(exit_status: Exit, clean: bool) -> None:
    assert exit_status.clean is clean
    assert not exit_status.unknown


def test_every_hint_belongs_to_a_signal_that_has_this_name() -> None:
    names = {signal_name(number) for number in signal.valid_signals()}

    assert set(HINTS) <= names
