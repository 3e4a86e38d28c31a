"""A process that left its group is found by its mark, and nobody else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepherd.process.stragglers import MARK, kill_stragglers

pytestmark = [pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc"), pytest.mark.timeout(30)]


@contextmanager
def sleeper(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a session of its own with a mark."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(100)"],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {MARK: mark},
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_marked_process_is_killed_and_named() -> None:
    with sleeper("pool-1.3.0") as process:
        found = kill_stragglers("pool-1.")

        assert [(one.pid, one.mark) for one in found] == [(process.pid, "pool-1.3.0")]
        assert "time.sleep(100)" in found[0].command
        assert process.wait(timeout=10) == -9


def test_a_process_with_another_mark_is_left_alone() -> None:
    with sleeper("pool-2.0.0") as process:
        assert kill_stragglers("pool-1.") == []

        time.sleep(0.05)
        assert process.poll() is None


def test_our_own_process_is_never_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "pool-9.0.0")

    assert kill_stragglers("pool-9.") == []


def test_a_zombie_is_not_found() -> None:
    with sleeper("pool-3.0.0") as process:
        process.kill()
        deadline = time.monotonic() + 10
        while b"Z" not in Path(f"/proc/{process.pid}/stat").read_bytes().split(b")")[-1]:
            assert time.monotonic() < deadline

        assert kill_stragglers("pool-3.") == []
