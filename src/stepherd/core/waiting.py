"""The one module that blocks. Every wait has a deadline and wakes on data, on death and on time alike."""

from __future__ import annotations

import selectors
from typing import Generic, TypeVar

from stepherd.core.deadline import Deadline

TICK_S = 0.5  # a wake-up that got lost (a death nobody told us of) costs at most this

Token = TypeVar("Token")


class Waiter(Generic[Token]):
    """A set of descriptors to wait for together. Each stands for a token, which is what a wait returns."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, fd: int, token: Token) -> None:
        """Wait for `fd` to become readable, or its other end to close, from now on."""
        self._selector.register(fd, selectors.EVENT_READ, token)

    def forget(self, fd: int) -> None:
        """Stop waiting for `fd`; call it before closing the descriptor."""
        self._selector.unregister(fd)

    def wait(self, deadline: Deadline) -> list[Token]:
        """Return the tokens that are ready, each once; empty when time ran out.

        Blocks until `deadline` at the latest, and never longer than `TICK_S`.
        """
        ready = self._selector.select(min(deadline.left_s, TICK_S))
        return list(dict.fromkeys(key.data for key, _ in ready))

    def close(self) -> None:
        """Free the descriptor behind the set; those watched stay their owners'."""
        self._selector.close()


def wait_readable(fd: int, deadline: Deadline) -> bool:
    """Wait until `fd` is readable or at its end; return whether it is. Blocks until `deadline` at the latest."""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        return bool(selector.select(deadline.left_s))
