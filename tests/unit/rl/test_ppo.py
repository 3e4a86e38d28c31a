from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stepherd.rl.distributions import RawActions
from stepherd.rl.ppo import PPO, PPOSettings, policy_loss, value_loss
from stepherd.spec.batch import Actions
from stepherd.spec.specs import ActionSpec, ObservationSpec
from unit.rl.walker import CONTINUOUS, DISCRETE, HYBRID, SMALL, critic, fill, nobody, spec_of, steps_of, turn

# Losses


def test_the_policy_loss_gives_no_reason_to_move_a_ratio_beyond_the_clip() -> None:
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, -1.0, 1.0])

    loss = policy_loss(ratio, advantage, 0.2)
    (gradient,) = torch.autograd.grad(loss, ratio)

    assert loss.item() == pytest.approx(-(1.2 - 0.8 - 1.5 + 0.5) / 4)
    assert gradient.tolist() == [0.0, 0.0, 0.25, -0.25]


def test_the_value_loss_is_clipped_around_the_old_values_and_takes_the_worse_error() -> None:
    old = torch.tensor([0.0, 0.0, 0.0])
    target = torch.tensor([1.0, 1.0, -1.0])
    value = torch.tensor([0.1, 0.5, 0.5], requires_grad=True)  # in range; beyond, right way; beyond, wrong way

    loss = value_loss(value, old, target, 0.2)
    (gradient,) = torch.autograd.grad(loss, value)

    assert loss.item() == pytest.approx((0.9**2 + 0.8**2 + 1.5**2) / 3)
    assert gradient.tolist() == pytest.approx([2 * -0.9 / 3, 0.0, 2 * 1.5 / 3])


def test_without_an_epsilon_the_value_loss_is_the_mean_squared_error() -> None:
    value, target = torch.tensor([0.0, 9.0]), torch.tensor([1.0, 6.0])

    assert value_loss(value, torch.zeros(2), target, None).item() == pytest.approx((1 + 9) / 2)


def test_values_are_bound_to_the_old_ones_only_when_asked() -> None:
    moved = {}
    for clip_values in (False, True):
        settings = dataclasses.replace(SMALL, clip_values=clip_values, learning_rate=3e-2, num_epoch=20)
        ppo = PPO(spec_of(), 4, settings, seed=1)
        while not ppo.is_full:
            turn(ppo, steps_of(np.ones((4, 2)), reward=100.0, terminated=True))
        before = critic(ppo, np.ones((1, 2)))
        ppo.update()
        moved[clip_values] = (critic(ppo, np.ones((1, 2))) - before).item()

    # With clipping the gradient stops at epsilon; Adam's momentum carries the value a little further.
    assert 0.2 <= moved[True] < moved[False] / 3


# Acting


@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS, HYBRID])
def test_actions_have_the_env_s_shapes_types_and_bounds(action: ActionSpec) -> None:
    ppo = PPO(spec_of(action), 64, SMALL, seed=1)

    actions = turn(ppo, steps_of(np.zeros((64, 2))))

    assert actions.continuous.shape == (64, action.n_continuous)
    assert actions.discrete.shape == (64, len(action.branches))
    assert actions.continuous.dtype == np.float32
    assert actions.discrete.dtype == np.int32
    assert (actions.continuous >= np.array(action.low)).all()
    assert (actions.continuous <= np.array(action.high)).all()
    for branch, n in enumerate(action.branches):
        assert set(actions.discrete[:, branch]) == set(range(n))


def test_slots_that_are_not_deciding_get_zeros_and_nothing_pending_and_may_observe_garbage() -> None:
    ppo = PPO(spec_of(CONTINUOUS), 3, SMALL, seed=1)
    obs = np.array([[0.0, 0.0], [np.nan, np.inf], [0.0, 0.0]])

    actions = turn(ppo, steps_of(obs, deciding=[True, False, True]))

    assert actions.continuous[1].tolist() == [0.0, 0.0]
    assert ppo._rollout.pending.tolist() == [True, False, True]


def test_when_nobody_decides_nobody_acts() -> None:
    ppo = PPO(spec_of(), 2, SMALL, seed=1)

    actions = turn(ppo, steps_of(np.full((2, 2), np.nan), deciding=False))

    assert actions.discrete.tolist() == [[0], [0]]
    assert not ppo._rollout.pending.any()


@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS, HYBRID])
def test_without_exploring_the_most_likely_action_is_taken_and_draws_no_random_number(action: ActionSpec) -> None:
    ppo = PPO(spec_of(action), 4, SMALL, seed=1)
    steps, slots = steps_of(np.ones((4, 2))), np.arange(4)

    first = ppo.act(slots, steps, explore=False, learn=False)
    second = ppo.act(slots, steps, explore=False, learn=False)

    assert first.discrete.tolist() == second.discrete.tolist() == [first.discrete[0].tolist()] * 4
    assert first.continuous.tolist() == second.continuous.tolist() == [first.continuous[0].tolist()] * 4
    assert ppo.state_dict()["generator"].equal(PPO(spec_of(action), 4, SMALL, seed=1).state_dict()["generator"])


def test_acting_without_learning_leaves_no_trace() -> None:
    ppo = PPO(spec_of(), 4, dataclasses.replace(SMALL, normalize=True), seed=1)
    steps, slots = steps_of(np.ones((4, 2))), np.arange(4)

    ppo.act(slots, steps, learn=False)

    assert ppo.record(slots, steps, nobody(4)) == 0
    assert ppo.policy.normalizer is not None
    assert ppo.policy.normalizer.count == 0
    assert ppo.n_steps == 0


def test_the_setting_deterministic_turns_exploration_off() -> None:
    ppo = PPO(spec_of(CONTINUOUS), 2, dataclasses.replace(SMALL, deterministic=True), seed=1)

    actions = turn(ppo, steps_of(np.ones((2, 2))))

    assert actions.continuous[0].tolist() == actions.continuous[1].tolist()


# Updating


@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS, HYBRID])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_ratio_is_1_in_the_first_minibatch_of_the_first_epoch(action: ActionSpec, normalize: bool) -> None:
    settings = dataclasses.replace(SMALL, num_epoch=1, batch_size=1000, normalize=normalize)
    ppo = PPO(spec_of(action), 4, settings, seed=1)
    with torch.no_grad():
        ppo.policy.network.get_parameter("actor.4.weight").mul_(100.0)  # log-probabilities that differ
    fill(ppo, np.random.default_rng(2))

    batch = ppo._batch()
    losses = ppo._losses(batch, 0.2, 0.0)

    with torch.no_grad():
        outputs, _ = ppo.policy.network(batch.obs)
        actions = RawActions(batch.continuous, batch.discrete)
        log_prob = ppo.policy.distribution.log_prob(outputs, ppo.policy.network.log_std, actions)
    assert log_prob.std() > 0.1
    torch.testing.assert_close(log_prob, batch.log_prob, atol=1e-5, rtol=0)
    assert losses.statistics[3].item() == pytest.approx(0.0, abs=1e-6)


def test_an_update_empties_the_rollout_and_reports_under_ml_agents_tags() -> None:
    ppo = PPO(spec_of(), 4, SMALL, seed=1)
    fill(ppo, np.random.default_rng(2))

    statistics = ppo.update()

    assert not ppo.is_full
    assert ppo._rollout.size == 0
    assert {
        "Losses/Policy Loss",
        "Losses/Value Loss",
        "Policy/Entropy",
        "Policy/Learning Rate",
        "Policy/Epsilon",
        "Policy/Beta",
        "Policy/Extrinsic Value Estimate",
    } < statistics.keys()
    assert all(isinstance(number, float) and np.isfinite(number) for number in statistics.values())
    assert statistics["Policy/Learning Rate"] == pytest.approx(3e-4 * (1 - 32 / 1000))
    assert statistics["Policy/Epsilon"] == pytest.approx(0.1 + 0.1 * (1 - 32 / 1000))
    assert statistics["Policy/Entropy"] == pytest.approx(np.log(3), abs=1e-3)


def test_an_update_before_acting_uses_the_value_of_the_observation_that_waits() -> None:
    ppo = PPO(spec_of(), 1, SMALL, seed=1)
    reached = np.array([[0.3, -0.4]])
    turn(ppo, steps_of(np.ones((1, 2))))
    ppo.record(np.array([0]), steps_of(reached, reward=2.0), nobody(1))

    target = ppo._batch().target

    assert target.tolist() == pytest.approx([2.0 + 0.99 * critic(ppo, reached)[0]], abs=1e-6)


def test_an_action_in_flight_is_learned_from_in_the_next_update() -> None:
    ppo = PPO(spec_of(), 4, SMALL, seed=1)
    rng = np.random.default_rng(2)
    fill(ppo, rng)
    ppo.update()

    recorded = ppo.record(np.arange(4), steps_of(rng.normal(size=(4, 2)), reward=1.0), nobody(4))

    assert recorded == 4
    assert ppo._rollout.reward[0].tolist() == [1.0] * 4


def test_one_recorded_step_is_enough_for_an_update() -> None:
    ppo = PPO(spec_of(), 1, SMALL, seed=1)
    for _ in range(2):
        turn(ppo, steps_of(np.zeros((1, 2)), reward=1.0))

    statistics = ppo.update()

    assert np.isfinite(list(statistics.values())).all()


@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS, HYBRID])
def test_the_same_seed_and_inputs_give_bit_identical_weights_whatever_the_global_generator_does(
    action: ActionSpec,
) -> None:
    weights = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        ppo = PPO(spec_of(action), 4, dataclasses.replace(SMALL, normalize=True), seed=5)
        rng = np.random.default_rng(2)
        for _ in range(3):
            fill(ppo, rng)
            ppo.update()
        weights.append(ppo.policy.network.state_dict())

    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_another_seed_gives_other_weights() -> None:
    one, other = (PPO(spec_of(), 4, SMALL, seed=seed).policy.network.state_dict() for seed in (1, 2))

    assert not torch.equal(one["actor.0.weight"], other["actor.0.weight"])


# Learning

Reward = Callable[[npt.NDArray[np.int64], Actions], npt.NDArray[np.float64]]


def guess_the_cue(cue: npt.NDArray[np.int64], actions: Actions) -> npt.NDArray[np.float64]:
    return np.where(actions.discrete[:, 0] == cue, 1.0, 0.0)


def aim_at_the_cue(cue: npt.NDArray[np.int64], actions: Actions) -> npt.NDArray[np.float64]:
    return 1.0 - np.abs(actions.continuous[:, 0].astype(np.float64) - (cue - 1) * 0.5)


def guess_and_aim(cue: npt.NDArray[np.int64], actions: Actions) -> npt.NDArray[np.float64]:
    guessed, aimed = guess_the_cue(cue, actions), aim_at_the_cue(cue, actions)
    return np.add(guessed, aimed) / 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "reward"),
    [
        (ActionSpec(branches=(3,)), guess_the_cue),
        (ActionSpec(1, (), (-1.0,), (1.0,)), aim_at_the_cue),
        (ActionSpec(1, (3, 2), (-1.0,), (1.0,)), guess_and_aim),
    ],
    ids=["discrete", "continuous", "hybrid"],
)
def test_an_env_of_one_step_is_learned_within_seconds(action: ActionSpec, reward: Reward) -> None:
    settings = PPOSettings(
        batch_size=64, buffer_size=256, num_epoch=5, learning_rate=3e-3, hidden_units=16, num_layers=1, max_steps=6000
    )
    ppo = PPO(spec_of(action, ObservationSpec("cue", (), "int64", "category", (3,), (0,))), 16, settings, seed=1)
    rng = np.random.default_rng(1)
    cue, earned = rng.integers(3, size=16), np.zeros(16)
    actions = turn(ppo, steps_of(cue))
    while ppo.n_steps < 6000:
        earned = reward(cue, actions)
        cue = rng.integers(3, size=16)
        actions = turn(ppo, steps_of(cue, reward=earned, terminated=True))
        if ppo.is_full:
            ppo.update()

    best = ppo.act(np.arange(16), steps_of(cue), explore=False, learn=False)

    assert reward(cue, best).mean() > 0.9
