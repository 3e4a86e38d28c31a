"""From observations to actions: everything a trained agent needs and nothing about how it was trained.

obs ─ encode → vector ─ normalize → network → action outputs ─ draw → raw actions ─ to_env → actions
                                       └────→ value
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stepherd.core.errors import SpecError, TrainingDiverged
from stepherd.rl.actions import ContinuousScale
from stepherd.rl.distributions import ActionDistribution
from stepherd.rl.networks import ActorCritic
from stepherd.rl.normalizer import Normalizer
from stepherd.rl.observations import FloatArray, ObservationEncoder
from stepherd.spec.batch import AnyArray, Bools, Ints
from stepherd.spec.specs import BehaviorSpec


class Drawn(NamedTuple):
    """The raw actions of n agents and what was known of them: all arrays (n, ...), on the CPU."""

    continuous: FloatArray
    discrete: Ints
    log_prob: FloatArray
    value: FloatArray


class Policy:
    """One behavior's actor and critic, with what lies before and behind them."""

    def __init__(
        self,
        spec: BehaviorSpec,
        *,
        hidden_units: int,
        num_layers: int,
        normalize: bool,
        generator: torch.Generator,
        device: str = "cpu",
    ) -> None:
        """Build the network with weights from `generator`, a CPU one.

        Raises:
            SpecError: the behavior observes something that cannot be learned from, or cannot act.
        """
        self.spec = spec
        self.device = torch.device(device)
        self.encoder = ObservationEncoder(spec)
        self.normalizer = Normalizer(self.encoder.is_box) if normalize else None
        self.distribution = ActionDistribution(spec.action)
        if self.distribution.n_outputs == 0:
            raise SpecError(f"behavior {spec.name!r} has no actions, so there is nothing to learn")
        self.scale = ContinuousScale(spec.action)
        self.network = ActorCritic(
            self.encoder.width,
            self.distribution.n_outputs,
            spec.action.n_continuous,
            hidden_units=hidden_units,
            num_layers=num_layers,
            generator=generator,
        ).to(self.device)

    def encode(self, obs: tuple[AnyArray, ...], slots: Ints, rows: Bools) -> FloatArray:
        """Return the vectors (rows.sum(), width) of `rows`, not normalised. Other rows are not looked at.

        Raises:
            WrongValue: a number is not finite; names observation and slot.
        """
        if rows.all():
            return self.encoder.encode(obs, slots)
        return self.encoder.encode(tuple(array[rows] for array in obs), slots[rows])

    def normalized(self, vectors: FloatArray) -> FloatArray:
        """Return `vectors` (n, width) as the network is to see them."""
        return vectors if self.normalizer is None else self.normalizer.normalize(vectors)

    def draw(self, vectors: FloatArray, generator: torch.Generator | None) -> Drawn:
        """Choose an action for each of the normalised `vectors` (n, width): the most likely without `generator`.

        Raises:
            TrainingDiverged: the network's output is not finite.
        """
        with torch.inference_mode():
            outputs, values = self.network(self.tensor(vectors))
            if not math.isfinite(float(outputs.sum() + values.sum())):
                raise TrainingDiverged(
                    f"the policy of behavior {self.spec.name!r} diverged: its outputs for finite observations are "
                    "not finite. The env is not at fault; lower learning_rate or strength, or resume an earlier "
                    "checkpoint"
                )
            log_std = self.network.log_std
            if generator is None:
                raw = self.distribution.mode(outputs)
            else:
                raw = self.distribution.sample(outputs, log_std, generator)
            log_prob = self.distribution.log_prob(outputs, log_std, raw)
            return Drawn(*(tensor.cpu().numpy() for tensor in (*raw, log_prob, values)))

    def values(self, vectors: FloatArray) -> FloatArray:
        """Return the values (n,) of `vectors` (n, width), not normalised, under the statistics of now."""
        with torch.inference_mode():
            values: FloatArray = self.network.value(self.tensor(self.normalized(vectors))).cpu().numpy()
        return values

    def tensor(self, array: AnyArray) -> Tensor:
        """Return `array` on the device; on the CPU it shares the memory."""
        return torch.from_numpy(array).to(self.device)
