"""What the actor's outputs mean: a distribution over raw actions.

    actor output (n, n_continuous + sum(branches))  =  [ means | logits of branch 0 | logits of branch 1 | ... ]

Continuous dimensions are independent Gaussians whose standard deviation does not depend on the state; branches are
independent categoricals. Log-probabilities and entropies are sums over both. Plain tensor arithmetic, because
`torch.distributions` spends several times the arithmetic on building and checking objects; the tests compare.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stepherd.spec.specs import ActionSpec

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_GAUSSIAN_ENTROPY = 0.5 + _HALF_LOG_2PI  # of a standard deviation of 1


class RawActions(NamedTuple):
    """What was drawn: continuous (n, n_continuous) f4, discrete (n, n_branches) i8."""

    continuous: Tensor
    discrete: Tensor


class ActionDistribution:
    """The distributions of one action spec. Holds no tensor: all methods are functions of their arguments.

    `outputs`: (n, n_outputs), what the actor computed. `log_std`: (n_continuous,).
    """

    def __init__(self, action: ActionSpec) -> None:
        self.n_continuous = action.n_continuous
        self.branches = list(action.branches)
        self.n_outputs = self.n_continuous + sum(self.branches)

    def sample(self, outputs: Tensor, log_std: Tensor, generator: torch.Generator) -> RawActions:
        """Draw one action per row. `generator` is a CPU one, so that its state resumes on any device."""
        continuous, discrete = self.mode(outputs, generator if self.branches else None)
        if self.n_continuous:
            noise = torch.empty(continuous.shape).normal_(generator=generator)
            continuous = torch.addcmul(continuous, noise.to(outputs.device), log_std.exp())
        return RawActions(continuous, discrete)

    def mode(self, outputs: Tensor, gumbel: torch.Generator | None = None) -> RawActions:
        """Return the most likely action of each row; with Gumbel noise on the logits, a draw of the branches.

        The largest of logits + Gumbel noise is distributed as the categorical (Gumbel-max); one call draws the noise
        of all branches.
        """
        means, logits = outputs[:, : self.n_continuous], outputs[:, self.n_continuous :]
        if gumbel is not None:
            noise = torch.empty(logits.shape).exponential_(generator=gumbel).log_()
            logits = logits - noise.to(outputs.device)
        if len(self.branches) == 1:
            return RawActions(means, logits.argmax(dim=1, keepdim=True))
        choices = [branch.argmax(dim=1) for branch in torch.split(logits, self.branches, dim=1)]
        discrete = torch.stack(choices, dim=1) if choices else outputs.new_zeros((len(outputs), 0), dtype=torch.int64)
        return RawActions(means, discrete)

    def log_prob(self, outputs: Tensor, log_std: Tensor, actions: RawActions) -> Tensor:
        """Return the log-density of `actions`: (n,)."""
        return self.log_prob_and_entropy(outputs, log_std, actions, with_entropy=False)[0]

    def log_prob_and_entropy(
        self, outputs: Tensor, log_std: Tensor, actions: RawActions, *, with_entropy: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the log-density of `actions` and the entropy of what they were drawn from: (n,) each.

        Without `with_entropy` the second is meaningless.
        """
        log_probs: list[Tensor] = []
        entropies: list[Tensor] = []
        if self.n_continuous:
            distance = (actions.continuous - outputs[:, : self.n_continuous]) * (-log_std).exp()
            spread = log_std.sum()
            log_probs.append((distance * distance).sum(dim=1) * -0.5 - (spread + self.n_continuous * _HALF_LOG_2PI))
            if with_entropy:
                entropies.append((spread + self.n_continuous * _GAUSSIAN_ENTROPY).expand(len(outputs)))
        logits = outputs[:, self.n_continuous :] if self.n_continuous else outputs
        for i, branch in enumerate(torch.split(logits, self.branches, dim=1) if self.branches else ()):
            log_p = branch.log_softmax(dim=1)
            log_probs.append(log_p.gather(1, actions.discrete[:, i : i + 1]).squeeze(1))
            if with_entropy:
                entropies.append(-(log_p.exp() * log_p).sum(dim=1))
        # Not `sum()`: it would start by adding a Python 0, one more operation in the graph.
        return _total(log_probs), _total(entropies) if with_entropy else log_probs[0]


def _total(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
