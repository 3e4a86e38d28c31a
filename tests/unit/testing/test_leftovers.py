"""Each kind of thing that can be left behind is found, wherever it hid, and what goes by itself is waited for."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from stepherd.core.deadline import Deadline
from stepherd.testing.footprint import HAS_PROC, read_process
from stepherd.testing.leftovers import SHARED_MEMORY, Leftovers, leaves_nothing, watch_leftovers

PYTHON = [sys.executable, "-I", "-S", "-c"]  # the fastest start there is
WAITS_FOR_INPUT = "import sys; print('here', flush=True); sys.stdin.read()"
ENDS_WITHIN_S = 20.0

# Starts a process in a session of its own and ends, so that init becomes its parent. It says its pid, and stays until
# its input ends; before that, it opens each file that it is told to, and says so.
LEAVES_AN_ORPHAN = """
import subprocess, sys
subprocess.Popen([sys.executable, "-I", "-S", "-c", '''
import os, sys
print(os.getpid(), flush=True)
files = []
for name in sys.stdin:
    files.append(open(name.strip(), "w"))
    print("open", flush=True)
'''], start_new_session=True)
"""


@contextlib.contextmanager
def a_child() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that lives until the end of the block, and wait until it runs its program."""
    with subprocess.Popen([*PYTHON, WAITS_FOR_INPUT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"  # before that, even its name may still be its parent's
        yield process


@contextlib.contextmanager
def an_orphan() -> Iterator[tuple[int, IO[str], IO[str]]]:
    """Start a process whose parent has ended; give its pid, input and output. It lives until the end of the block."""
    parent = subprocess.Popen([*PYTHON, LEAVES_AN_ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        parent.wait(ENDS_WITHIN_S)
        pid = int(parent.stdout.readline())
        yield pid, parent.stdin, parent.stdout
    wait_until_gone(pid)


def wait_until_gone(pid: int) -> None:
    """Wait until there is no process `pid`, or only its zombie."""
    deadline = Deadline.after(ENDS_WITHIN_S)
    while (process := read_process(pid)) is not None and not process.has_ended:
        assert not deadline.passed, f"{process} is still there"
        select.select([], [], [], 0.01)


def test_a_body_that_leaves_nothing_passes() -> None:
    with leaves_nothing():
        with a_child():
            pass
        with tempfile.TemporaryFile():
            pass


def test_a_child_that_still_runs_is_found() -> None:
    with watch_leftovers() as watch, a_child() as child:
        found = watch.look()

    assert [process.pid for process in found.processes] == [child.pid]
    assert not found.processes[0].has_ended
    assert WAITS_FOR_INPUT in str(found)
    assert not watch.look()


def test_a_child_that_ended_but_was_not_reaped_is_found() -> None:
    with watch_leftovers() as watch:
        child = subprocess.Popen([*PYTHON, ""])
        wait_until_gone(child.pid)
        found = watch.look()
        child.wait(ENDS_WITHIN_S)

    assert [process.pid for process in found.processes] == [child.pid]
    assert "never reaped" in str(found)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no sessions and no init")
def test_a_grandchild_that_moved_to_its_own_session_and_to_init_is_found_and_killed() -> None:
    with watch_leftovers() as watch, an_orphan() as (pid, _, _):
        found = watch.look()
        found.kill_processes()
        wait_until_gone(pid)

    assert [process.pid for process in found.processes] == [pid]
    assert found.processes[0].parent != os.getpid()
    assert not watch.look().processes


@pytest.mark.skipif(not HAS_PROC, reason="only /proc tells a forked process from a stranger")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_grandchild_that_never_ran_another_program_is_found() -> None:
    if sys.platform == "win32":
        return
    read_end, write_end = os.pipe()
    with watch_leftovers() as watch:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                if os.fork() == 0:
                    os.close(write_end)
                    os.read(read_end, 1)  # ends when the test closes the other end
            os._exit(0)
        os.waitpid(child, 0)
        found = watch.look()
        os.close(write_end)
        left = watch.wait(Deadline.after(ENDS_WITHIN_S))
    os.close(read_end)

    assert len(found.processes) == 1
    assert found.processes[0].parent != os.getpid()
    assert not left


def test_a_process_that_was_there_before_is_not_found() -> None:
    with a_child(), watch_leftovers() as watch:
        pass

    assert not watch.look()


def test_an_open_descriptor_is_found_with_what_it_is_open_on(tmp_path: Path) -> None:
    with watch_leftovers() as watch, (tmp_path / "left.txt").open("w") as file:
        number = file.fileno()
        found = watch.look()

    assert [fd for fd, _ in found.descriptors] == [number]
    if HAS_PROC:
        assert "left.txt" in str(found)


def test_a_descriptor_that_took_the_number_of_another_is_found(tmp_path: Path) -> None:
    with (tmp_path / "first.txt").open("w") as first, watch_leftovers() as watch:
        number = first.fileno()
        first.close()
        with (tmp_path / "second.txt").open("w") as second:
            found = watch.look()

            assert second.fileno() == number

    assert [fd for fd, _ in found.descriptors] == [number]


@pytest.mark.skipif(not HAS_PROC, reason="ports are read from /proc")
def test_a_listening_port_is_found() -> None:
    with watch_leftovers() as watch, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = watch.look()

    assert found.ports == ((os.getpid(), port),)
    assert f"port {port}" in str(found)


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="no folder for shared memory here")
def test_a_file_in_shared_memory_is_found() -> None:
    path = SHARED_MEMORY / f"stepherd-test-{os.getpid()}"
    with watch_leftovers() as watch:
        path.write_bytes(b"left")
        found = watch.look()
        path.unlink()

    assert found == Leftovers(files=(path,))


@pytest.mark.skipif(not SHARED_MEMORY.is_dir() or not HAS_PROC, reason="no folder for shared memory here")
def test_a_file_in_shared_memory_that_only_others_use_is_not_blamed_on_us() -> None:
    path = SHARED_MEMORY / f"stepherd-test-{os.getpid()}"
    with an_orphan() as (_, orders, answers), watch_leftovers() as watch:
        orders.write(f"{path}\n")
        orders.flush()
        assert answers.readline() == "open\n"
        found = watch.look()
        path.unlink()

    assert not found


def test_a_file_in_the_temporary_folder_is_found() -> None:
    with watch_leftovers() as watch:
        path = Path(tempfile.gettempdir(), "left.txt")
        path.touch()
        found = watch.look()
        path.unlink()

    assert found == Leftovers(files=(path,))


def test_a_cache_that_is_meant_to_stay_is_not_found() -> None:
    with watch_leftovers() as watch:
        path = Path(tempfile.gettempdir(), "torchinductor_somebody")
        path.mkdir()
        found = watch.look()
        path.rmdir()

    assert not found


def test_a_thread_that_keeps_the_program_from_ending_is_found() -> None:
    may_end = threading.Event()
    thread = threading.Thread(target=may_end.wait, args=(ENDS_WITHIN_S,), name="stays")
    with watch_leftovers() as watch:
        thread.start()
        found = watch.look()
        may_end.set()
        thread.join(ENDS_WITHIN_S)

    assert found == Leftovers(threads=("stays",))


def test_what_is_on_its_way_out_is_waited_for_and_no_longer_than_needed() -> None:
    with watch_leftovers() as watch:
        path = Path(tempfile.gettempdir(), "left.txt")
        path.touch()
        remover = threading.Timer(0.05, path.unlink)
        remover.start()
        started = time.monotonic()
        left = watch.wait(Deadline.after(ENDS_WITHIN_S))

    assert not left
    assert time.monotonic() - started < ENDS_WITHIN_S / 2
    remover.join(ENDS_WITHIN_S)


def test_what_stays_fails_the_check_with_a_list() -> None:
    path = Path(tempfile.gettempdir(), "left.txt")

    with pytest.raises(AssertionError, match=r"left\.txt"), leaves_nothing(within_s=0.05):
        path.touch()

    path.unlink()


def test_an_error_of_the_body_is_not_hidden_by_what_it_left() -> None:
    with pytest.raises(KeyError), leaves_nothing(within_s=0.05), tempfile.TemporaryFile():
        raise KeyError


def test_the_environment_is_as_before_after_a_watch() -> None:
    before = dict(os.environ)

    with watch_leftovers(), watch_leftovers():
        assert dict(os.environ) != before

    assert dict(os.environ) == before


def test_a_look_costs_less_than_five_milliseconds() -> None:
    durations = []
    for _ in range(20):
        started = time.perf_counter()
        with watch_leftovers() as watch:
            pass
        watch.look()
        durations.append(time.perf_counter() - started)

    assert min(durations) < 0.005, f"{min(durations) * 1000:.1f} ms"
