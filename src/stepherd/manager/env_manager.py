"""What learning code and adapters see of a pool of envs: the protocol that every kind of manager keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from stepherd.manager.report import CloseReport
from stepherd.spec.batch import Actions, StepBatch
from stepherd.spec.specs import EnvSpec


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A glance at one worker, for displays."""

    worker_id: int
    pid: int
    state: str
    """One word: "spawning", "idle", "resetting", "stepping", "closing", "down"."""
    n_restarts: int
    n_steps: int
    """Steps delivered so far."""
    busy_s: float
    """Seconds the present process has spent inside its envs."""


class EnvManager(Protocol):
    """A pool of envs, all alike, numbered from 0. Use it in a `with` block, from one thread.

    An env takes one action at a time: `send`, then its answer comes out of a `recv`, in whatever order envs finish.
    """

    @property
    def spec(self) -> EnvSpec:
        """What each env of the pool is."""
        ...

    @property
    def n_envs(self) -> int:
        """How many envs the pool has."""
        ...

    def reset(self, seed: int | None = None) -> StepBatch:
        """Begin new episodes in all envs and return their first observations.

        With a seed, every env is seeded from it, each differently; the first reset without one uses the pool's.
        Answers that were in flight or not taken are discarded, and counted so. Blocks until what was in flight has
        been answered and every env is reset: each of the two for as long as the pool's own deadlines allow.

        Raises:
            TooFewReady: not every env came back in that time.
            WorkerFailed: a worker failed and its restart budget is spent.
        """
        ...

    def send(self, actions: Actions | Mapping[str, Actions], env_ids: Sequence[int] | None = None) -> None:
        """Hand out actions: row i goes to env `env_ids[i]`; all envs in order by default. Never blocks.

        Raises:
            EnvBusy: an env is still in flight or its answer was not taken; nothing was sent.
            ValueError: the arrays do not fit the envs' action spec; nothing was sent.
        """
        ...

    def recv(self, min_envs: int | None = None, within_s: float | None = None) -> StepBatch:
        """Wait until at least `min_envs` envs have answered and return all that have.

        By default every env in flight answers, but nobody waits for a worker that is being replaced: its envs come
        back, marked lost, in a later batch. So send to `batch.env_ids`, not blindly to all.
        The arrays are good until the next `recv` or `reset`; `batch.copy()` keeps them. Blocks for `within_s`; by
        default for as long as the pool's own deadlines allow.

        Raises:
            TooFewReady: time ran out, or fewer envs are in flight than asked for (none at all, by default); the
                answers that did arrive stay queued.
            WorkerFailed: a worker failed and its restart budget is spent.
        """
        ...

    def drain(self, within_s: float | None = None) -> StepBatch:
        """Wait for everything in flight and return all answers; failed workers are not restarted.

        For the end of a run: whatever was on its way arrives. A worker that fails now is in the close report; it
        raises nothing. Blocks like `recv`.
        """
        ...

    def statuses(self) -> Sequence[WorkerStatus]:
        """Return a glance at each worker. Never blocks."""
        ...

    def close(self) -> CloseReport:
        """End all workers and return the account of every step. Twice is fine: the same report.

        Blocks for at most `2 * grace_s + kill_s`, whatever the envs do.
        """
        ...

    def __enter__(self) -> EnvManager: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
