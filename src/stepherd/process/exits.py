"""How a process ended, in words a person can act on."""

from __future__ import annotations

import signal
from dataclasses import dataclass

HINTS = {
    "SIGKILL": "often the kernel's out-of-memory killer, or a `kill -9`",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "native code gave up: a failed assertion or an uncaught C++ exception",
    "SIGBUS": "a crash in native code, or no memory left behind a mapping",
    "SIGFPE": "an arithmetic error in native code",
    "SIGILL": "native code built for another processor",
    "SIGTERM": "someone asked it to end",
    "SIGINT": "an interrupt",
    "SIGXCPU": "a limit on processor time",
    "SIGHUP": "its terminal was closed",
}


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a process: an exit code, the signal that killed it, or neither when that was lost."""

    code: int | None
    """0-255, or `None` when it did not end by itself."""
    signal: int | None = None
    core_dumped: bool = False

    @property
    def clean(self) -> bool:
        """Whether it ended by itself with code 0."""
        return self.code == 0

    @property
    def unknown(self) -> bool:
        """Whether it has ended but how was lost, because something else in this program reaped it."""
        return self.code is None and self.signal is None

    @property
    def plain(self) -> str:
        """The same without guessing why: for whoever knows, having sent the signal."""
        return str(self) if self.signal is None else f"killed by {signal_name(self.signal)}"

    def __str__(self) -> str:
        if self.unknown:
            return "ended, how is not known: something else in this program waits for all children or ignores SIGCHLD"
        if self.signal is None:
            return f"exited with code {self.code}"
        name = signal_name(self.signal)
        hint = HINTS.get(name)
        dumped = "; a core dump was written" if self.core_dumped else ""
        return f"killed by {name}" + (f" ({hint}{dumped})" if hint else dumped)


def signal_name(number: int) -> str:
    """Return "SIGKILL" for 9, and "signal 64" for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
