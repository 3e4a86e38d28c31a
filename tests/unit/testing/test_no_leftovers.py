"""The fixture fails the test that leaves something behind, names it, and lets the next test start clean."""

from __future__ import annotations

import pytest

TESTS = """
import subprocess, sys, tempfile, pathlib

kept = []

def test_one_leaves_a_process(no_leftovers):
    kept.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"],
                                 stdin=subprocess.PIPE))

def test_two_starts_clean_and_leaves_nothing(no_leftovers, tmp_path):
    kept[0].communicate(timeout=20)
    (tmp_path / "mine.txt").touch()

def test_three_leaves_a_file(no_leftovers):
    pathlib.Path(tempfile.gettempdir(), "forgotten.txt").touch()
"""


@pytest.mark.slow
def test_the_fixture_blames_the_test_that_left_something_and_no_other(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepherd.testing.no_leftovers.GONE_WITHIN_S", 0.1)
    pytester.makepyfile(TESTS)

    result = pytester.runpytest_inprocess("-p", "stepherd.testing.no_leftovers", "-p", "no:cacheprovider")

    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_one_leaves_a_process*", "*process * import sys; sys.stdin.read()*"]
    )
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_three_leaves_a_file*", "*forgotten.txt*"])
