"""The soaking process as seen from outside: start it, hear it, ask where it hangs, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import IO, Any

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.testing.soak_plan import CyclePlan
from stepherd.testing.soak_record import SoakSettings
from stepherd.testing.soak_runner import STACK_SIGNAL, Unpacker, pack

END_S = 5.0  # for a process that has nothing more to do to end
STACK_S = 1.0  # for a process that hangs to say where
TAIL_CHARACTERS = 4000
# Without the current folder, where a file called `queue.py` or `random.py` would be taken for Python's own.
START = (
    "import sys; sys.path[:1] = filter(None, sys.path[:1]); "
    "from stepherd.testing.soak_runner import main; sys.exit(main())"
)


class RunnerEnded(Exception):
    """The soaking process ended though nobody asked it to; the message says how, and what it last said."""


class SoakProcess:
    """A process that runs cycles. Use it in a `with` block: at its end the process is gone, and so are its pools."""

    def __init__(self, settings: SoakSettings) -> None:
        """Start it. It has a session of its own: a Ctrl-C at the terminal is not for it."""
        self._errors = _open_errors()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise
        self._unpacker = Unpacker()
        self.configure(settings)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def configure(self, settings: SoakSettings) -> None:
        """Give it its settings, at first or anew between two cycles."""
        self._send(settings)

    def run(self, plan: CyclePlan) -> None:
        """Have it run a cycle, after the one before was done."""
        self._send(plan)

    def stop(self) -> None:
        """Have it cut its cycle short, tell the record and end. Twice is fine."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def hear(self, deadline: Deadline) -> list[Any]:
        """Return what it has said, an empty list when that is nothing. Blocks until `deadline` at the latest.

        Raises:
            RunnerEnded: it has ended.
        """
        assert self._process.stdout is not None
        if not wait_readable(self._process.stdout.fileno(), deadline):
            return []
        piece = self._process.stdout.read(2**16)
        if not piece:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
            raise RunnerEnded(f"the soaking process ended ({self._process.returncode}): {self._said()}")
        return self._unpacker.feed(piece)

    def stack(self) -> str:
        """Return where it is, by its own account; empty when it cannot tell. Blocks for a second."""
        if STACK_SIGNAL is None:
            return ""
        self._process.send_signal(STACK_SIGNAL)
        assert self._process.stdout is not None
        wait_readable(self._process.stdout.fileno(), Deadline.after(STACK_S))  # it says nothing; that is the point
        return self._said()

    def strike(self, name: str) -> None:
        """Send the process, and nobody else, the signal called `name`; wait for its end."""
        self._process.send_signal(signal.Signals[name])
        self._process.wait(END_S)

    def kill(self) -> None:
        """Kill it; its pools are gone within two seconds. Twice is fine."""
        self._process.kill()
        self._process.wait(END_S)

    def __enter__(self) -> SoakProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
            if error is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
        finally:
            self.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._errors.close()

    def _send(self, message: SoakSettings | CyclePlan) -> None:
        assert self._process.stdin is not None
        data = memoryview(pack(message))
        with contextlib.suppress(BrokenPipeError):  # then it has ended, which `hear` tells better
            while data:
                data = data[os.write(self._process.stdin.fileno(), data) :]

    def _said(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - TAIL_CHARACTERS))
        return self._errors.read(TAIL_CHARACTERS).decode(errors="replace").strip() or "it said nothing"


def _open_errors() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="stepherd-soak-errors-")
