from __future__ import annotations

import numpy as np
import pytest
import torch

from stepherd.core.errors import SpecError, StepherdError
from stepherd.rl.policy import Policy
from stepherd.spec.specs import ActionSpec, BehaviorSpec, ObservationSpec

HYBRID = ActionSpec(1, (2, 3), (-1.0,), (1.0,))


def policy_of(action: ActionSpec = HYBRID, *, normalize: bool = False) -> Policy:
    spec = BehaviorSpec("Walker", (ObservationSpec("legs", (2,), "float64"),), action)
    generator = torch.Generator().manual_seed(1)
    return Policy(spec, hidden_units=8, num_layers=2, normalize=normalize, generator=generator)


def vectors_of(n: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.random.default_rng(1).normal(size=(n, 2)).astype(np.float32)


def test_what_was_drawn_comes_with_its_log_probability_and_the_value_it_was_drawn_at() -> None:
    policy, vectors = policy_of(), vectors_of(5)

    drawn = policy.draw(vectors, torch.Generator().manual_seed(2))

    assert drawn.continuous.shape == (5, 1)
    assert drawn.discrete.shape == (5, 2)
    assert drawn.log_prob.shape == (5,)
    assert drawn.value == pytest.approx(policy.values(vectors), abs=1e-6)


def test_without_a_generator_the_most_likely_action_is_taken() -> None:
    policy, vectors = policy_of(), vectors_of(5)

    drawn = policy.draw(vectors, None)

    with torch.no_grad():
        outputs = policy.network.actor(torch.from_numpy(vectors)).numpy()
    assert drawn.continuous == pytest.approx(outputs[:, :1])
    assert drawn.discrete[:, 0].tolist() == outputs[:, 1:3].argmax(axis=1).tolist()
    assert drawn.discrete[:, 1].tolist() == outputs[:, 3:].argmax(axis=1).tolist()


def test_values_are_those_of_the_normalised_observations() -> None:
    policy, plain = policy_of(normalize=True), policy_of()
    vectors = vectors_of(5) * 100.0
    assert policy.normalizer is not None
    policy.normalizer.update(vectors)

    values = policy.values(vectors)

    assert values == pytest.approx(plain.values(policy.normalized(vectors)))
    assert np.abs(policy.normalized(vectors)).max() < 5.0


def test_only_the_rows_asked_for_are_encoded_and_looked_at() -> None:
    obs = np.array([[1.0, 2.0], [np.nan, np.inf], [3.0, 4.0]])

    vectors = policy_of().encode((obs,), np.arange(3), np.array([True, False, True]))

    assert vectors.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_policy_that_diverged_is_blamed_itself_and_chooses_no_action() -> None:
    policy = policy_of()
    with torch.no_grad():
        policy.network.get_parameter("actor.0.weight")[0, 0] = np.nan

    with pytest.raises(StepherdError, match="policy of behavior 'Walker' diverged"):
        policy.draw(vectors_of(1), None)


def test_a_behavior_without_actions_is_refused() -> None:
    with pytest.raises(SpecError, match="'Walker' has no actions"):
        policy_of(ActionSpec())
