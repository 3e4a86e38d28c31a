"""The only place where a pool of envs and policies meet: answers in, one forward pass per behavior, actions out."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from stepherd.core.deadline import Clock
from stepherd.core.errors import TooFewReady
from stepherd.manager.env_manager import EnvManager
from stepherd.spec.batch import StepBatch
from stepherd.training.behavior_trainer import BehaviorTrainer
from stepherd.training.progress import TimeSplit
from stepherd.training.statistics import Statistics


class Collector:
    """Moves steps between a pool and the trainers of its behaviors."""

    def __init__(
        self,
        envs: EnvManager,
        trainers: Mapping[str, BehaviorTrainer],
        statistics: Statistics,
        split: TimeSplit,
        *,
        limited: bool,
        clock: Clock = time.monotonic,
    ) -> None:
        """Prepare to collect; with `limited`, no more actions are handed out than steps are wanted."""
        self._envs, self._trainers, self._statistics = envs, trainers, statistics
        self._split, self._limited, self._clock = split, limited, clock
        self._in_flight: set[int] = set()
        self._waited_s = 0.0
        self._busy_s: dict[int, float] = {}

    def start(self) -> None:
        """Reset all envs and send the first actions. Blocks like `EnvManager.reset`."""
        batch = self._envs.reset()
        for name, trainer in self._trainers.items():
            trainer.begin(batch.env_ids, batch[name])
        self._act(batch)

    def turn(self, within_s: float) -> bool:
        """Take in a batch, let the trainers learn if they are ready, act on it; return whether there was one.

        Blocks for `within_s` at the latest, apart from what learning takes.
        """
        begun_at = self._clock()
        try:
            batch = self._envs.recv(within_s=within_s)
        except TooFewReady:
            self._waited_s += self._clock() - begun_at
            return False
        self._waited_s += self._clock() - begun_at
        self._take(batch)
        self._learn()
        self._act(batch)
        return True

    def settle_waits(self) -> None:
        """Divide the waits since the last call: envs were simulating for part of it, the rest is transport."""
        simulated = min(self._waited_s, self._mean_busy_s())
        self._split.add("simulate", simulated)
        self._split.add("transport", self._waited_s - simulated)
        self._waited_s = 0.0

    def drain(self) -> None:
        """Take in everything that is on its way. Blocks like `EnvManager.drain`."""
        self._take(self._envs.drain())

    def _take(self, batch: StepBatch) -> None:
        self._in_flight.difference_update(batch.env_ids.tolist())
        for name, trainer in self._trainers.items():
            trainer.take(batch.env_ids, batch[name], batch.lost, self._statistics)

    def _learn(self) -> None:
        begun_at = self._clock()
        for name, trainer in self._trainers.items():
            update = trainer.update_if_full()
            if update is not None:
                self._statistics.add(name, update)
        self._split.add("update", self._clock() - begun_at)

    def _act(self, batch: StepBatch) -> None:
        begun_at = self._clock()
        n_rows = min(len(batch), self._envs_wanted())
        if n_rows == 0:
            return
        env_ids = batch.env_ids[:n_rows]
        actions = {
            name: trainer.act(env_ids, batch[name] if n_rows == len(batch) else batch[name].rows(n_rows))
            for name, trainer in self._trainers.items()
        }
        acted_at = self._clock()
        self._envs.send(actions, env_ids.tolist())
        self._in_flight.update(env_ids.tolist())
        self._split.add("infer", acted_at - begun_at)
        self._split.add("transport", self._clock() - acted_at)

    def _envs_wanted(self) -> int:
        """Return how many more envs may act before every trainer has the steps it wants."""
        if not self._limited:
            return self._envs.n_envs
        unfinished = [trainer for trainer in self._trainers.values() if not trainer.finished]
        return max((trainer.envs_left(len(self._in_flight)) for trainer in unfinished), default=0)

    def _mean_busy_s(self) -> float:
        """Return the seconds the workers have spent inside envs since the last call, on average."""
        fresh = []
        for worker in self._envs.statuses():
            before = self._busy_s.get(worker.worker_id, 0.0)
            fresh.append(worker.busy_s - before if worker.busy_s >= before else worker.busy_s)
            self._busy_s[worker.worker_id] = worker.busy_s
        return float(np.mean(fresh))
