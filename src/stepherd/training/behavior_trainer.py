"""One behavior of the envs and what learns it: slots, step counts, the settings of the configuration."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepherd.rl.ppo import PPO
from stepherd.rl.settings import PPOSettings
from stepherd.spec.batch import Actions, AnyArray, BehaviorSteps, Bools, Ints
from stepherd.spec.specs import BehaviorSpec
from stepherd.training.config import TrainerSettings
from stepherd.training.statistics import Statistics


class BehaviorTrainer:
    """Turns batches of envs into rows of slots for one learner. Slot `env * places + place` is one agent place."""

    def __init__(
        self, spec: BehaviorSpec, n_envs: int, settings: TrainerSettings, *, seed: int, device: str, learns: bool
    ) -> None:
        """Build the learner; without `learns` it only acts.

        Raises:
            SpecError: the behavior cannot be learned.
        """
        self.name = spec.name
        self.settings = settings
        self.learner = PPO(spec, n_envs * spec.n_agents, ppo_settings(settings), seed, device)
        self.n_steps = 0
        """Agent steps counted so far, over all starts of the run."""
        self._learns = learns
        self._n_agents = spec.n_agents

    @property
    def finished(self) -> bool:
        """Whether all of `max_steps` are recorded; never when it only acts."""
        return self._learns and self.n_steps >= self.settings.max_steps

    def envs_left(self, n_in_flight: int) -> int:
        """Return how many envs may still act, so that the count ends at `max_steps` with `n_in_flight` answered.

        With several places in an env the last env counts whole, so the count may end a few steps later.
        """
        assert self._learns
        left = self.settings.max_steps - self.n_steps - n_in_flight * self._n_agents
        return max(0, -(-left // self._n_agents))

    def begin(self, env_ids: Ints, steps: BehaviorSteps) -> None:
        """Take in the first observations after a reset of envs."""
        slots = self._slots(env_ids)
        self.learner.record(slots, _flat(steps), np.ones(len(slots), np.bool_))

    def take(self, env_ids: Ints, steps: BehaviorSteps, lost: Bools, statistics: Statistics) -> None:
        """Take in what actions have led to."""
        slots, rows, lost_slots = self._slots(env_ids), _flat(steps), np.repeat(lost, self._n_agents)
        statistics.record(self.name, slots, rows.reward, rows.ended, lost_slots)
        if not self._learns:
            self.n_steps += int(np.count_nonzero(rows.deciding & ~lost_slots))
        elif not self.finished:
            self.n_steps += self.learner.record(slots, rows, lost_slots)

    def act(self, env_ids: Ints, steps: BehaviorSteps) -> Actions:
        """Return the actions of some envs, (envs, places, n), from one forward pass."""
        actions = self.learner.act(self._slots(env_ids), _flat(steps), learn=self._learns and not self.finished)
        shape = (len(env_ids), self._n_agents, -1)
        return Actions(actions.continuous.reshape(shape), actions.discrete.reshape(shape))

    def update_if_full(self) -> dict[str, float] | None:
        """Learn if enough is recorded; return the statistics of the update, `None` without one."""
        return self.learner.update() if self._learns and self.learner.is_full else None

    def state_dict(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return self.learner.state_dict()

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`. Raises `SpecError` where it does not fit."""
        self.learner.load_state_dict(state)
        self.n_steps = self.learner.n_steps

    def initialize(self, state: dict[str, Any]) -> None:
        """Start from the weights of another run. Raises `SpecError` where they do not fit."""
        self.learner.load_weights(state)

    def _slots(self, env_ids: Ints) -> Ints:
        if self._n_agents == 1:
            return env_ids
        slots: Ints = (env_ids[:, None] * self._n_agents + np.arange(self._n_agents)).reshape(-1)
        return slots


def ppo_settings(settings: TrainerSettings) -> PPOSettings:
    """Return what PPO needs of a behavior's settings."""
    hyperparameters, network = settings.hyperparameters, settings.network_settings
    extrinsic = settings.reward_signals.extrinsic
    return PPOSettings(
        **hyperparameters.model_dump(),
        gamma=extrinsic.gamma,
        strength=extrinsic.strength,
        time_horizon=settings.time_horizon,
        max_steps=settings.max_steps,
        hidden_units=network.hidden_units,
        num_layers=network.num_layers,
        normalize=network.normalize,
        deterministic=network.deterministic,
    )


def _flat(steps: BehaviorSteps) -> BehaviorSteps:
    """Return steps (envs, places, …) as rows (envs * places, …)."""

    def rows(array: AnyArray) -> AnyArray:
        flat: AnyArray = array.reshape(-1, *array.shape[2:])
        return flat

    return BehaviorSteps(
        obs=tuple(rows(array) for array in steps.obs),
        final_obs=tuple(rows(array) for array in steps.final_obs),
        reward=rows(steps.reward),
        deciding=rows(steps.deciding),
        terminated=rows(steps.terminated),
        interrupted=rows(steps.interrupted),
    )
