"""The manager's own copy of the rows: answers gathered from the workers' blocks, actions on their way there.

Blocks belong to one worker each; a batch is one array over all of them. So a batch is gathered with one copy per
worker, into memory that only the manager writes: a batch in the caller's hands cannot change under it, and a worker
on its way down can spoil nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from stepherd.manager.env_worker import EnvWorker
from stepherd.spec.batch import Actions, BehaviorSteps, StepBatch
from stepherd.spec.specs import EnvSpec
from stepherd.transport.block import POISON
from stepherd.transport.layout import Layout


class PoolRows:
    """Rows for every env of a pool whose envs share one spec."""

    def __init__(self, spec: EnvSpec, n_envs: int, envs_per_worker: int) -> None:
        self.spec = spec
        self.layout = Layout.of(spec)
        self._envs_per_worker = envs_per_worker
        self._hot = np.full((n_envs, self.layout.hot_bytes), POISON, np.uint8)
        self._cold = np.full((n_envs, self.layout.cold_bytes), POISON, np.uint8)
        self._action_rows = np.zeros((n_envs, self.layout.action_bytes), np.uint8)
        self._actions = self.layout.actions(self._action_rows)
        self._steps = self.layout.steps(self._hot, self._cold)
        self._views: dict[int, dict[str, BehaviorSteps]] = {}

    def write_actions(self, actions: Mapping[str, Actions], env_ids: Sequence[int]) -> None:
        """Take in the actions of some envs; rows of `actions` are in the order of `env_ids`.

        Raises:
            ValueError: a behavior is missing, or an array has not the shape (envs, agent places, n).
        """
        if actions.keys() != self._actions.keys():
            raise ValueError(f"actions are for {sorted(actions)}, but the envs have {sorted(self._actions)}")
        rows: slice | Sequence[int] = env_ids
        if len(env_ids) == len(self._action_rows) and list(env_ids) == list(range(len(env_ids))):
            rows = slice(None)  # the common case, without a gather
        for name, mine in self._actions.items():
            given = actions[name]
            _copy_rows(given.continuous, mine.continuous, rows, len(env_ids), f"{name}: continuous")
            _copy_rows(given.discrete, mine.discrete, rows, len(env_ids), f"{name}: discrete")

    def hand_over(self, worker: EnvWorker, env_id: int) -> None:
        """Copy one env's action into its worker's block."""
        assert worker.memory is not None
        worker.memory.actions[env_id - worker.env_ids.start] = self._action_rows[env_id]

    def gather(self, workers: Sequence[EnvWorker], taken: Sequence[tuple[int, bool]]) -> StepBatch:
        """Copy the answers of the envs in `taken` (ascending, each with whether it was lost) into a batch."""
        k = self._envs_per_worker
        row = 0
        while row < len(taken):
            first = taken[row][0]
            memory = workers[first // k].memory
            assert memory is not None
            if first % k == 0 and row + k <= len(taken) and taken[row + k - 1][0] == first + k - 1:
                self._hot[row : row + k] = memory.hot  # a worker's whole share at once
                row += k
            else:
                self._hot[row] = memory.hot[first % k]
                row += 1
        behaviors = self._views_of(len(taken))
        self._gather_final(workers, taken, behaviors)
        env_ids = np.array([env_id for env_id, _ in taken], np.int64)
        lost = np.array([lost for _, lost in taken], np.bool_)
        return StepBatch(env_ids, lost, behaviors)

    def _gather_final(
        self, workers: Sequence[EnvWorker], taken: Sequence[tuple[int, bool]], behaviors: Mapping[str, BehaviorSteps]
    ) -> None:
        for row in {int(row) for steps in behaviors.values() for row in np.nonzero(steps.ended)[0]}:
            env_id = taken[row][0]
            memory = workers[env_id // self._envs_per_worker].memory
            assert memory is not None
            self._cold[row] = memory.cold[env_id % self._envs_per_worker]

    def _views_of(self, n_rows: int) -> dict[str, BehaviorSteps]:
        views = self._views.get(n_rows)
        if views is None:
            views = self._views[n_rows] = {name: steps.rows(n_rows) for name, steps in self._steps.items()}
        return views


def _copy_rows(given: np.ndarray, mine: np.ndarray, rows: slice | Sequence[int], n_rows: int, what: str) -> None:
    if mine[0].size == 0:
        return
    try:
        mine[rows] = np.asarray(given).reshape(n_rows, *mine.shape[1:])
    except ValueError as error:
        expected = (n_rows, *mine.shape[1:])
        raise ValueError(f"{what} actions have shape {np.shape(given)}, expected {expected}") from error
