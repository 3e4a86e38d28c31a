"""Which envs are free, in flight, answered or down: a plain data structure, without I/O and without a clock."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from stepherd.core.errors import EnvBusy


class EnvState(enum.IntEnum):
    """Where an env is between the caller and its worker."""

    FREE = 0  # its last answer was taken; it waits for an action
    BUSY = 1  # asked, not answered
    READY = 2  # answered, not taken
    LOST = 3  # answered with the first observation after a restart, not taken
    DOWN = 4  # its worker is being replaced
    RETURNING = 5  # its worker was replaced and is resetting it


@dataclass(frozen=True, slots=True)
class Counts:
    """How many envs are in each state."""

    free: int
    busy: int
    ready: int
    down: int

    def __str__(self) -> str:
        waiting = f"{self.down} being restarted, {self.free} without an action"
        return f"{self.ready} answered, {self.busy} in flight, {waiting}"


class StepQueue:
    """The state of every env of a pool."""

    def __init__(self, n_envs: int) -> None:
        self._states = [EnvState.FREE] * n_envs
        self._tally = [0] * len(EnvState)  # kept up to date: it is read in every turn of every wait
        self._tally[EnvState.FREE] = n_envs

    def __len__(self) -> int:
        return len(self._states)

    def state(self, env_id: int) -> EnvState:
        """Return the state of one env."""
        return self._states[env_id]

    def is_asked(self, env_id: int) -> bool:
        """Return whether an env's worker owes an answer."""
        return self._states[env_id] in (EnvState.BUSY, EnvState.RETURNING)

    def check_sendable(self, env_ids: Iterable[int]) -> None:
        """Check that each env can take an action.

        An env whose worker failed since its last answer takes one too; the caller could not know.

        Raises:
            EnvBusy: one is in flight or its answer was not taken, or an id is not an env of this pool.
        """
        for env_id in env_ids:
            if not 0 <= env_id < len(self._states):
                raise EnvBusy(f"there is no env {env_id}; the pool has envs 0 to {len(self._states) - 1}")
            state = self._states[env_id]
            if state is EnvState.BUSY:
                raise EnvBusy(f"env {env_id} is still working on its last action; `recv` its answer first")
            if state is EnvState.READY:
                raise EnvBusy(f"env {env_id} has answered and its answer was not taken; `recv` it first")

    def mark_busy(self, env_id: int) -> None:
        """Note that an env was asked for something."""
        self._set(env_id, EnvState.BUSY)

    def mark_returning(self, env_id: int) -> None:
        """Note that an env is being reset because its worker was replaced; its caller need not know yet."""
        self._set(env_id, EnvState.RETURNING)

    def mark_ready(self, env_id: int) -> None:
        """Note that an env has answered."""
        assert self.is_asked(env_id), f"env {env_id} answered unasked"
        self._set(env_id, EnvState.READY if self._states[env_id] is EnvState.BUSY else EnvState.LOST)

    def mark_free(self, env_id: int) -> None:
        """Note that an env waits for a first reset."""
        self._set(env_id, EnvState.FREE)

    def mark_down(self, env_id: int) -> None:
        """Note that an env's worker failed, whatever the env was doing."""
        self._set(env_id, EnvState.DOWN)

    def take(self) -> list[tuple[int, bool]]:
        """Free every env that has answered; return their ids in ascending order, each with whether it was lost."""
        taken = []
        for env_id, state in enumerate(self._states):
            if state is EnvState.READY or state is EnvState.LOST:
                taken.append((env_id, state is EnvState.LOST))
                self._set(env_id, EnvState.FREE)
        return taken

    def counts(self) -> Counts:
        """Count the envs in each state."""
        tally = self._tally
        return Counts(
            free=tally[EnvState.FREE],
            busy=tally[EnvState.BUSY],
            ready=tally[EnvState.READY] + tally[EnvState.LOST],
            down=tally[EnvState.DOWN] + tally[EnvState.RETURNING],
        )

    def _set(self, env_id: int, state: EnvState) -> None:
        self._tally[self._states[env_id]] -= 1
        self._tally[state] += 1
        self._states[env_id] = state
