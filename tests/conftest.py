"""What holds for every test: whatever it starts or opens is gone when it ends."""

from __future__ import annotations

import signal

import pytest

pytest_plugins = ["pytester", "stepherd.testing.no_leftovers"]


@pytest.fixture(autouse=True)
def nothing_is_left_behind(no_leftovers: None) -> None:
    """Apply `no_leftovers` to every test, first of all fixtures, so that it looks when all others are torn down."""


@pytest.fixture(autouse=True, scope="session")
def interrupts_are_not_ignored() -> None:
    """Undo what `nohup` or a background job of a shell has set, or no test could send a Ctrl-C to what it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
