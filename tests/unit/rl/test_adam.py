from __future__ import annotations

import pytest
import torch
from torch import nn

from stepherd.rl.adam import EPSILON, MEAN_DECAY, SQUARE_DECAY, Adam
from stepherd.rl.networks import ActorCritic


def network_of(seed: int, n_continuous: int = 0) -> ActorCritic:
    generator = torch.Generator().manual_seed(seed)
    return ActorCritic(3, 2, n_continuous, hidden_units=8, num_layers=1, generator=generator)


def loss_of(network: nn.Module, seed: int) -> torch.Tensor:
    outputs, values = network(torch.randn(16, 3, generator=torch.Generator().manual_seed(seed)))
    loss: torch.Tensor = outputs.square().mean() + (values - 1.0).square().mean()
    return loss


def test_ten_steps_are_those_of_torch_s_own_kernel() -> None:
    network = network_of(1)
    adam = Adam(network)
    # Not torch.optim.Adam: its constructor imports torch's compiler, which leaves a folder behind.
    vector, mean, square, n_steps = adam.vector.clone(), adam.mean.clone(), adam.square.clone(), torch.zeros(())

    for step in range(10):
        gradient = adam.gradient(loss_of(network, step))
        adam.step(gradient, learning_rate=1e-2)
        n_steps += 1
        torch.ops.aten._fused_adam_(
            [vector],
            [gradient],
            [mean],
            [square],
            [],
            [n_steps],
            lr=1e-2,
            beta1=MEAN_DECAY,
            beta2=SQUARE_DECAY,
            weight_decay=0.0,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

        torch.testing.assert_close(adam.vector, vector)


def test_the_parameters_are_views_of_the_vector_so_a_step_moves_them_and_loading_reaches_it() -> None:
    network, other = network_of(1), network_of(2)
    adam = Adam(network)
    before = network.get_parameter("actor.0.weight").clone()

    adam.step(torch.ones_like(adam.vector), learning_rate=0.1)
    moved = network.get_parameter("actor.0.weight").clone()
    network.load_state_dict(other.state_dict())

    torch.testing.assert_close(moved, before - 0.1, atol=1e-4, rtol=0)
    assert torch.equal(adam.vector, Adam(other).vector)


def test_the_gradient_is_the_one_autograd_leaves_in_the_parameters() -> None:
    network = network_of(1)
    adam = Adam(network)

    gradient = adam.gradient(loss_of(network, 1))

    loss_of(network, 1).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    expected = [p.grad.reshape(-1) for p in network.parameters() if p.grad is not None]
    assert torch.equal(gradient, torch.cat(expected))


def test_an_element_of_the_vector_knows_its_parameter() -> None:
    network = network_of(1, n_continuous=1)
    adam = Adam(network)

    assert adam.name_at(0) == "log_std"
    assert adam.name_at(1) == adam.name_at(3 * 8) == "actor.0.weight"
    assert adam.name_at(1 + 3 * 8) == "actor.0.bias"
    assert adam.name_at(len(adam.vector) - 1) == "critic.2.bias"
    with pytest.raises(IndexError):
        adam.name_at(len(adam.vector))
