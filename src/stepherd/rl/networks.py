"""The actor and the critic: two separate multi-layer perceptrons over the encoded observations.

Initialisation and activation: orthogonal weights with gain sqrt(2) in the hidden layers, 0.01 for the action outputs
(the first policy is nearly uniform) and 1 for the value, zero biases, tanh between. Sources: Andrychowicz et al. 2021,
"What Matters In On-Policy Reinforcement Learning" (small last policy layer, tanh, separate value network); Huang et
al. 2022, "The 37 Implementation Details of Proximal Policy Optimization" (the gains). ML-Agents uses swish and
Kaiming initialisation instead.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

HIDDEN_GAIN = math.sqrt(2.0)
ACTION_GAIN = 0.01
VALUE_GAIN = 1.0


class ActorCritic(nn.Module):
    """Actor, critic and the state-independent log standard deviation of continuous actions (0 at first, as ML-Agents).

    All random numbers come from `generator` (on the CPU); the global one is neither read nor moved.
    """

    def __init__(
        self,
        width: int,
        n_outputs: int,
        n_continuous: int,
        *,
        hidden_units: int,
        num_layers: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        hidden = [hidden_units] * num_layers
        self.actor = _perceptron([width, *hidden, n_outputs], ACTION_GAIN, generator)
        self.critic = _perceptron([width, *hidden, 1], VALUE_GAIN, generator)
        self.log_std = nn.Parameter(torch.zeros(n_continuous))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the action outputs (n, n_outputs) and the values (n,) of `obs` (n, width)."""
        outputs: Tensor = self.actor(obs)
        return outputs, self.value(obs)

    def value(self, obs: Tensor) -> Tensor:
        """Return the values (n,) of `obs` (n, width)."""
        values: Tensor = self.critic(obs)
        return values.squeeze(1)


def _perceptron(widths: list[int], last_gain: float, generator: torch.Generator) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        is_last = i == len(widths) - 2
        # `skip_init`, because the constructor would draw its default weights from the global generator.
        linear: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]  # torch
        nn.init.orthogonal_(linear.weight, gain=last_gain if is_last else HIDDEN_GAIN, generator=generator)
        nn.init.zeros_(linear.bias)
        layers.append(linear)
        if not is_last:
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)
