from __future__ import annotations

import torch

from stepherd.rl.networks import ActorCritic


def network_of(seed: int, width: int = 4) -> ActorCritic:
    generator = torch.Generator().manual_seed(seed)
    return ActorCritic(width, 3, 1, hidden_units=16, num_layers=2, generator=generator)


def weight(network: ActorCritic, layer: str) -> torch.Tensor:
    return network.get_parameter(f"{layer}.weight").detach()


def test_weights_come_from_the_given_generator_and_the_global_one_is_left_alone() -> None:
    before = torch.random.get_rng_state()

    first, second, other = network_of(1), network_of(1), network_of(2)

    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(weight(first, "actor.0"), weight(second, "actor.0"))
    assert not torch.equal(weight(first, "actor.0"), weight(other, "actor.0"))


def test_the_layers_are_orthogonal_with_the_documented_gains() -> None:
    network = network_of(1, width=16)

    hidden, action, value = (weight(network, layer) for layer in ("actor.2", "actor.4", "critic.4"))

    torch.testing.assert_close(hidden @ hidden.T, 2.0 * torch.eye(16))
    torch.testing.assert_close(action @ action.T, 0.01**2 * torch.eye(3))
    torch.testing.assert_close(value @ value.T, torch.eye(1))
    assert not network.get_parameter("actor.2.bias").any()


def test_the_network_has_the_layers_and_shapes_asked_for() -> None:
    network = ActorCritic(4, 3, 0, hidden_units=8, num_layers=3, generator=torch.Generator())

    outputs, values = network.forward(torch.zeros(5, 4))

    assert outputs.shape == (5, 3)
    assert values.shape == (5,)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in network.actor) == 4
    assert torch.equal(network.value(torch.zeros(5, 4)), values)
