"""How answers become transitions, and how bad numbers are kept out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from stepherd.core.errors import SpecError, StepherdError
from stepherd.rl.ppo import PPO
from unit.rl.walker import SMALL, critic, fill, nobody, spec_of, steps_of, turn


def test_the_first_answer_of_a_slot_begins_and_every_later_one_is_a_step() -> None:
    ppo = PPO(spec_of(), 2, SMALL, seed=1)
    steps, slots = steps_of(np.zeros((2, 2))), np.arange(2)

    counts = []
    for _ in range(3):
        counts.append(ppo.record(slots, steps, nobody(2)))
        ppo.act(slots, steps)

    assert counts == [0, 2, 2]
    assert ppo.n_steps == 4


def test_what_follows_a_step_is_worth_0_or_the_last_observation_or_the_next_one() -> None:
    ppo = PPO(spec_of(), 4, SMALL, seed=1)
    start, after, final = (np.random.default_rng(i).normal(size=(4, 2)) for i in range(3))

    turn(ppo, steps_of(start))
    ended = {"terminated": [True, False, True, False], "interrupted": [False, True, True, False]}
    turn(ppo, steps_of(after, final_obs=(final,), terminated=ended["terminated"], interrupted=ended["interrupted"]))

    next_value = ppo._rollout.next_value[0]
    assert next_value[[0, 2]].tolist() == [0.0, 0.0]
    assert next_value[1] == pytest.approx(critic(ppo, final)[1], abs=1e-6)
    assert next_value[3] == pytest.approx(critic(ppo, after)[3], abs=1e-6)
    assert ppo._rollout.cut[0].tolist() == [True, True, True, False]


def test_rewards_between_decisions_add_up_to_one_step() -> None:
    ppo = PPO(spec_of(), 1, dataclasses.replace(SMALL, strength=0.5), seed=1)
    slots, obs = np.array([0]), np.zeros((1, 2))
    turn(ppo, steps_of(obs))

    counts = [
        ppo.record(slots, steps_of(obs, reward=1.0, deciding=False), nobody(1)),
        ppo.record(slots, steps_of(obs, reward=2.0, deciding=False), nobody(1)),
        ppo.record(slots, steps_of(obs, reward=4.0), nobody(1)),
    ]

    assert counts == [0, 0, 1]
    assert ppo._rollout.reward[0, 0] == 7.0  # as the env gave it; `strength` counts when it is learned from


def test_an_episode_that_ends_while_not_deciding_finishes_the_step_and_a_later_one_begins_anew() -> None:
    ppo = PPO(spec_of(), 1, SMALL, seed=1)
    slots, obs = np.array([0]), np.zeros((1, 2))
    turn(ppo, steps_of(obs))

    ended = ppo.record(slots, steps_of(obs, reward=1.0, deciding=False, terminated=True), nobody(1))
    ended_again = ppo.record(slots, steps_of(obs, reward=9.0, deciding=False, terminated=True), nobody(1))
    begun = ppo.record(slots, steps_of(obs), nobody(1))

    assert (ended, ended_again, begun) == (1, 0, 0)
    assert ppo._rollout.reward[0, 0] == 1.0


def test_a_lost_slot_drops_its_pending_step_and_ends_the_segment_with_the_value_it_acted_on() -> None:
    ppo = PPO(spec_of(), 2, SMALL, seed=1)
    rng = np.random.default_rng(3)
    before, after = rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
    turn(ppo, steps_of(rng.normal(size=(2, 2))))
    turn(ppo, steps_of(before, reward=1.0))

    recorded = ppo.record(np.arange(2), steps_of(after), np.array([True, False]))
    ppo.act(np.arange(2), steps_of(after))

    rollout = ppo._rollout
    assert recorded == 1
    assert rollout.clock.tolist() == [1, 2]
    assert rollout.cut[0].tolist() == [True, False]
    assert rollout.next_value[0, 0] == pytest.approx(critic(ppo, before)[0], abs=1e-6)
    assert rollout.pending.tolist() == [True, True]


def test_a_slot_lost_before_it_acted_again_keeps_the_value_of_the_observation_it_had_reached() -> None:
    ppo = PPO(spec_of(), 1, SMALL, seed=1)
    slots, reached = np.array([0]), np.array([[0.3, -0.4]])
    turn(ppo, steps_of(np.ones((1, 2))))
    ppo.record(slots, steps_of(reached), nobody(1))

    ppo.record(slots, steps_of(np.array([[9.0, 9.0]])), np.array([True]))
    ppo.act(slots, steps_of(np.array([[9.0, 9.0]])))

    assert ppo._rollout.next_value[0, 0] == pytest.approx(critic(ppo, reached)[0], abs=1e-6)
    assert ppo._rollout.cut[0, 0]


def test_slots_may_come_in_any_order_and_number_and_beyond_the_first_guess() -> None:
    ppo = PPO(spec_of(), 2, SMALL, seed=1)
    obs = np.arange(6.0).reshape(3, 2)

    for slots in ([1, 5, 0], [5], [0, 1], [5, 0, 1]):
        steps = steps_of(obs[: len(slots)])
        ppo.record(np.array(slots), steps, nobody(len(slots)))
        ppo.act(np.array(slots), steps)

    assert ppo._rollout.clock.tolist() == [2, 2, 0, 0, 0, 2]


# Bad numbers


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e60])
def test_a_reward_that_is_not_finite_is_refused_by_slot_before_anything_is_recorded(bad: float) -> None:
    ppo = PPO(spec_of(), 2, SMALL, seed=1)
    turn(ppo, steps_of(np.zeros((2, 2))))

    with pytest.raises(SpecError, match="reward of behavior 'Walker' in slot 1"):
        ppo.record(np.arange(2), steps_of(np.zeros((2, 2)), reward=[0.0, bad]), nobody(2))

    assert ppo.n_steps == ppo._rollout.size == 0


@pytest.mark.parametrize("normalize", [False, True])
def test_an_observation_that_is_not_finite_is_refused_before_it_reaches_statistics_or_network(
    normalize: bool,
) -> None:
    ppo = PPO(spec_of(), 2, dataclasses.replace(SMALL, normalize=normalize), seed=1)
    good, bad = np.zeros((2, 2)), np.array([[0.0, 0.0], [0.0, np.nan]])

    with pytest.raises(SpecError, match=r"'legs' of behavior 'Walker' is nan .* slot 1 \(element 1\)"):
        ppo.act(np.arange(2), steps_of(bad))
    turn(ppo, steps_of(good))
    with pytest.raises(SpecError, match="'legs'"):
        ppo.record(np.arange(2), steps_of(bad), nobody(2))
    with pytest.raises(SpecError, match="'legs'"):
        ppo.record(np.arange(2), steps_of(good, interrupted=True, final_obs=(bad,)), nobody(2))

    assert ppo.n_steps == 0
    assert ppo.policy.normalizer is None or np.isfinite(ppo.policy.normalizer.mean).all()


def test_a_last_observation_that_nobody_needs_may_be_garbage() -> None:
    ppo = PPO(spec_of(), 1, SMALL, seed=1)
    turn(ppo, steps_of(np.zeros((1, 2))))

    turn(ppo, steps_of(np.zeros((1, 2)), terminated=True, final_obs=(np.full((1, 2), np.nan),)))

    assert ppo.n_steps == 1


def test_a_loss_that_is_not_finite_stops_before_it_reaches_the_weights() -> None:
    ppo = PPO(spec_of(), 4, dataclasses.replace(SMALL, batch_size=1000), seed=1)
    fill(ppo, np.random.default_rng(1))
    ppo._rollout.reward[0, 0] = 1e30  # its square is beyond float32
    before = {name: tensor.clone() for name, tensor in ppo.policy.network.state_dict().items()}

    with pytest.raises(StepherdError, match="training of behavior 'Walker' diverged after 32 steps: loss inf"):
        ppo.update()

    after = ppo.policy.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
