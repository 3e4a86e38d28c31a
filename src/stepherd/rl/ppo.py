"""Proximal Policy Optimization (Schulman et al. 2017) over slots that each have their own clock.

Reads in the order in which things happen: record what the last actions earned, act, and when enough is recorded
update: advantages → minibatches → losses → statistics. Differences from ML-Agents 1.1.0: ratios are per action rather
than per branch, no row of the buffer is left out, and value clipping, which its bug #6281 made a no-op, clips around
the old values when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stepherd.core.errors import TrainingDiverged, WrongValue
from stepherd.rl import state as states
from stepherd.rl.adam import Adam
from stepherd.rl.distributions import RawActions
from stepherd.rl.observations import FloatArray
from stepherd.rl.policy import Policy
from stepherd.rl.rollout import Rollout
from stepherd.rl.schedules import FINAL_BETA, FINAL_EPSILON, FINAL_LEARNING_RATE, Schedule
from stepherd.rl.settings import PPOSettings
from stepherd.spec.batch import Actions, AnyArray, BehaviorSteps, Bools, Ints
from stepherd.spec.specs import BehaviorSpec

__all__ = ["PPO", "PPOSettings"]

VALUE_WEIGHT = 0.5  # of the value loss in the total, as ML-Agents
MAX_GRADIENT_NORM = 0.5  # ML-Agents and the 37 details agree


class PPO:
    """One behavior's learner. Per answer of the envs: `record`, `act`, and `update` whenever `is_full`.

    `slots` (n,) are distinct numbers below any bound, one per agent place of an env; row i of `steps` and `lost`
    belongs to `slots[i]`. `update` may come before or after `act`: actions in flight are learned from in the next
    update, with the log-probability they were drawn with.
    """

    def __init__(self, spec: BehaviorSpec, n_slots: int, settings: PPOSettings, seed: int, device: str = "cpu") -> None:
        """Build networks and an empty rollout; every random number comes from `seed`, none from a global generator.

        Raises:
            SpecError: the behavior observes something that cannot be learned from, or cannot act.
        """
        self.spec = spec
        self.settings = settings
        self.n_steps = 0
        """Transitions recorded so far; drives the schedules."""
        self._generator = torch.Generator().manual_seed(seed)
        self.policy = Policy(
            spec,
            hidden_units=settings.hidden_units,
            num_layers=settings.num_layers,
            normalize=settings.normalize,
            generator=self._generator,
            device=device,
        )
        self._adam = Adam(self.policy.network)
        horizon = settings.max_steps
        self._learning_rate = Schedule(
            settings.learning_rate, FINAL_LEARNING_RATE, settings.learning_rate_schedule, horizon
        )
        self._epsilon = Schedule(settings.epsilon, FINAL_EPSILON, settings.epsilon_schedule, horizon)
        self._beta = Schedule(settings.beta, FINAL_BETA, settings.beta_schedule, horizon)
        self._rollout = self._empty_rollout(n_slots)

    @property
    def is_full(self) -> bool:
        """Whether enough is recorded for an update."""
        return self._rollout.size >= self.settings.buffer_size

    # Experience

    def record(self, slots: Ints, steps: BehaviorSteps, lost: Bools) -> int:
        """Finish the pending transitions of `slots` with the answer that arrived; return how many were recorded.

        A transition is finished when its episode ends or its slot is `deciding` again; until then rewards add up. A
        slot with nothing pending just begins. `lost`: what is pending is dropped, and the segment before it ends
        with the value of the observation that the dropped action was chosen on; mark slots `lost` too when running
        envs were reset.

        Raises:
            WrongValue: a reward or an observation is not finite; nothing of this answer was recorded.
        """
        rollout = self._rollout
        rollout.make_room(slots)
        pending = rollout.pending[slots] & ~lost
        finished = pending & (steps.ended | steps.deciding)
        continuing = finished & ~steps.ended
        truncated = finished & steps.interrupted & ~steps.terminated
        # Everything that can refuse comes first: an answer is recorded whole or not at all.
        reward = self._checked_reward(slots, steps.reward, pending)
        next_obs = np.zeros((len(slots), self.policy.encoder.width), dtype=np.float32)
        if continuing.any():
            next_obs[continuing] = self.policy.encode(steps.obs, slots, continuing)
        next_value = np.zeros(len(slots), dtype=np.float32)
        if truncated.any():
            next_value[truncated] = self.policy.values(self.policy.encode(steps.final_obs, slots, truncated))

        # A slot that waits although an answer came was never acted for: its segment ends where it stands.
        abandoned = slots[lost | rollout.waiting[slots]]
        if len(abandoned):
            self._bootstrap_waiting(abandoned)
            rollout.abandon(abandoned)
        rollout.earn(slots[pending], reward[pending])
        rollout.finish(slots[finished], steps.ended[finished], next_value[finished], next_obs[finished])
        n_recorded = int(np.count_nonzero(finished))
        self.n_steps += n_recorded
        return n_recorded

    def act(self, slots: Ints, steps: BehaviorSteps, *, explore: bool = True, learn: bool = True) -> Actions:
        """Choose an action for every `deciding` row in one forward pass; the other rows get zeros.

        With `explore` actions are drawn, else the most likely one is taken. With `learn` they become pending and
        the normaliser takes the observations in; without it nothing is remembered.

        Raises:
            WrongValue: an observation is not finite.
            TrainingDiverged: the policy's own output is not finite; no action was chosen.
        """
        action = self.spec.action
        continuous: AnyArray = np.zeros((len(slots), action.n_continuous), dtype=action.continuous_dtype)
        discrete = np.zeros((len(slots), len(action.branches)), dtype=np.int32)
        deciding = steps.deciding
        if not deciding.any():
            return Actions(continuous, discrete)
        vectors = self.policy.encode(steps.obs, slots, deciding)
        if learn and self.policy.normalizer is not None:
            self.policy.normalizer.update(vectors)
        vectors = self.policy.normalized(vectors)
        is_drawn = explore and not self.settings.deterministic
        drawn = self.policy.draw(vectors, self._generator if is_drawn else None)
        if learn:
            acting = slots[deciding]
            self._rollout.make_room(acting)
            self._rollout.begin(acting, vectors, *drawn)
        continuous[deciding] = self.policy.scale.to_env(drawn.continuous)
        discrete[deciding] = drawn.discrete
        return Actions(continuous, discrete)

    # Learning

    def update(self) -> dict[str, float]:
        """Learn from everything recorded, empty the rollout and return statistics under ML-Agents' tags.

        Raises:
            TrainingDiverged: the loss or its gradient is not finite; the weights are those before that minibatch.
        """
        settings = self.settings
        learning_rate = self._learning_rate.at(self.n_steps)
        epsilon, beta = self._epsilon.at(self.n_steps), self._beta.at(self.n_steps)

        batch = self._batch()
        statistics: list[Tensor] = []
        for _ in range(settings.num_epoch):
            for minibatch in _minibatches(batch, settings.batch_size, self._generator):
                losses = self._losses(minibatch, epsilon, beta)
                gradient = self._adam.gradient(losses.total)
                norm = gradient.norm()
                self._check_gradient(losses.total, gradient, norm)
                gradient *= (MAX_GRADIENT_NORM / (norm + 1e-6)).clamp(max=1.0)
                self._adam.step(gradient, learning_rate)
                statistics.append(torch.stack([*losses.statistics, norm]))
        self._rollout.clear()

        means = torch.stack(statistics).mean(dim=0).tolist()
        return dict(zip(_MINIBATCH_TAGS, means, strict=True)) | {
            "Policy/Learning Rate": learning_rate,
            "Policy/Epsilon": epsilon,
            "Policy/Beta": beta,
            "Policy/Extrinsic Value Estimate": float(batch.value.mean()),
            "Policy/Explained Variance": _explained_variance(batch.value, batch.target),
        }

    def _batch(self) -> _Batch:
        """Return the rollout as tensors on the device, advantages normalised over all of it."""
        self._bootstrap_waiting(np.flatnonzero(self._rollout.waiting))
        rows = self._rollout.rows(self.settings.gamma, self.settings.lambd, self.settings.strength)
        assert len(rows.value), "update needs at least one recorded transition"
        advantage = torch.from_numpy(rows.advantage)
        # The guard leaves equal advantages (one row, for example) at 0 instead of 0/0.
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        tensor = self.policy.tensor
        return _Batch(
            obs=tensor(rows.obs),
            continuous=tensor(rows.continuous),
            discrete=tensor(rows.discrete),
            log_prob=tensor(rows.log_prob),
            value=tensor(rows.value),
            target=tensor(rows.target),
            advantage=advantage.to(self.policy.device),
        )

    def _losses(self, batch: _Batch, epsilon: float, beta: float) -> _Losses:
        network, distribution = self.policy.network, self.policy.distribution
        outputs, values = network(batch.obs)
        actions = RawActions(batch.continuous, batch.discrete)
        log_prob, entropies = distribution.log_prob_and_entropy(outputs, network.log_std, actions)
        log_ratio = log_prob - batch.log_prob
        ratio = log_ratio.exp()
        policy = policy_loss(ratio, batch.advantage, epsilon)
        value = value_loss(values, batch.value, batch.target, epsilon if self.settings.clip_values else None)
        entropy = entropies.mean()
        total = policy + VALUE_WEIGHT * value - beta * entropy
        with torch.no_grad():
            approx_kl = (ratio - 1.0 - log_ratio).mean()  # Schulman's low-variance estimate, never negative
            clip_fraction = ((ratio - 1.0).abs() > epsilon).float().mean()
            # The absolute value is what ML-Agents plots under this tag.
            statistics = (policy.abs(), value.detach(), entropy.detach(), approx_kl, clip_fraction)
        return _Losses(total, statistics)

    # Keeping and restoring

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything a resume needs, as tensors and plain Python; the run goes on unchanged.

        Actions in flight are not part of it, as the envs of a resumed run start anew: every unfinished segment ends
        with the value of the observation it had reached. Finished transitions are, so no counted step is unlearned.
        """
        self._bootstrap_waiting(np.flatnonzero(self._rollout.waiting))
        arrays = self._rollout.finished_arrays()
        return {
            "format": states.FORMAT,
            "behavior": states.behavior_lines(self.spec),
            "n_steps": self.n_steps,
            "policy": states.policy_state(self.policy),
            "adam": states.adam_state(self._adam),
            "generator": self._generator.get_state(),
            "rollout": {name: torch.from_numpy(array) for name, array in arrays.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken. The number of slots may differ; all slots begin a new episode.

        Raises:
            SpecError: something is missing or does not fit, named; nothing was replaced.
        """
        states.check_learner(state, self.policy, self._adam)
        arrays = states.checked_rollout(state["rollout"], self.policy.encoder.width, self.spec.action)
        generator = states.checked_generator(state["generator"])
        self._load_learner(state)
        self._generator = generator
        self._rollout = self._empty_rollout(self._rollout.n_slots)
        self._rollout.restore(arrays)
        self.n_steps = state["n_steps"]

    def load_weights(self, state: dict[str, Any]) -> None:
        """Begin a new run from `state`: weights, optimiser and normaliser; step count 0 and nothing recorded.

        Raises:
            SpecError: something is missing or does not fit, named; nothing was replaced.
        """
        states.check_learner(state, self.policy, self._adam)
        self._load_learner(state)
        self._rollout = self._empty_rollout(self._rollout.n_slots)
        self.n_steps = 0

    def _load_learner(self, state: dict[str, Any]) -> None:
        states.load_policy(self.policy, state["policy"])
        states.load_adam(self._adam, state["adam"])

    # Plain work

    def _empty_rollout(self, n_slots: int) -> Rollout:
        return Rollout(
            width=self.policy.encoder.width,
            n_continuous=self.spec.action.n_continuous,
            n_branches=len(self.spec.action.branches),
            n_slots=n_slots,
            n_steps=self.settings.buffer_size // n_slots + 2,
            time_horizon=self.settings.time_horizon,
        )

    def _bootstrap_waiting(self, slots: Ints) -> None:
        """Give the waiting ones of `slots` the value of what they led to."""
        waiting = slots[self._rollout.waiting[slots]]
        if len(waiting):
            self._rollout.bootstrap(waiting, self.policy.values(self._rollout.waiting_obs[waiting]))

    def _checked_reward(self, slots: Ints, reward: AnyArray, used: Bools) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by name in the next line
            raw: FloatArray = reward.astype(np.float32)
            scaled = raw * np.float32(self.settings.strength)
        wrong = used & ~np.isfinite(scaled)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise WrongValue(
                f"the reward of behavior {self.spec.name!r} in slot {int(slots[row])} is {reward[row]} "
                f"({scaled[row]} as a float32, times strength): nothing was learned from it. "
                "Look for a division by zero or an unbounded value in the env"
            )
        return raw  # scaled when it is learned from, so a run can be resumed with another strength

    def _check_gradient(self, loss: Tensor, gradient: Tensor, norm: Tensor) -> None:
        """Stop before a bad gradient reaches the weights."""
        if math.isfinite(loss.item()) and math.isfinite(norm.item()):
            return
        bad = (~gradient.isfinite()).nonzero()
        first = f", first in {self._adam.name_at(int(bad[0]))!r}" if len(bad) else ""
        raise TrainingDiverged(
            f"training of behavior {self.spec.name!r} diverged after {self.n_steps} steps: loss {loss.item()}, "
            f"gradient norm {norm.item()}{first}. The weights are those before this minibatch. "
            "Likely rewards or returns are too large: lower strength or learning_rate"
        )


class _Batch(NamedTuple):
    """The rollout as tensors: (n, ...)."""

    obs: Tensor
    continuous: Tensor
    discrete: Tensor
    log_prob: Tensor
    value: Tensor
    target: Tensor
    advantage: Tensor


class _Losses(NamedTuple):
    """The loss to descend, and the numbers of `_MINIBATCH_TAGS` but the last."""

    total: Tensor
    statistics: tuple[Tensor, ...]


_MINIBATCH_TAGS = (
    "Losses/Policy Loss",
    "Losses/Value Loss",
    "Policy/Entropy",
    "Policy/Approx KL",
    "Policy/Clip Fraction",
    "Losses/Gradient Norm",
)


def policy_loss(ratio: Tensor, advantage: Tensor, epsilon: float) -> Tensor:
    """Return the clipped surrogate loss, a scalar: no reward for moving a ratio beyond 1 ± `epsilon`."""
    clipped = ratio.clamp(1.0 - epsilon, 1.0 + epsilon)
    return -torch.min(ratio * advantage, clipped * advantage).mean()


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, epsilon: float | None) -> Tensor:
    """Return the squared error, a scalar; with `epsilon` the clipped one.

    Clipped means: no reward for moving a value more than `epsilon` from what it was when the rollout was gathered.
    """
    error = (value - target).square()
    if epsilon is None:
        return error.mean()
    clipped = old_value + (value - old_value).clamp(-epsilon, epsilon)
    return torch.max(error, (clipped - target).square()).mean()


def _minibatches(batch: _Batch, batch_size: int, generator: torch.Generator) -> Iterator[_Batch]:
    """Yield the rows of `batch` in random order, in parts of nearly `batch_size` that differ by one row at most.

    ML-Agents leaves out the rows that do not fill a minibatch; a tiny last one would have a noisy gradient.
    """
    n = len(batch.value)
    order = torch.randperm(n, generator=generator).to(batch.value.device)
    n_parts = max(1, round(n / batch_size))
    parts = [tensor[order].tensor_split(n_parts) for tensor in batch]
    for part in zip(*parts, strict=True):
        yield _Batch(*part)


def _explained_variance(value: Tensor, target: Tensor) -> float:
    """Return which share of the targets' variance the old values explained: 1 is perfect, 0 useless."""
    spread = float(target.var(correction=0))
    return 0.0 if spread == 0.0 else 1.0 - float((target - value).var(correction=0)) / spread
