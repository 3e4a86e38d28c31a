"""Which time limit a worker is under: a pure reading of its state and of what its control lines say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepherd.core.deadline import Timeouts
from stepherd.manager.env_worker import EnvWorker, WorkerState
from stepherd.transport.control import Command, Phase

STACK_S = 0.25  # for a late worker to write its Python stack into its log; a stopped one cannot
EXIT_KNOWN_S = 0.5  # between a bell's closing and the exit status of a dying process lie microseconds, not this


@dataclass(frozen=True, slots=True)
class Limit:
    """A number of seconds that counts from a moment."""

    name: str
    """The field of `Timeouts` it comes from; empty for limits of our own."""
    seconds: float
    since: float

    @property
    def due(self) -> float:
        """When the time is up."""
        return self.since + self.seconds


def limit_of(worker: EnvWorker, asked: Sequence[Command], timeouts: Timeouts) -> Limit | None:
    """Return the limit `worker` is under, `None` while nothing is wanted of it; `asked`: the last command by env id."""
    if worker.state is WorkerState.DOWN:
        return None
    if worker.state is WorkerState.GOING:
        return Limit("", STACK_S if worker.verdict else EXIT_KNOWN_S, worker.going_since)
    if worker.state is WorkerState.LEAVING:
        return Limit("grace_s", timeouts.grace_s, worker.going_since)
    if worker.state is WorkerState.SPAWNING:
        return Limit("spawn_s", timeouts.spawn_s, worker.spawned_at)
    owed = worker.owed()
    if not owed:
        return None
    assert worker.memory is not None
    phase, _, since = worker.memory.control.phase()
    since = max(since, worker.asked_at)  # a worker may have stopped right after its last answer, in any phase
    if phase in (Phase.IDLE, Phase.SPAWNING):  # the latter for a moment after it was ready
        resets = any(asked[env_id] is Command.RESET for env_id in owed)
    else:
        resets = phase is Phase.RESETTING
    return Limit("reset_s", timeouts.reset_s, since) if resets else Limit("step_s", timeouts.step_s, since)
