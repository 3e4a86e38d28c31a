"""Adam (Kingma and Ba 2015) over all parameters of a network as one long vector.

Ours rather than `torch.optim.Adam`: constructing that imports torch's compiler (2 s of start-up, 26 MiB, a folder in
the temporary directory; torch 2.13), and one vector makes gradient norm, clipping and step a few operations however
many layers there are. The tests compare the two.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

MEAN_DECAY = 0.9
SQUARE_DECAY = 0.999
EPSILON = 1e-5  # Huang et al. 2022, as baselines; torch's 1e-8 makes the first steps of rarely used weights huge


class Adam:
    """Owns the storage of `network`'s parameters: from now on they are views of `vector`.

    Create it after the network is on its device; `network.load_state_dict` writes through the views.
    """

    def __init__(self, network: nn.Module) -> None:
        named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.numel()]
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        sizes = [parameter.numel() for parameter in self._parameters]
        self.vector = torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])
        """(n,): all parameters."""
        for parameter, part in zip(self._parameters, self.vector.split_with_sizes(sizes), strict=True):
            parameter.data = part.view_as(parameter)
        self.mean = torch.zeros_like(self.vector)
        """(n,): running mean of the gradient."""
        self.square = torch.zeros_like(self.vector)
        """(n,): running mean of its square."""
        self.n_steps = 0

    def gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient of `loss` as a new (n,) vector."""
        gradients = torch.autograd.grad(loss, self._parameters)
        return torch.cat([gradient.reshape(-1) for gradient in gradients])

    def name_at(self, index: int) -> str:
        """Return the name of the parameter that holds element `index` of the vector."""
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if index < parameter.numel():
                return name
            index -= parameter.numel()
        raise IndexError(index)

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Move the parameters against `gradient` (n,)."""
        self.n_steps += 1
        self.mean.lerp_(gradient, 1.0 - MEAN_DECAY)
        self.square.mul_(SQUARE_DECAY).addcmul_(gradient, gradient, value=1.0 - SQUARE_DECAY)
        # Both averages start at 0; dividing by what their weights add up to so far corrects that.
        mean_weight = 1.0 - MEAN_DECAY**self.n_steps
        square_weight = 1.0 - SQUARE_DECAY**self.n_steps
        scale = self.square.sqrt().div_(math.sqrt(square_weight)).add_(EPSILON)
        self.vector.addcdiv_(self.mean, scale, value=-learning_rate / mean_weight)
