"""The control lines of a block: what was asked, what was answered, and what the worker is doing right now.

Each number has one writer. The manager writes an env's `command`, `seed` and then its `request`; the worker writes
the rows and then `done`. Both are numbers that only grow, so an answer that belongs to an older question shows.
The worker's own line survives its death in the manager's mapping: it tells in which phase the worker died, and how
many steps its envs have really begun.
"""

from __future__ import annotations

import enum

LINE_WORDS = 8  # 64 bytes, a cache line of its own per worker and per env
_WORD_BYTES = 8

# The worker's line.
_PHASE, _PHASE_ENV, _PHASE_SINCE_NS, _BUSY_NS = range(4)
# An env's line; the first three are the manager's, the rest the worker's.
_REQUEST, _COMMAND, _SEED, _DONE, _BEGUN, _FINISHED, _EPISODES = range(7)

NO_SEED = 2**63  # seeds are below this


class Phase(enum.IntEnum):
    """What a worker is doing."""

    SPAWNING = 0  # also what fresh memory says
    IDLE = 1
    RESETTING = 2
    STEPPING = 3
    CLOSING = 4


class Command(enum.IntEnum):
    """What the manager wants of an env."""

    RESET = 1
    STEP = 2


def control_bytes(n_envs: int) -> int:
    """Bytes of the control lines of a worker with `n_envs` envs."""
    return (1 + n_envs) * LINE_WORDS * _WORD_BYTES


class Control:
    """The control lines of one block. `env` counts the worker's own envs from 0."""

    def __init__(self, buffer: memoryview, n_envs: int) -> None:
        self._words = buffer[: control_bytes(n_envs)].cast("Q")

    def release(self) -> None:
        """Give up the view, so that the block can be unmapped."""
        self._words.release()

    # Written by the manager.

    def ask(self, env: int, command: Command, seed: int | None = None) -> None:
        """Ask for a command; its arguments first, then the number that makes it valid."""
        line = (1 + env) * LINE_WORDS
        self._words[line + _COMMAND] = command
        self._words[line + _SEED] = NO_SEED if seed is None else seed
        self._words[line + _REQUEST] += 1

    # Written by the worker.

    def enter(self, phase: Phase, env: int, now_ns: int) -> None:
        """Note that the worker is in `phase` with `env` since `now_ns` (`time.monotonic_ns`)."""
        words = self._words
        words[_PHASE_SINCE_NS] = now_ns
        words[_PHASE_ENV] = env
        words[_PHASE] = phase

    def add_busy(self, ns: int) -> None:
        """Count time spent inside envs."""
        self._words[_BUSY_NS] += ns

    def begin_step(self, env: int) -> None:
        """Count a step about to be executed."""
        self._words[(1 + env) * LINE_WORDS + _BEGUN] += 1

    def finish_step(self, env: int, ended: bool) -> None:
        """Count a step executed to its end, and the episode it may have ended."""
        line = (1 + env) * LINE_WORDS
        self._words[line + _FINISHED] += 1
        self._words[line + _EPISODES] += ended

    def answer(self, env: int, request: int) -> None:
        """Publish the answer to a request; everything it consists of must have been written."""
        self._words[(1 + env) * LINE_WORDS + _DONE] = request

    # Read by either.

    def request(self, env: int) -> int:
        """Return the number of the last request."""
        return self._words[(1 + env) * LINE_WORDS + _REQUEST]

    def done(self, env: int) -> int:
        """Return the number of the last request that was answered."""
        return self._words[(1 + env) * LINE_WORDS + _DONE]

    def command(self, env: int) -> tuple[Command, int | None]:
        """Return the last request and its seed."""
        line = (1 + env) * LINE_WORDS
        seed = self._words[line + _SEED]
        return Command(self._words[line + _COMMAND]), None if seed == NO_SEED else seed

    def begun(self, env: int) -> int:
        """Return how many steps this env has begun to execute."""
        return self._words[(1 + env) * LINE_WORDS + _BEGUN]

    def finished(self, env: int) -> int:
        """Return how many steps this env has executed to their end."""
        return self._words[(1 + env) * LINE_WORDS + _FINISHED]

    def episodes(self, env: int) -> int:
        """Return how many episodes this env has ended."""
        return self._words[(1 + env) * LINE_WORDS + _EPISODES]

    def phase(self) -> tuple[Phase, int, float]:
        """Return what the worker is doing, with which env, and since when (seconds of `time.monotonic`)."""
        words = self._words
        return Phase(words[_PHASE]), words[_PHASE_ENV], words[_PHASE_SINCE_NS] / 1e9

    def busy_s(self) -> float:
        """Return the seconds the worker has spent inside its envs so far."""
        return self._words[_BUSY_NS] / 1e9
