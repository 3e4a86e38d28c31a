"""What was experienced since the last update: arrays over (step, slot), every slot with its own clock.

A slot is one agent place of one env. Row `clock[slot]` of its column is the action in flight, the rows before are
finished transitions:

    slot 0   T T T T P          T  finished transition      clock 4, pending
    slot 1   T T|T T T W        P  action in flight         clock 5, waiting: finished, but nobody acted on since
    slot 2   P                  |  cut: no advantage flows from the right of it to the left

    advantage[t] = reward[t] + gamma * next_value[t] - value[t]  +  gamma * lambd * (1 - cut[t]) * advantage[t + 1]

`next_value` says what follows the transition: 0 after a termination, the value of the last observation after an
interruption, otherwise the value of the observation on which the slot acted next. Knows nothing of networks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepherd.rl.observations import FloatArray
from stepherd.spec.batch import Bools, Ints


@dataclass(frozen=True, slots=True)
class RolloutRows:
    """All finished transitions, in arrays of their own: (n,), (n, width), ..."""

    obs: FloatArray
    continuous: FloatArray
    discrete: Ints
    log_prob: FloatArray
    value: FloatArray
    advantage: FloatArray
    """Generalised advantage estimates, not normalised."""

    @property
    def target(self) -> FloatArray:
        """(n,): the lambda-returns, what the critic should have said."""
        target: FloatArray = self.advantage + self.value
        return target


class Rollout:
    """Filled by `begin` (an action was chosen), `earn` and `finish` (its answer came); emptied by `clear`.

    `slots` arguments are arrays of distinct slot numbers; the arrays grow when a slot or a step needs more room.
    """

    def __init__(
        self, *, width: int, n_continuous: int, n_branches: int, n_slots: int, n_steps: int, time_horizon: int
    ) -> None:
        assert min(width, n_slots, n_steps, time_horizon) >= 1, (width, n_slots, n_steps, time_horizon)
        self._time_horizon = time_horizon
        grid = (n_steps, n_slots)
        self.obs: FloatArray = np.zeros((*grid, width), dtype=np.float32)
        """(steps, slots, width): as the network saw them, normalised."""
        self.continuous: FloatArray = np.zeros((*grid, n_continuous), dtype=np.float32)
        self.discrete: Ints = np.zeros((*grid, n_branches), dtype=np.int64)
        self.log_prob: FloatArray = np.zeros(grid, dtype=np.float32)
        self.value: FloatArray = np.zeros(grid, dtype=np.float32)
        self.reward: FloatArray = np.zeros(grid, dtype=np.float32)
        self.next_value: FloatArray = np.zeros(grid, dtype=np.float32)
        self.cut: Bools = np.zeros(grid, dtype=np.bool_)
        self.clock: Ints = np.zeros(n_slots, dtype=np.int64)
        """(slots,): finished transitions of each slot."""
        self.pending: Bools = np.zeros(n_slots, dtype=np.bool_)
        """(slots,): an action is in flight, in row `clock`."""
        self.waiting: Bools = np.zeros(n_slots, dtype=np.bool_)
        """(slots,): the last transition does not know its `next_value` yet; `waiting_obs` is what it led to."""
        self.waiting_obs: FloatArray = np.zeros((n_slots, width), dtype=np.float32)
        """(slots, width): encoded, not normalised."""
        self._since_cut: Ints = np.zeros(n_slots, dtype=np.int64)
        self.size = 0
        """Finished transitions of all slots."""

    @property
    def n_slots(self) -> int:
        """Number of columns."""
        return len(self.clock)

    def make_room(self, slots: Ints) -> None:
        """Grow so that every one of `slots` exists and has a free row."""
        n_slots = int(slots.max(initial=-1)) + 1
        n_steps = int(self.clock.max()) + 1
        if n_slots > self.n_slots or n_steps > len(self.log_prob):
            self._grow(n_steps, n_slots)

    def begin(
        self,
        slots: Ints,
        obs: FloatArray,
        continuous: FloatArray,
        discrete: Ints,
        log_prob: FloatArray,
        value: FloatArray,
    ) -> None:
        """Note that `slots` act on `obs`; the transitions that led there learn the value of what followed them."""
        assert not self.pending[slots].any(), "a slot acts again before its last action was answered: call record first"
        row = self.clock[slots]
        self.obs[row, slots] = obs
        self.continuous[row, slots] = continuous
        self.discrete[row, slots] = discrete
        self.log_prob[row, slots] = log_prob
        self.value[row, slots] = value
        self.reward[row, slots] = 0.0
        waiting = self.waiting[slots]
        if waiting.any():
            self.next_value[row[waiting] - 1, slots[waiting]] = value[waiting]
            self.waiting[slots] = False
        self.pending[slots] = True

    def earn(self, slots: Ints, reward: FloatArray) -> None:
        """Add `reward` to the pending transitions of `slots`; it may come in several parts."""
        self.reward[self.clock[slots], slots] += reward

    def finish(self, slots: Ints, ended: Bools, next_value: FloatArray, next_obs: FloatArray) -> None:
        """Turn the pending transitions of `slots` into finished ones.

        `next_value` counts for episodes that `ended`, `next_obs` (encoded, not normalised) for those that did not.
        """
        assert self.pending[slots].all(), "a transition finishes that never began"
        row = self.clock[slots]
        self.next_value[row, slots] = next_value
        length = self._since_cut[slots] + 1
        cut = ended | (length >= self._time_horizon)
        self.cut[row, slots] = cut
        self._since_cut[slots] = np.where(cut, 0, length)
        self.clock[slots] = row + 1
        self.pending[slots] = False
        self.waiting[slots] = ~ended
        self.waiting_obs[slots] = next_obs
        self.size += len(slots)

    def bootstrap(self, slots: Ints, value: FloatArray) -> None:
        """Set the `next_value` of waiting `slots`, the value of their `waiting_obs`. Acting on may still replace it."""
        assert self.waiting[slots].all(), "only a waiting slot has an open end"
        self.next_value[self.clock[slots] - 1, slots] = value

    def abandon(self, slots: Ints) -> None:
        """Drop what is pending in `slots` and end their segments at the last finished transition.

        That transition keeps its `next_value`: the value of the observation it truly led to. A waiting slot must be
        bootstrapped before.
        """
        started = slots[self.clock[slots] > 0]
        self.cut[self.clock[started] - 1, started] = True
        self.pending[slots] = False
        self.waiting[slots] = False
        self._since_cut[slots] = 0

    def rows(self, gamma: float, lambd: float, strength: float = 1.0) -> RolloutRows:
        """Return all finished transitions with their advantages, in order of step, then slot.

        Rewards count `strength` times; they are kept as the envs gave them. Every waiting slot must have been
        bootstrapped.
        """
        n_steps = int(self.clock.max())
        finished = np.arange(n_steps)[:, None] < self.clock
        advantage = self._advantages(finished, gamma, lambd, strength)
        return RolloutRows(
            obs=self.obs[:n_steps][finished],
            continuous=self.continuous[:n_steps][finished],
            discrete=self.discrete[:n_steps][finished],
            log_prob=self.log_prob[:n_steps][finished],
            value=self.value[:n_steps][finished],
            advantage=advantage[finished],
        )

    def _advantages(self, finished: Bools, gamma: float, lambd: float, strength: float) -> FloatArray:
        """(steps, slots): backwards through time, all slots at once; 0 where nothing is finished.

        The zeros beyond a slot's clock are also what ends its last segment: nothing flows back out of them.
        """
        n_steps = len(finished)
        delta = (
            np.float32(strength) * self.reward[:n_steps]
            + np.float32(gamma) * self.next_value[:n_steps]
            - self.value[:n_steps]
        )
        advantage: FloatArray = np.where(finished, delta, np.float32(0.0))
        flow = np.float32(gamma * lambd) * ~self.cut[:n_steps]
        for step in range(n_steps - 2, -1, -1):
            advantage[step] += flow[step] * advantage[step + 1]
        return advantage

    def clear(self) -> None:
        """Forget the finished transitions. Actions in flight stay, as the first of what comes next."""
        slots = np.flatnonzero(self.pending)
        row = self.clock[slots]
        for column in self._grids():
            column[0, slots] = column[row, slots]
        self.clock[:] = 0
        self.waiting[:] = False
        self._since_cut[:] = 0
        self.size = 0

    def close_segments(self) -> None:
        """End every segment where it is, as after the loss of all envs."""
        self.abandon(np.arange(self.n_slots))

    def finished_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return copies of everything finished, by the names of the attributes; nothing of what is in flight."""
        n_steps = int(self.clock.max())
        finished = np.arange(n_steps)[:, None] < self.clock
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        for name, grid in zip(GRID_NAMES, self._grids(), strict=True):
            arrays[name] = grid[:n_steps].copy()
            arrays[name][~finished] = 0
        arrays["clock"] = self.clock.copy()
        return arrays

    def restore(self, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        """Take over the `finished_arrays` of a checkpoint, which may come from another number of slots."""
        n_steps, n_slots = arrays["log_prob"].shape
        self._grow(n_steps, n_slots)
        for name, grid in zip(GRID_NAMES, self._grids(), strict=True):
            grid[:n_steps, :n_slots] = arrays[name]
        self.clock[:] = 0
        self.clock[:n_slots] = arrays["clock"]
        self.size = int(self.clock.sum())
        self.close_segments()

    def _grids(self) -> list[npt.NDArray[np.generic]]:
        return [getattr(self, name) for name in GRID_NAMES]

    def _grow(self, n_steps: int, n_slots: int) -> None:
        """Make room for at least so many steps and slots: steps by doubling, slots exactly."""
        old_steps, old_slots = self.log_prob.shape
        steps = old_steps if n_steps <= old_steps else max(n_steps, 2 * old_steps)
        slots = max(n_slots, old_slots)
        for name in GRID_NAMES:
            setattr(self, name, _padded(getattr(self, name), (steps, slots)))
        for name in ("clock", "pending", "waiting", "waiting_obs", "_since_cut"):
            setattr(self, name, _padded(getattr(self, name), (slots,)))


GRID_NAMES = ("obs", "continuous", "discrete", "log_prob", "value", "reward", "next_value", "cut")
"""The attributes whose first axes are (steps, slots)."""


def _padded(array: npt.NDArray[np.generic], leading: tuple[int, ...]) -> npt.NDArray[np.generic]:
    """Return `array` with zeros at the end of its first axes, which become `leading`."""
    padded = np.zeros((*leading, *array.shape[len(leading) :]), dtype=array.dtype)
    padded[tuple(slice(0, n) for n in array.shape[: len(leading)])] = array
    return padded
