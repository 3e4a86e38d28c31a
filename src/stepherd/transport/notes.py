"""The notes that ride on a bell: what to build, what was built, why it failed, how it closed.

Our own plain dataclasses are pickled. What user code made (a factory) travels as bytes that only the worker opens;
what it raised travels as text, never as a pickled exception, so the manager never runs foreign code.
"""

from __future__ import annotations

import pickle
import signal
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stepherd.spec.specs import EnvSpec

T = TypeVar("T")

STACK_SIGNAL: int | None = getattr(signal, "SIGUSR2", None)
"""What a manager sends when a worker is to write its Python stack into its log; none on Windows."""


@dataclass(frozen=True, slots=True)
class Job:
    """To a worker: which envs to build, and in what surroundings."""

    env: str | bytes
    """A URI, or a factory pickled with cloudpickle."""
    env_kwargs: bytes
    """The factory's keyword arguments, a pickled dict."""
    env_ids: tuple[int, ...]
    sys_path: tuple[str, ...]
    """The manager's, so that whatever it can import, the worker can."""


@dataclass(frozen=True, slots=True)
class Ready:
    """To the manager: the envs stand. The block comes with the same message."""

    spec: EnvSpec


@dataclass(frozen=True, slots=True)
class Failure:
    """To the manager: user code raised, or broke its own spec."""

    error: str
    """`ValueError: the message`."""
    traceback: str
    """As Python prints it, cut to the env's own frames; empty when the message says everything."""


@dataclass(frozen=True, slots=True)
class Closing:
    """To the manager: the worker's last words. Counters are in the block; these are the errors on the way out."""

    problems: tuple[str, ...] = field(default=())


def write_note(note: Job | Ready | Failure | Closing) -> bytes:
    """Return the note as bytes."""
    return pickle.dumps(note, protocol=pickle.HIGHEST_PROTOCOL)


def read_note(data: bytes, expected: type[T]) -> T:
    """Return the note in `data`.

    Raises:
        TypeError: it is not an `expected`; the two sides do not run the same Stepherd.
    """
    note: Any = pickle.loads(data)  # noqa: S301 - from our own worker or manager, over a private socket
    if not isinstance(note, expected):
        raise TypeError(f"expected a {expected.__name__} note, got {type(note).__name__}")
    return note
