"""The memory of a process, as the system tells it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepherd.process.memory import rss_bytes


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_in_use_shows() -> None:
    before = rss_bytes(os.getpid())
    ballast = bytearray(b"x") * (64 * 2**20)
    after = rss_bytes(os.getpid())

    assert before is not None
    assert after is not None
    assert after - before > 32 * 2**20
    assert len(ballast) == 64 * 2**20


def test_of_a_process_that_is_none_nothing_can_be_told() -> None:
    assert rss_bytes(2**22 + 1) is None
