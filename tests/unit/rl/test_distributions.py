from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal

from stepherd.rl.distributions import ActionDistribution, RawActions
from stepherd.spec.specs import ActionSpec

SPECS = {
    "one branch": ActionSpec(branches=(3,)),
    "branches": ActionSpec(branches=(2, 5, 1)),
    "continuous": ActionSpec(3, (), (-1.0,) * 3, (1.0,) * 3),
    "hybrid": ActionSpec(2, (4, 2), (-1.0,) * 2, (1.0,) * 2),
}


def reference(spec: ActionSpec, outputs: torch.Tensor, log_std: torch.Tensor) -> tuple[Normal, list[Categorical]]:
    normal = Normal(outputs[:, : spec.n_continuous], log_std.exp().expand(len(outputs), spec.n_continuous))
    logits = torch.split(outputs[:, spec.n_continuous :], list(spec.branches), dim=1) if spec.branches else ()
    return normal, [Categorical(logits=branch) for branch in logits]


def reference_log_prob_and_entropy(
    spec: ActionSpec, outputs: torch.Tensor, log_std: torch.Tensor, actions: RawActions
) -> tuple[torch.Tensor, torch.Tensor]:
    parts: list[tuple[Any, torch.Tensor]]  # Any: the methods of torch.distributions are untyped
    normal, branches = reference(spec, outputs, log_std)
    parts = [(branch, actions.discrete[:, i]) for i, branch in enumerate(branches)]
    log_prob, entropy = torch.zeros(len(outputs)), torch.zeros(len(outputs))
    for part, chosen in [*parts, (Independent(normal, 1), actions.continuous)]:
        log_prob, entropy = log_prob + part.log_prob(chosen), entropy + part.entropy()
    return log_prob, entropy


@pytest.mark.parametrize("name", SPECS)
def test_log_probs_entropies_and_gradients_are_those_of_torch_distributions(name: str) -> None:
    spec = SPECS[name]
    distribution = ActionDistribution(spec)
    torch_generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(64, distribution.n_outputs, generator=torch_generator, requires_grad=True)
    log_std = torch.randn(spec.n_continuous, generator=torch_generator, requires_grad=True)
    actions = distribution.sample(outputs.detach(), log_std.detach(), torch_generator)

    log_prob, entropy = distribution.log_prob_and_entropy(outputs, log_std, actions)

    expected, expected_entropy = reference_log_prob_and_entropy(spec, outputs, log_std, actions)
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(entropy, expected_entropy)
    torch.testing.assert_close(distribution.log_prob(outputs, log_std, actions), expected)
    weights = torch.randn(64, generator=torch_generator)
    ours = torch.autograd.grad((log_prob * weights + entropy).sum(), (outputs, log_std), allow_unused=True)
    theirs = torch.autograd.grad((expected * weights + expected_entropy).sum(), (outputs, log_std))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.zeros_like(their) if our is None else our, their)


def test_samples_are_as_frequent_as_their_probabilities() -> None:
    spec = SPECS["hybrid"]
    distribution = ActionDistribution(spec)
    outputs = torch.tensor([[0.5, -1.0, 0.0, 1.0, -1.0, 2.0, 0.3, -0.3]]).expand(40_000, 8)
    log_std = torch.tensor([0.2, -1.0])

    actions = distribution.sample(outputs, log_std, torch.Generator().manual_seed(3))

    normal, branches = reference(spec, outputs[:1], log_std)
    torch.testing.assert_close(actions.continuous.mean(dim=0), normal.mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(actions.continuous.std(dim=0), normal.stddev[0], atol=0.02, rtol=0)
    for i, branch in enumerate(branches):
        counts = torch.bincount(actions.discrete[:, i], minlength=branch.probs.shape[1])
        torch.testing.assert_close(counts / len(outputs), branch.probs[0], atol=0.01, rtol=0)


@pytest.mark.parametrize("name", SPECS)
def test_the_same_generator_state_draws_the_same_actions_in_the_right_shapes(name: str) -> None:
    spec = SPECS[name]
    distribution = ActionDistribution(spec)
    outputs = torch.randn(5, distribution.n_outputs, generator=torch.Generator().manual_seed(1))
    log_std = torch.zeros(spec.n_continuous)

    first, second = (distribution.sample(outputs, log_std, torch.Generator().manual_seed(7)) for _ in range(2))

    assert first.continuous.shape == (5, spec.n_continuous)
    assert first.discrete.shape == (5, len(spec.branches))
    assert torch.equal(first.continuous, second.continuous)
    assert torch.equal(first.discrete, second.discrete)


def test_the_mode_is_the_mean_and_the_largest_logit_of_each_branch() -> None:
    distribution = ActionDistribution(SPECS["hybrid"])
    outputs = torch.tensor([[0.5, -1.0, 0.0, 1.0, 3.0, 2.0, 0.3, -0.3]])

    mode = distribution.mode(outputs)

    assert torch.equal(mode.continuous, outputs[:, :2])
    assert mode.discrete.tolist() == [[2, 0]]
