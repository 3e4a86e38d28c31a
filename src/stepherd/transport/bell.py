"""The bell: a message socket between one manager and one worker, for small fixed-size messages.

A message is sixteen bytes, whole or not at all, so half a message cannot exist and nobody waits for the rest of
one. What does not fit rides along as descriptors of anonymous memory: a *note* (bounded text or pickled plain data)
and, once a worker is ready, its block. This is one of three modules that ask which platform they are on.
"""

from __future__ import annotations

import array
import contextlib
import enum
import errno
import os
import socket
import struct
import sys
from dataclasses import dataclass

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.transport.block import memory_of, take_memory

NOTE_BYTES_MAX = 64 * 2**20  # a factory with a large model in its closure fits; a runaway traceback does not
IDLE_TICK_S = 60.0  # how long a worker sleeps at a stretch while nothing is asked of it
_FRAME = struct.Struct("<IIq")  # kind, which descriptors follow (1 note, 2 block), length of the note
_FDS_MAX = 2


class Kind(enum.IntEnum):
    """What a message says."""

    JOB = 1  # to the worker: what to build (note)
    READY = 2  # to the manager: built; the spec (note) and the block
    RING = 3  # either way: look into the block
    FAILED = 4  # to the manager: the env raised; why (note)
    CLOSE = 5  # to the worker: close the envs and end
    CLOSED = 6  # to the manager: closed; how it went (note)
    GONE = 7  # never sent: the other end has closed


@dataclass(frozen=True, slots=True)
class Message:
    """One message as heard. `block_fd` is the receiver's to close; -1 when none came along."""

    kind: Kind
    note: bytes = b""
    block_fd: int = -1


class BellBroken(Exception):
    """A ring could not be delivered: the other end is gone, or has stopped listening. Never leaves the library."""


class Bell:
    """One end of the socket. Owns its descriptor."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)

    @classmethod
    def pair(cls) -> tuple[Bell, socket.socket]:
        """Return the manager's bell and the socket that a worker inherits."""
        if sys.platform == "win32":
            raise NotImplementedError("message sockets on Windows")
        else:  # noqa: RET506 - mypy needs the branch to know the platform
            kind = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
            ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
            return cls(ours), theirs

    @classmethod
    def inherited(cls, fd: int) -> Bell:
        """Return the worker's bell from the descriptor it was started with, and keep it from its own children."""
        os.set_inheritable(fd, False)
        return cls(socket.socket(fileno=fd))

    @property
    def fd(self) -> int:
        """The descriptor to wait for; -1 once closed."""
        return self._socket.fileno()

    def ring(self, kind: Kind, note: bytes = b"", block_fd: int = -1) -> None:
        """Send a message. Never blocks.

        Raises:
            BellBroken: the other end is gone or hears nothing any more.
            ValueError: the note is longer than `NOTE_BYTES_MAX`.
        """
        if len(note) > NOTE_BYTES_MAX:
            raise ValueError(f"a note of {len(note)} bytes is above the limit of {NOTE_BYTES_MAX}")
        frame = _FRAME.pack(kind, bool(note) | (block_fd >= 0) << 1, len(note))
        try:
            if not note and block_fd < 0:
                self._socket.send(frame)
                return
            with contextlib.ExitStack() as stack:
                fds = []
                if note:
                    note_fd = memory_of(note)
                    stack.callback(os.close, note_fd)
                    fds.append(note_fd)
                if block_fd >= 0:
                    fds.append(block_fd)
                _send_with_fds(self._socket, frame, fds)
        except BlockingIOError as error:
            if kind is not Kind.RING:  # a socket full of unread rings already says "look into the block"
                raise BellBroken("the other end has stopped listening") from error
        except OSError as error:
            raise BellBroken(str(error)) from error

    def hear(self) -> Message | None:
        """Take the next message; `None` when nothing has come, GONE when nothing can any more. Never blocks.

        What is no message of ours is GONE too: some code writes to descriptors that are not its own.

        Raises:
            OSError: a message came with descriptors, and this process has none left for them.
        """
        try:
            frame, fds = _receive_with_fds(self._socket)
        except BlockingIOError:
            return None
        except ConnectionError:
            return Message(Kind.GONE)
        try:
            return _read_message(frame, fds)
        except ValueError:
            return Message(Kind.GONE)
        finally:
            for fd in fds:
                os.close(fd)

    def wait_and_hear(self) -> Message:
        """Wait for the next message. Only a worker may: the wait ends with the manager's life at the latest (GONE)."""
        while (message := self.hear()) is None:
            wait_readable(self.fd, Deadline.after(IDLE_TICK_S))
        return message

    def close(self) -> None:
        """Hang up: the other end hears GONE. Twice is fine."""
        self._socket.close()


def _read_message(frame: bytes, fds: list[int]) -> Message:
    """Return the message in a frame; takes the descriptors that belong to it out of `fds`."""
    if len(frame) != _FRAME.size:
        raise ValueError("the other end has closed, or this is no frame")
    kind, which, size = _FRAME.unpack(frame)
    if not which:
        return Message(Kind(kind))
    if which > 3 or len(fds) != which.bit_count():
        raise ValueError("no frame of ours")
    note = take_memory(fds.pop(0), size) if which & 1 else b""
    return Message(Kind(kind), note, fds.pop(0) if which & 2 else -1)


def _send_with_fds(end: socket.socket, frame: bytes, fds: list[int]) -> None:
    if sys.platform == "win32":
        raise NotImplementedError("descriptors on Windows")
    else:  # noqa: RET506
        end.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


def _receive_with_fds(end: socket.socket) -> tuple[bytes, list[int]]:
    if sys.platform == "win32":
        raise NotImplementedError("descriptors on Windows")
    else:  # noqa: RET506
        fds = array.array("i")
        room = socket.CMSG_SPACE(_FDS_MAX * fds.itemsize)
        try:
            frame, ancillary, flags, _ = end.recvmsg(_FRAME.size, room)
        except ConnectionResetError:
            # The other end closed before it had heard all we said. The system says so once, ahead of what the other
            # end said before: its last words.
            frame, ancillary, flags, _ = end.recvmsg(_FRAME.size, room)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if flags & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise OSError(errno.EMFILE, "no descriptor left for what a worker sent; raise the limit (`ulimit -n`)")
        for fd in fds:
            os.set_inheritable(fd, False)
        return frame, list(fds)
