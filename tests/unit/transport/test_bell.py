"""A message arrives whole or not at all, with what rides on it, and nothing that arrives or doesn't can block."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faults.processes import PATIENCE_S, open_descriptors
from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.transport.bell import NOTE_BYTES_MAX, Bell, BellBroken, Kind, Message
from stepherd.transport.block import Block

if sys.platform == "win32":
    pytest.skip("there are no message sockets on Windows", allow_module_level=True)

SENT = [kind for kind in Kind if kind is not Kind.GONE]


@contextlib.contextmanager
def two_bells() -> Iterator[tuple[Bell, Bell]]:
    """Give both ends of a bell, and close what is still open of them."""
    manager, socket_of_worker = Bell.pair()
    worker = Bell(socket_of_worker)
    with contextlib.closing(manager), contextlib.closing(worker):
        yield manager, worker


@pytest.mark.parametrize("kind", SENT)
def test_a_message_without_anything_arrives(kind: Kind) -> None:
    with two_bells() as (manager, worker):
        worker.ring(kind)

        assert manager.hear() == Message(kind)
        assert manager.hear() is None


@pytest.mark.parametrize("kind", SENT)
def test_a_message_with_a_note_and_a_block_arrives(kind: Kind) -> None:
    with two_bells() as (manager, worker):
        block = Block.create(4096)
        block.buffer[:5] = b"hello"

        worker.ring(kind, b"a note", block.fd)
        block.close()
        message = manager.hear()

        assert message is not None
        assert (message.kind, message.note) == (kind, b"a note")
        with contextlib.closing(Block(message.block_fd, 4096)) as same:
            assert bytes(same.buffer[:5]) == b"hello"


def test_a_block_can_come_without_a_note() -> None:
    with two_bells() as (manager, worker):
        block = Block.create(64)
        worker.ring(Kind.READY, block_fd=block.fd)
        block.close()

        message = manager.hear()

        assert message is not None
        assert message.note == b""
        assert os.fstat(message.block_fd).st_size == 64
        os.close(message.block_fd)


@settings(deadline=None, max_examples=50)
@given(notes=st.lists(st.tuples(st.sampled_from(SENT), st.binary(max_size=10_000)), max_size=20))
def test_messages_keep_their_order_and_their_notes(notes: list[tuple[Kind, bytes]]) -> None:
    with two_bells() as (manager, worker):
        for kind, note in notes:
            worker.ring(kind, note)

        heard = [manager.hear() for _ in notes]

        assert heard == [Message(kind, note) for kind, note in notes]
        assert manager.hear() is None


def test_both_sides_speak_at_once() -> None:
    with two_bells() as (manager, worker):
        manager.ring(Kind.RING)
        worker.ring(Kind.RING)
        manager.ring(Kind.CLOSE)
        worker.ring(Kind.CLOSED, b"fine")

        assert [worker.hear(), worker.hear()] == [Message(Kind.RING), Message(Kind.CLOSE)]
        assert [manager.hear(), manager.hear()] == [Message(Kind.RING), Message(Kind.CLOSED, b"fine")]


def test_a_large_note_arrives_whole() -> None:
    note = os.urandom(2**20) * 16
    with two_bells() as (manager, worker):
        worker.ring(Kind.FAILED, note)

        message = manager.hear()

        assert message is not None
        assert message.note == note


def test_a_note_above_the_limit_is_refused_and_nothing_is_sent() -> None:
    note = bytes(NOTE_BYTES_MAX + 1)
    with two_bells() as (manager, worker):
        with pytest.raises(ValueError, match=str(NOTE_BYTES_MAX)):
            worker.ring(Kind.FAILED, note)

        assert manager.hear() is None


def test_a_closed_end_is_heard_as_gone_for_ever() -> None:
    with two_bells() as (manager, worker):
        worker.close()

        assert [manager.hear() for _ in range(3)] == [Message(Kind.GONE)] * 3


def test_what_was_said_before_the_end_is_heard_before_it() -> None:
    with two_bells() as (manager, worker):
        worker.ring(Kind.RING)
        worker.ring(Kind.FAILED, b"why")
        worker.close()

        heard = [manager.hear() for _ in range(3)]

        assert heard == [Message(Kind.RING), Message(Kind.FAILED, b"why"), Message(Kind.GONE)]


def test_last_words_are_heard_also_when_the_other_end_closed_without_listening() -> None:
    with two_bells() as (manager, worker):
        manager.ring(Kind.RING)  # the worker fails before it hears this, so the system calls the end a reset
        worker.ring(Kind.FAILED, b"why")
        worker.close()

        heard = [manager.hear() for _ in range(2)]

        assert heard == [Message(Kind.FAILED, b"why"), Message(Kind.GONE)]


def test_ringing_where_nobody_is_raises() -> None:
    with two_bells() as (manager, worker):
        manager.close()

        with pytest.raises(BellBroken):
            worker.ring(Kind.RING)
        with pytest.raises(BellBroken):
            worker.ring(Kind.FAILED, b"why")


def test_rings_that_nobody_hears_are_dropped_once_the_socket_is_full() -> None:
    with two_bells() as (manager, worker):
        for _ in range(10_000):
            worker.ring(Kind.RING)

        n_heard = 0
        while manager.hear() is not None:
            n_heard += 1

        assert 1 <= n_heard < 10_000


@pytest.mark.parametrize(("kind", "note"), [(Kind.CLOSE, b""), (Kind.FAILED, b"why")])
def test_anything_but_a_ring_for_a_full_socket_raises(kind: Kind, note: bytes) -> None:
    with two_bells() as (_, worker):
        for _ in range(10_000):
            worker.ring(Kind.RING)

        with pytest.raises(BellBroken, match="stopped listening"):
            worker.ring(kind, note)


@pytest.mark.parametrize("frame", [b"", b"short", bytes(16), b"\xff" * 16, bytes(100)])
def test_what_is_no_message_is_heard_as_the_end_and_not_as_an_error(frame: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with contextlib.closing(Bell(ours)) as bell, theirs:
        theirs.send(frame)  # an env that writes to a descriptor it does not own

        assert bell.hear() == Message(Kind.GONE)


def test_a_thousand_messages_with_all_they_can_carry_leave_no_descriptor() -> None:
    with two_bells() as (manager, worker):
        before = open_descriptors()
        for number in range(1000):
            block = Block.create(64)
            worker.ring(Kind.READY, str(number).encode(), block.fd)
            block.close()
            message = manager.hear()
            assert message is not None
            os.close(message.block_fd)

        assert open_descriptors() == before


def test_messages_that_nobody_hears_leave_no_descriptor() -> None:
    before = open_descriptors()

    with two_bells() as (_, worker):
        for _ in range(100):
            worker.ring(Kind.FAILED, b"why")

    assert open_descriptors() == before


def test_descriptors_that_arrive_are_not_inherited_by_other_programs() -> None:
    with two_bells() as (manager, worker):
        block = Block.create(64)
        worker.ring(Kind.READY, block_fd=block.fd)
        block.close()

        message = manager.hear()

        assert message is not None
        assert not os.get_inheritable(message.block_fd)
        os.close(message.block_fd)


def test_the_bell_of_a_worker_is_kept_from_its_own_children() -> None:
    manager, theirs = Bell.pair()
    os.set_inheritable(theirs.fileno(), True)

    worker = Bell.inherited(theirs.detach())

    with contextlib.closing(manager), contextlib.closing(worker):
        assert not os.get_inheritable(worker.fd)
        manager.ring(Kind.CLOSE)
        assert worker.hear() == Message(Kind.CLOSE)


def test_a_message_wakes_whoever_waits_for_it() -> None:
    with two_bells() as (manager, worker):
        timer = threading.Timer(0.02, manager.ring, [Kind.JOB, b"work"])
        timer.start()

        message = worker.wait_and_hear()
        timer.join(PATIENCE_S)

        assert message == Message(Kind.JOB, b"work")


def test_the_end_of_the_manager_wakes_a_worker_that_waits() -> None:
    with two_bells() as (manager, worker):
        timer = threading.Timer(0.02, manager.close)
        timer.start()

        message = worker.wait_and_hear()
        timer.join(PATIENCE_S)

        assert message == Message(Kind.GONE)


def test_hearing_never_blocks() -> None:
    with two_bells() as (manager, _):
        begun = time.monotonic()

        for _ in range(100):
            assert manager.hear() is None

        assert time.monotonic() - begun < PATIENCE_S


def test_a_bell_that_was_closed_says_so_and_can_be_closed_again() -> None:
    with two_bells() as (manager, worker):
        manager.close()
        manager.close()

        assert manager.fd == -1
        assert wait_readable(worker.fd, Deadline.after(PATIENCE_S))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit counts descriptors by their numbers on Linux")
def test_a_process_without_a_free_descriptor_is_told_so() -> None:
    with two_bells() as (manager, worker):
        worker.ring(Kind.FAILED, b"why")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        before = open_descriptors()
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(set(range(soft)) - set(before)), hard))
        try:
            with pytest.raises(OSError, match="no descriptor left") as caught:
                manager.hear()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        assert caught.value.errno == errno.EMFILE
        assert open_descriptors() == before
