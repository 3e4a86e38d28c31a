"""Envs and places become slots, steps are counted once, and every setting of a behavior reaches its learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from stepherd.core.errors import SpecError
from stepherd.rl.settings import PPOSettings
from stepherd.spec.batch import Actions, BehaviorSteps, Bools, Ints
from stepherd.training.behavior_trainer import BehaviorTrainer, ppo_settings
from stepherd.training.config import (
    ExtrinsicReward,
    NetworkSettings,
    PPOHyperparameters,
    RewardSignals,
    TrainerSettings,
)
from stepherd.training.run_folder import RunFolder
from stepherd.training.statistics import Statistics, open_statistics
from unit.training.fake_envs import behavior, one_torch_thread

__all__ = ["one_torch_thread"]  # a fixture
pytestmark = pytest.mark.usefixtures("one_torch_thread")

SMALL = TrainerSettings(
    hyperparameters=PPOHyperparameters(batch_size=8, buffer_size=16, num_epoch=1),
    network_settings=NetworkSettings(hidden_units=4, num_layers=1),
    max_steps=20,
)
N_ENVS = 3


@pytest.fixture
def statistics(tmp_path: Path) -> Iterator[Statistics]:
    with open_statistics(RunFolder(tmp_path, "it", is_resumed=False), ["Walker"]) as statistics:
        yield statistics


def new_trainer(
    n_agents: int = 1, settings: TrainerSettings = SMALL, *, seed: int = 1, learns: bool = True
) -> BehaviorTrainer:
    return BehaviorTrainer(behavior("Walker", n_agents), N_ENVS, settings, seed=seed, device="cpu", learns=learns)


def steps_of(n_envs: int, n_agents: int = 1, reward: float = 1.0) -> BehaviorSteps:
    """Return what envs answer; the first number each place sees is its row."""
    shape = (n_envs, n_agents)
    obs = np.zeros((*shape, 2), np.float32)
    obs[..., 0] = np.arange(n_envs * n_agents).reshape(shape)
    no = np.zeros(shape, np.bool_)
    return BehaviorSteps((obs,), (np.full_like(obs, np.nan),), np.full(shape, reward), ~no, no.copy(), no.copy())


def ids(*env_ids: int) -> Ints:
    return np.array(env_ids, np.int64)


def none_lost(n: int) -> Bools:
    return np.zeros(n, np.bool_)


def turn(trainer: BehaviorTrainer, env_ids: Ints, statistics: Statistics, n_agents: int = 1) -> Actions:
    """Act for envs and take their answer in."""
    actions = trainer.act(env_ids, steps_of(len(env_ids), n_agents))
    trainer.take(env_ids, steps_of(len(env_ids), n_agents), none_lost(len(env_ids)), statistics)
    return actions


def test_slots_are_env_times_places_plus_place(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = new_trainer(n_agents=2)
    seen: list[tuple[list[int], list[float]]] = []
    act = trainer.learner.act

    def watched(slots: Ints, steps: BehaviorSteps, *, learn: bool) -> Actions:
        seen.append((slots.tolist(), steps.obs[0][:, 0].tolist()))
        return act(slots, steps, learn=learn)

    monkeypatch.setattr(trainer.learner, "act", watched)

    trainer.act(ids(0, 2), steps_of(2, 2))

    assert seen == [([0, 1, 4, 5], [0.0, 1.0, 2.0, 3.0])]


@pytest.mark.parametrize("n_agents", [1, 3])
def test_actions_have_envs_and_places_as_leading_axes(n_agents: int) -> None:
    trainer = new_trainer(n_agents)

    actions = trainer.act(ids(0, 2), steps_of(2, n_agents))

    assert actions.continuous.shape == (2, n_agents, 1)
    assert actions.discrete.shape == (2, n_agents, 1)


def test_each_place_gets_the_action_drawn_for_its_own_observation() -> None:
    certain = SMALL.model_copy(
        update={"network_settings": NetworkSettings(hidden_units=4, num_layers=1, deterministic=True)}
    )
    together, alone = new_trainer(3, certain), new_trainer(1, certain)
    steps = steps_of(2, 3)

    actions = together.act(ids(0, 1), steps).continuous

    for env_id in range(2):
        for place in range(3):
            expected = alone.learner.act(ids(0), row_of(steps, env_id, place), learn=False).continuous
            np.testing.assert_allclose(actions[env_id, place], expected[0], rtol=1e-5)


def row_of(steps: BehaviorSteps, env_id: int, place: int) -> BehaviorSteps:
    """Return one place of one env as the only row of a learner."""
    return BehaviorSteps(
        (steps.obs[0][env_id, place : place + 1],),
        (steps.final_obs[0][env_id, place : place + 1],),
        steps.reward[env_id, place : place + 1],
        steps.deciding[env_id, place : place + 1],
        steps.terminated[env_id, place : place + 1],
        steps.interrupted[env_id, place : place + 1],
    )


@pytest.mark.parametrize("n_agents", [1, 2])
def test_every_place_counts_as_a_step(n_agents: int, statistics: Statistics) -> None:
    trainer = new_trainer(n_agents)
    trainer.begin(ids(0, 1, 2), steps_of(3, n_agents))

    turn(trainer, ids(0, 2), statistics, n_agents)

    assert trainer.n_steps == 2 * n_agents


def test_a_lost_env_counts_for_none_of_its_places(statistics: Statistics) -> None:
    trainer = new_trainer(2)
    trainer.act(ids(0, 1), steps_of(2, 2))

    trainer.take(ids(0, 1), steps_of(2, 2), np.array([False, True]), statistics)

    assert trainer.n_steps == 2


def test_the_first_observations_are_no_steps() -> None:
    trainer = new_trainer()

    trainer.begin(ids(0, 1, 2), steps_of(3))

    assert trainer.n_steps == 0


def test_it_is_finished_at_max_steps_and_then_counts_no_more(statistics: Statistics) -> None:
    trainer = new_trainer(settings=SMALL.model_copy(update={"max_steps": 6}))
    turn(trainer, ids(0, 1, 2), statistics)
    assert not trainer.finished
    turn(trainer, ids(0, 1, 2), statistics)
    assert trainer.finished

    turn(trainer, ids(0, 1, 2), statistics)

    assert trainer.n_steps == 6


@pytest.mark.parametrize(
    ("n_agents", "n_in_flight", "left"),
    [(1, 0, 20), (1, 5, 15), (1, 20, 0), (1, 30, 0), (3, 0, 7), (3, 6, 1), (3, 7, 0)],
)
def test_it_wants_as_many_envs_as_steps_are_left_with_the_last_env_whole(
    n_agents: int, n_in_flight: int, left: int
) -> None:
    trainer = new_trainer(n_agents)

    assert trainer.envs_left(n_in_flight) == left


def test_it_learns_as_soon_as_enough_is_recorded(statistics: Statistics) -> None:
    trainer = new_trainer()
    for _ in range(5):
        turn(trainer, ids(0, 1, 2), statistics)
    assert trainer.update_if_full() is None  # 15 of 16

    turn(trainer, ids(0, 1, 2), statistics)

    update = trainer.update_if_full()
    assert update is not None
    assert "Losses/Policy Loss" in update
    assert trainer.update_if_full() is None


def test_a_resumed_trainer_goes_on_with_the_count_and_the_weights(statistics: Statistics) -> None:
    first = new_trainer(seed=1)
    turn(first, ids(0, 1, 2), statistics)
    second = new_trainer(seed=2)

    second.resume(first.state_dict())

    assert second.n_steps == 3
    assert_same_weights(first, second)


def test_an_initialized_trainer_has_the_weights_and_starts_from_0(statistics: Statistics) -> None:
    first = new_trainer(seed=1)
    turn(first, ids(0, 1, 2), statistics)
    second = new_trainer(seed=2)

    second.initialize(first.state_dict())

    assert second.n_steps == 0
    assert_same_weights(first, second)


@pytest.mark.parametrize("how", ["resume", "initialize"])
def test_weights_of_other_networks_are_refused_and_change_nothing(how: str) -> None:
    larger = SMALL.model_copy(update={"network_settings": NetworkSettings(hidden_units=8, num_layers=1)})
    trainer, untouched = new_trainer(seed=1), new_trainer(seed=1)

    with pytest.raises(SpecError):
        getattr(trainer, how)(new_trainer(settings=larger).state_dict())

    assert_same_weights(trainer, untouched)


def assert_same_weights(one: BehaviorTrainer, other: BehaviorTrainer) -> None:
    mine, theirs = (trainer.learner.policy.network.state_dict() for trainer in (one, other))
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_inference_counts_and_records_nothing_and_never_finishes(statistics: Statistics) -> None:
    trainer = new_trainer(learns=False)
    trainer.begin(ids(0, 1, 2), steps_of(3))

    for _ in range(20):  # three times max_steps
        turn(trainer, ids(0, 1, 2), statistics)
        assert trainer.update_if_full() is None

    assert trainer.n_steps == 60
    assert trainer.learner.n_steps == 0
    assert not trainer.learner.is_full
    assert not trainer.finished


def test_inference_does_not_count_lost_rows(statistics: Statistics) -> None:
    trainer = new_trainer(learns=False)
    trainer.act(ids(0, 1), steps_of(2))

    trainer.take(ids(0, 1), steps_of(2), np.array([True, False]), statistics)

    assert trainer.n_steps == 1


def test_every_setting_of_the_file_reaches_the_learner() -> None:
    expected = PPOSettings(
        batch_size=11,
        buffer_size=222,
        learning_rate=0.003,
        learning_rate_schedule="constant",
        beta=0.04,
        beta_schedule="linear",
        epsilon=0.15,
        epsilon_schedule="constant",
        lambd=0.9,
        num_epoch=7,
        gamma=0.98,
        strength=0.5,
        time_horizon=33,
        max_steps=4444,
        hidden_units=55,
        num_layers=4,
        normalize=True,
        deterministic=True,
        clip_values=True,
    )
    settings = TrainerSettings(
        hyperparameters=PPOHyperparameters(
            batch_size=11,
            buffer_size=222,
            learning_rate=0.003,
            learning_rate_schedule="constant",
            beta=0.04,
            beta_schedule="linear",
            epsilon=0.15,
            epsilon_schedule="constant",
            lambd=0.9,
            num_epoch=7,
            clip_values=True,
        ),
        network_settings=NetworkSettings(normalize=True, hidden_units=55, num_layers=4, deterministic=True),
        reward_signals=RewardSignals(extrinsic=ExtrinsicReward(gamma=0.98, strength=0.5)),
        time_horizon=33,
        max_steps=4444,
    )

    assert ppo_settings(settings) == expected
    default = PPOSettings()
    same = {field.name for field in dataclasses.fields(default)
            if getattr(default, field.name) == getattr(expected, field.name)}  # fmt: skip
    assert same == {"beta_schedule"}  # the others are told apart from what a forgotten field would have


def test_a_beta_schedule_of_its_own_reaches_the_learner() -> None:
    settings = TrainerSettings(hyperparameters=PPOHyperparameters(beta_schedule="constant"))

    assert ppo_settings(settings).beta_schedule == "constant"


def test_the_defaults_of_the_file_and_of_the_learner_are_the_same() -> None:
    assert ppo_settings(TrainerSettings()) == PPOSettings()
