"""Real workers behind the seam: what they say and print arrives, and every end is noticed and cleaned up."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.processes import PATIENCE_S, open_descriptors, wait_until
from stepherd.core.deadline import Deadline
from stepherd.manager.launch import LOG_TAIL_LINES, ONE_THREAD, LocalBackend, LocalLink
from stepherd.process.exits import Exit
from stepherd.spec.specs import EnvSpec
from stepherd.transport.bell import BellBroken, Kind, Message
from stepherd.transport.layout import Layout
from stepherd.transport.notes import Job, Ready, read_note, write_note

if sys.platform == "win32":
    pytest.skip("there are no workers on Windows yet", allow_module_level=True)


def job_for(factory: Callable[[], Any] | str) -> bytes:
    """Return the note that tells a worker to build one env."""
    import cloudpickle

    source = factory if isinstance(factory, str) else cloudpickle.dumps(factory)
    return write_note(Job(source, cloudpickle.dumps({}), (0,), tuple(sys.path)))


HEALTHY = job_for("python:stepherd.testing.faulty_envs:CountingEnv")


class RememberingBackend(LocalBackend):
    """Knows whom it has started, to clean up after any failure."""

    def __init__(self, log_dir: Path | None) -> None:
        super().__init__(log_dir)
        self.links: list[LocalLink] = []

    def spawn(self, worker_id: int, generation: int) -> LocalLink:
        self.links.append(super().spawn(worker_id, generation))
        return self.links[-1]


@contextlib.contextmanager
def a_backend(log_dir: Path | None = None) -> Iterator[LocalBackend]:
    """Give a backend; kill and reap every link of it at the end."""
    backend = RememberingBackend(log_dir)
    try:
        yield backend
    finally:
        for link in backend.links:
            link.drop()
            link.kill()
            wait_until(link.reap, "a worker can be reaped")
        backend.close()


def hear(backend: LocalBackend, link: LocalLink) -> Message:
    """Wait for the next message of a worker."""
    deadline = Deadline.after(PATIENCE_S)
    while not deadline.passed:
        if link in backend.wait(deadline) and (message := link.hear()) is not None:
            return message
    raise AssertionError(f"no message; {link.log_tail()}")


def wait_for_end(backend: LocalBackend, link: LocalLink) -> Exit:
    """Wait until a worker has ended, and return how."""
    deadline = Deadline.after(PATIENCE_S)
    while (exit_status := link.look()) is None:
        assert not deadline.passed, "it does not end"
        backend.wait(deadline)
    return exit_status


@pytest.mark.slow
def test_a_worker_becomes_ready_closes_and_is_reaped() -> None:
    with a_backend() as backend:
        link = backend.spawn(0, 0)
        link.ring(Kind.JOB, HEALTHY)
        ready = hear(backend, link)
        spec: EnvSpec = read_note(ready.note, Ready).spec
        buffer = link.map_block(ready.block_fd, Layout.of(spec).block_bytes(1))
        size = len(buffer)
        buffer.release()
        link.ring(Kind.CLOSE)
        closed = hear(backend, link)

        assert size == Layout.of(spec).block_bytes(1)
        assert closed.kind is Kind.CLOSED
        assert wait_for_end(backend, link) == Exit(0)
        assert link.reap()
        assert backend.wait(Deadline.after(0.0)) == []


@pytest.mark.slow
def test_the_end_of_a_worker_wakes_the_wait_also_after_hanging_up() -> None:
    with a_backend() as backend:
        link = backend.spawn(0, 0)
        link.hang_up()

        link.kill()

        assert wait_for_end(backend, link) == Exit(None, signal.SIGKILL)
        assert backend.wait(Deadline.after(PATIENCE_S)) == [link]
        link.hang_up()
        assert backend.wait(Deadline.after(0.0)) == []


@pytest.mark.slow
def test_after_hanging_up_nothing_is_said_or_heard() -> None:
    with a_backend() as backend:
        link = backend.spawn(0, 0)

        link.hang_up()
        link.hang_up()

        assert link.hear() is None
        with pytest.raises(BellBroken):
            link.ring(Kind.CLOSE)


@pytest.mark.slow
def test_a_block_that_nobody_mapped_is_not_left_open() -> None:
    before = open_descriptors()
    with a_backend() as backend:
        link = backend.spawn(0, 0)
        link.ring(Kind.JOB, HEALTHY)

        message = hear(backend, link)  # the manager gave the worker up meanwhile, or does not like its spec

        assert message.kind is Kind.READY
    assert open_descriptors() == before


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_the_last_lines_that_a_worker_printed_are_shown(tmp_path: Path, named: bool) -> None:
    def prints() -> None:
        for number in range(1000):
            print(f"line {number}")
        os.write(2, b"and no newline")
        raise ValueError

    with a_backend(tmp_path if named else None) as backend:
        link = backend.spawn(4, 0)
        link.ring(Kind.JOB, job_for(prints))
        wait_for_end(backend, link)

        lines = link.log_tail().splitlines()

        assert lines[0] == (
            f"Its last lines (its log is {tmp_path / 'worker-4.log'}):"
            if named
            else "Its last lines (give log_dir to keep all of its output):"
        )
        assert lines[-1] == "    and no newline"
        assert lines[-2] == "    line 999"
        assert len(lines) == 1 + LOG_TAIL_LINES


@pytest.mark.slow
def test_a_worker_that_printed_nothing_is_said_to(tmp_path: Path) -> None:
    with a_backend(tmp_path) as backend:
        link = backend.spawn(0, 0)

        assert link.log_tail() == f"It printed nothing (its log is {tmp_path / 'worker-0.log'})."


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_looking_at_the_log_does_not_disturb_who_writes_it(tmp_path: Path, named: bool) -> None:
    with a_backend(tmp_path if named else None) as backend:
        link = backend.spawn(0, 0)

        assert fcntl.fcntl(link._log.fileno(), fcntl.F_GETFL) & os.O_APPEND


@pytest.mark.slow
def test_a_replacement_goes_on_in_the_same_log_and_says_so(tmp_path: Path) -> None:
    def prints() -> None:
        print("hello")
        raise ValueError

    with a_backend(tmp_path) as backend:
        for generation in (0, 1):
            link = backend.spawn(0, generation)
            link.ring(Kind.JOB, job_for(prints))
            wait_for_end(backend, link)

    assert (tmp_path / "worker-0.log").read_text() == "hello\n--- worker 0 restarted, process 2 ---\nhello\n"


@pytest.mark.slow
def test_a_log_in_a_folder_that_is_not_there_yet_makes_the_folder(tmp_path: Path) -> None:
    with a_backend(tmp_path / "new" / "folder") as backend:
        backend.spawn(0, 0)

    assert (tmp_path / "new" / "folder" / "worker-0.log").exists()


@pytest.mark.slow
def test_the_stack_of_a_worker_held_up_in_native_code_is_in_its_log(tmp_path: Path) -> None:
    def stuck_in_my_function() -> None:
        import ctypes

        print("soon stuck")
        ctypes.PyDLL(None).usleep(ctypes.c_uint(120 * 10**6))

    with a_backend(tmp_path) as backend:
        link = backend.spawn(0, 0)
        link.ring(Kind.JOB, job_for(stuck_in_my_function))
        wait_until(lambda: "soon stuck" in (tmp_path / "worker-0.log").read_text(), "it is stuck")

        link.ask_for_stack()

        wait_until(lambda: "in stuck_in_my_function" in link.log_tail(), "its stack is in the log")
        assert link.look() is None


@pytest.mark.slow
def test_numerical_libraries_start_one_thread_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell() -> None:
        raise ValueError([os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")])

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    with a_backend() as backend:
        link = backend.spawn(0, 0)
        link.ring(Kind.JOB, job_for(tell))

        note = hear(backend, link).note

    assert {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} <= set(ONE_THREAD)
    assert b"['1', '5']" in note


def test_a_system_without_descriptors_refuses_and_nothing_stays_open() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with a_backend() as backend:
        before = open_descriptors()
        free = [fd for fd in range(soft) if fd not in before]
        for n_left in range(1, 8):
            refusal = None
            resource.setrlimit(resource.RLIMIT_NOFILE, (free[n_left], hard))
            try:
                backend.spawn(0, 0)
            except OSError as error:
                refusal = error.errno
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

            assert refusal == errno.EMFILE, f"with {n_left} left"
            assert open_descriptors() == before, f"with {n_left} left"
