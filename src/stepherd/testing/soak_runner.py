"""The process that owns the pools of a soak; `soak_process` starts it.

It is a process of its own so that somebody outside can see it hang, and can kill it on purpose. Standard input brings
the settings and then, as the name of each cycle, a plan; its end means: stop. Standard output takes what it has to say.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import logging
import os
import pickle
import signal
import struct
import sys
from typing import Any, BinaryIO

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.testing.soak_cycle import run_cycle
from stepherd.testing.soak_plan import CyclePlan
from stepherd.testing.soak_record import NeverReady, SoakSettings

HEADER = struct.Struct("<I")
STACK_SIGNAL: int | None = getattr(signal, "SIGUSR1", None)
"""Makes the process write where it is to its standard error; none on Windows."""


def pack(message: object) -> bytes:
    """Return a message as bytes that say how many they are."""
    data = pickle.dumps(message)
    return HEADER.pack(len(data)) + data


class Unpacker:
    """Puts messages together from pieces of any length."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, piece: bytes) -> list[Any]:
        """Return the messages that this piece completes."""
        self._data += piece
        messages = []
        while len(self._data) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._data)
            if len(self._data) < HEADER.size + size:
                break
            messages.append(pickle.loads(self._data[HEADER.size : HEADER.size + size]))  # noqa: S301 - our own process
            del self._data[: HEADER.size + size]
        return messages


def main() -> int:
    """Run the cycles that are asked for; return the exit code."""
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    words = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # a stray print must not be taken for a message
    _leave_no_cores()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started us to interpret
    if STACK_SIGNAL is not None and hasattr(faulthandler, "register"):
        faulthandler.register(STACK_SIGNAL)
    logging.getLogger("stepherd").addHandler(logging.NullHandler())  # every fault would be a warning
    with orders, words:
        try:
            _serve(orders, words)
        except BrokenPipeError:
            return 1  # nobody listens any more
    return 0


def _leave_no_cores() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # does not exist on Windows
        resource: Any = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _serve(orders: BinaryIO, words: BinaryIO) -> None:
    def tell(message: object) -> None:
        data = memoryview(pack(message))
        while data:
            data = data[words.write(data) :]

    def wants_to_stop() -> bool:
        return wait_readable(orders.fileno(), Deadline.after(0.0))  # nothing but the end comes during a cycle

    settings: SoakSettings | None = None
    unpacker = Unpacker()
    while piece := orders.read(2**16):
        for message in unpacker.feed(piece):
            if isinstance(message, SoakSettings):
                settings = message
                sys.path[:] = settings.sys_path
                continue
            assert isinstance(message, CyclePlan), message
            assert settings is not None, "a plan came before the settings"
            record, refusal = run_cycle(settings, message, tell, wants_to_stop)
            if refusal is not None and message.cycle == 0:
                tell(NeverReady(str(refusal)))
            tell(record)
