"""A child leads its own group, is looked at without being reaped, and takes its whole group along when it goes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.processes import PATIENCE_S, PYTHON, is_running, open_descriptors, wait_until, wait_until_gone
from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.process.child import Child
from stepherd.process.exits import Exit
from stepherd.testing.footprint import read_process

if sys.platform != "linux":
    pytest.skip("children are started on Linux and macOS, and /proc is on Linux only", allow_module_level=True)

IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
WAITS = "import time; print('up', flush=True); time.sleep(120)"
STARTS_ANOTHER = """
import subprocess, sys
other = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; print('up', flush=True); time.sleep(120)"])
print(other.pid, flush=True)
"""


class Started:
    """A child and what it has printed."""

    def __init__(self, program: str, output: Path, pass_fds: tuple[int, ...] = ()) -> None:
        self.output = output
        with output.open("wb") as file:
            self.child = Child(
                lambda leash_fd: [*PYTHON, program, str(leash_fd)], pass_fds=pass_fds, output_fd=file.fileno()
            )

    def wait_for_output(self, text: str) -> str:
        """Wait until it has printed `text`, and return all that it has printed."""
        wait_until(lambda: text in self.output.read_text(), f"it prints {text!r}")
        return self.output.read_text()

    def wait_for_end(self) -> Exit:
        """Wait until it has ended, without reaping it, and return how."""
        assert wait_readable(self.child.exit_fd, Deadline.after(PATIENCE_S)), "it does not end"
        exit_status = self.child.look()
        assert exit_status is not None
        return exit_status


@contextlib.contextmanager
def started(program: str, output: Path, pass_fds: tuple[int, ...] = ()) -> Iterator[Started]:
    """Start a child, and kill and reap it at the end of the block if that has not happened."""
    it = Started(program, output, pass_fds)
    try:
        yield it
    finally:
        it.child.kill()
        wait_until(it.child.reap, "it can be reaped")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A file for what a child prints."""
    return tmp_path / "output"


def test_a_running_child_has_no_exit_and_cannot_be_reaped(output: Path) -> None:
    with started(WAITS, output) as it:
        assert it.child.look() is None
        assert not it.child.reap()
        assert is_running(it.child.pid)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("", Exit(0)),
        ("raise SystemExit(3)", Exit(3)),
        ("import os; os._exit(255)", Exit(255)),
        ("import os; os.kill(os.getpid(), 9)", Exit(None, 9)),
        ("import os; os.kill(os.getpid(), 15)", Exit(None, 15)),
    ],
)
def test_a_look_tells_how_a_child_ended_and_leaves_its_pid_to_us(output: Path, program: str, expected: Exit) -> None:
    with started(program, output) as it:
        exit_status = it.wait_for_end()

        zombie = read_process(it.child.pid)
        assert exit_status == expected
        assert zombie is not None
        assert zombie.has_ended


def test_a_reap_frees_the_pid_and_the_exit_is_remembered(output: Path) -> None:
    with started("raise SystemExit(3)", output) as it:
        it.wait_for_end()

        reaped = it.child.reap()

        assert reaped
        assert read_process(it.child.pid) is None
        assert it.child.look() == Exit(3)
        assert it.child.exit_fd == -1
        assert it.child.reap()


def test_a_child_that_was_reaped_gets_no_signal_any_more(output: Path) -> None:
    with started("", output) as it:
        it.wait_for_end()
        it.child.reap()

        it.child.send_signal(signal.SIGTERM)  # to a pid that is nobody's: the system would raise
        it.child.terminate()
        it.child.kill()


def test_a_child_reaped_by_somebody_else_has_ended_in_an_unknown_way(output: Path) -> None:
    with started("raise SystemExit(3)", output) as it:
        os.waitpid(it.child.pid, 0)

        exit_status = it.child.look()

        assert exit_status is not None
        assert exit_status.unknown
        assert it.child.reap()


def test_a_child_leads_a_group_and_a_session_of_its_own(output: Path) -> None:
    with started(WAITS, output) as it:
        assert os.getpgid(it.child.pid) == it.child.pid
        assert os.getsid(it.child.pid) == it.child.pid


def test_sigterm_goes_to_the_whole_group(output: Path) -> None:
    with started(STARTS_ANOTHER + WAITS, output) as it:
        other = int(it.wait_for_output("up\nup").split()[0])

        it.child.terminate()

        assert it.wait_for_end() == Exit(None, signal.SIGTERM)
        wait_until_gone([other], PATIENCE_S)


def test_a_signal_for_the_child_alone_spares_its_group(output: Path) -> None:
    with started(STARTS_ANOTHER + WAITS, output) as it:
        other = int(it.wait_for_output("up\nup").split()[0])

        it.child.send_signal(signal.SIGKILL)

        assert it.wait_for_end() == Exit(None, signal.SIGKILL)
        assert is_running(other)


def test_a_kill_ends_a_group_that_ignores_sigterm_or_is_stopped(output: Path) -> None:
    with started(STARTS_ANOTHER + IGNORES_SIGTERM + WAITS, output) as it:
        other = int(it.wait_for_output("up\nup").split()[0])
        os.kill(other, signal.SIGSTOP)
        it.child.terminate()
        refused = it.child.look() is None

        it.child.kill()

        assert refused
        assert it.wait_for_end() == Exit(None, signal.SIGKILL)
        wait_until_gone([other])


def test_reaping_a_child_that_left_a_process_behind_kills_that_first(output: Path) -> None:
    with started(STARTS_ANOTHER, output) as it:
        other = int(it.wait_for_output("up").split()[0])
        it.wait_for_end()
        survived = is_running(other)

        it.child.reap()

        assert survived
        wait_until_gone([other])


def test_a_child_reads_nothing_and_writes_where_it_was_told(output: Path) -> None:
    with started("import sys; print(repr(sys.stdin.read())); print('oh', file=sys.stderr)", output) as it:
        it.wait_for_end()

        assert set(output.read_text().split()) == {"''", "oh"}


def test_a_child_inherits_what_it_is_passed_and_nothing_else(output: Path) -> None:
    passed_read, passed_write = os.pipe()
    other_read, other_write = os.pipe()
    os.set_inheritable(other_read, True)
    program = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd')))"
    try:
        with started(program, output, (passed_read,)) as it:
            it.wait_for_end()
            text = output.read_text()
    finally:
        for fd in (passed_read, passed_write, other_read, other_write):
            os.close(fd)

    held = {int(fd) for fd in text.strip("[]\n").split(",")}
    assert {0, 1, 2, passed_read} <= held
    assert not held & {passed_write, other_read, other_write}
    assert len(held) == 6  # the leash, and the folder being listed


def test_a_command_that_does_not_exist_raises_and_leaves_nothing_open() -> None:
    before = open_descriptors()
    with pytest.raises(FileNotFoundError), Path(os.devnull).open("wb") as nowhere:
        Child(lambda _: ["/there/is/no/such/program"], pass_fds=[], output_fd=nowhere.fileno())

    assert open_descriptors() == before


def test_a_child_that_is_abandoned_is_killed_once_more_and_forgotten(output: Path) -> None:
    with Path(os.devnull).open("wb") as nowhere:
        child = Child(lambda _: [*PYTHON, WAITS], pass_fds=[], output_fd=nowhere.fileno())

    child.abandon()

    assert child.exit_fd == -1
    child.kill()
    child.terminate()
    assert os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) == -signal.SIGKILL


def test_children_that_come_and_go_leave_no_descriptor(output: Path) -> None:
    before = open_descriptors()

    for _ in range(20):
        with started("", output) as it:
            it.wait_for_end()

    assert open_descriptors() == before


def test_a_stopped_child_is_killed_all_the_same(output: Path) -> None:
    with started(WAITS, output) as it:
        it.wait_for_output("up")
        it.child.send_signal(signal.SIGSTOP)

        it.child.kill()

        assert it.wait_for_end() == Exit(None, signal.SIGKILL)


def test_a_popen_elsewhere_in_the_program_does_not_disturb_it(output: Path) -> None:
    with started("raise SystemExit(3)", output) as it:
        it.wait_for_end()
        subprocess.run([*PYTHON, ""], check=True, timeout=PATIENCE_S)  # polls Popen's list of forgotten children

        assert it.child.look() == Exit(3)
