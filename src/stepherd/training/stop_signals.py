"""Turns Ctrl-C, SIGTERM and a closed terminal into a request that the training loop looks at.

The first signal asks, the second interrupts at once, later ones are ignored so that nothing disturbs the close, which
has its own bound. Prints nothing and knows nothing of training.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from stepherd.core.deadline import Clock

ECHO_S = 0.1  # a wrapper (make, uv, a container's init) passes on the signal that the terminal sent us too


class StopNow(BaseException):
    """A second signal came: leave at once. Not an `Exception`, so nobody catches it by accident."""


class Stop:
    """What `stop_signals` has received so far. True once a stop was requested. Stays readable after the block."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._signal: signal.Signals | None = None
        self._received_at = 0.0
        self._is_deaf = False
        self._is_at_once = False

    @property
    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self._signal is not None

    @property
    def signal(self) -> signal.Signals | None:
        """The first signal that arrived."""
        return self._signal

    @property
    def exit_code(self) -> int | None:
        """What the process should exit with, as shells have it: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP."""
        return None if self._signal is None else 128 + int(self._signal)

    def __bool__(self) -> bool:
        return self.requested

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Take a signal in; this is the handler.

        Raises:
            StopNow: it is the second one.
        """
        del frame
        received = signal.Signals(number)
        if self._signal is None:
            self._signal, self._received_at = received, self._clock()
            if self._is_at_once and not self._is_deaf:
                self._is_deaf = True
                raise StopNow(f"{received.name} asked to stop before anything had begun")
            return
        # The kernel and the shell both report a closed terminal: SIGHUP is never somebody losing patience.
        is_echo = received.name == "SIGHUP" or self._clock() - self._received_at < ECHO_S
        if self._is_deaf or is_echo:
            return
        self._is_deaf = True
        raise StopNow(f"{self._signal.name} asked to stop, then {received.name} to stop at once")

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """While the block lasts, the first signal raises `StopNow` already: there is nothing worth finishing yet.

        Raises:
            StopNow: a signal has come, before the block or in it.
        """
        if self._signal is not None:
            raise StopNow(f"{self._signal.name} asked to stop before anything had begun")
        self._is_at_once = True
        try:
            yield
        finally:
            self._is_at_once = False

    def ignore_more(self) -> None:
        """Raise no more `StopNow`."""
        self._is_deaf = True


@contextmanager
def stop_signals(clock: Clock = time.monotonic) -> Iterator[Stop]:
    """Receive SIGINT, SIGTERM, and SIGHUP or SIGBREAK where they exist, until the block is left.

    The first sets `stop.requested`; the second, at least 0.1 s later, raises `StopNow` in the main thread; later ones
    do nothing. The handlers from before are put back. In a thread other than the main one nothing is installed.

    SIGINT and SIGHUP that were ignored at the start stay ignored: `nohup` and `&` in a script mean it, and a Ctrl-C
    at the terminal is then for somebody else. SIGTERM always works. A handler that was not installed from Python
    cannot be put back, so it is left alone.
    """
    stop = Stop(clock)
    if threading.current_thread() is not threading.main_thread():
        yield stop  # Python takes signals in the main thread only
        return
    before = {}
    try:
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
            number: signal.Signals | None = getattr(signal, name, None)
            handler = None if number is None else signal.getsignal(number)
            if number is None or handler is None or (handler is signal.SIG_IGN and name != "SIGTERM"):
                continue
            before[number] = handler
            signal.signal(number, stop.receive)
        yield stop
    finally:
        stop.ignore_more()  # a signal from here on must not keep the handlers from being put back
        for number, handler in before.items():
            signal.signal(number, handler)
