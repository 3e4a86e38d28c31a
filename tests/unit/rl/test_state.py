"""What a checkpoint holds, and that loading it continues the run or says why it cannot."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pytest
import torch

from stepherd.core.errors import SpecError
from stepherd.rl.ppo import PPO, PPOSettings
from stepherd.spec.batch import BehaviorSteps
from stepherd.spec.specs import ActionSpec, BehaviorSpec, ObservationSpec

HYBRID = ActionSpec(1, (2, 3), (-1.0,), (1.0,))
SETTINGS = PPOSettings(
    batch_size=16, buffer_size=32, num_epoch=2, hidden_units=8, time_horizon=8, max_steps=1000, normalize=True
)


def ppo_of(
    seed: int = 1, *, width: int = 2, action: ActionSpec = HYBRID, n_slots: int = 4, settings: PPOSettings = SETTINGS
) -> PPO:
    behavior = BehaviorSpec("Walker", (ObservationSpec("legs", (width,), "float64"),), action)
    return PPO(behavior, n_slots, settings, seed)


def random_steps(rng: np.random.Generator, n: int = 4) -> BehaviorSteps:
    obs, final_obs = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    terminated, interrupted = rng.random(n) < 0.1, rng.random(n) < 0.1
    return BehaviorSteps((obs,), (final_obs,), rng.normal(size=n), np.ones(n, np.bool_), terminated, interrupted)


def play(ppo: PPO, rng: np.random.Generator, n_turns: int, n: int = 4) -> None:
    for _ in range(n_turns):
        steps = random_steps(rng, n)
        ppo.record(np.arange(n), steps, np.zeros(n, np.bool_))
        ppo.act(np.arange(n), steps)
        if ppo.is_full:
            ppo.update()


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def assert_same(one: Any, other: Any, path: str = "state") -> None:
    assert type(one) is type(other), path
    if isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    else:
        assert one == other, path


def lose_everything(ppo: PPO, rng: np.random.Generator) -> None:
    """Begin new episodes in all slots, as a resumed run does."""
    steps = random_steps(rng)
    ppo.record(np.arange(4), steps, np.ones(4, np.bool_))
    ppo.act(np.arange(4), steps)


@pytest.mark.parametrize("acted", [True, False])
def test_a_resumed_run_continues_bit_identically(acted: bool) -> None:
    straight = ppo_of()
    play(straight, np.random.default_rng(1), 21)
    if not acted:  # as after a drain: recorded, but nobody acted on it
        straight.record(np.arange(4), random_steps(np.random.default_rng(7)), np.zeros(4, np.bool_))
    assert 0 < straight._rollout.size < 32

    resumed = ppo_of(seed=99)
    resumed.load_state_dict(through_a_file(straight.state_dict()))
    for ppo in (straight, resumed):
        rng = np.random.default_rng(2)
        lose_everything(ppo, rng)
        play(ppo, rng, 30)

    assert straight.n_steps == resumed.n_steps
    assert_same(straight.state_dict(), resumed.state_dict())


def test_taking_the_state_changes_nothing_and_later_steps_do_not_change_what_was_taken() -> None:
    watched, left_alone = ppo_of(), ppo_of()
    rngs = [np.random.default_rng(1) for _ in range(2)]
    states = []
    for ppo, rng in zip((watched, left_alone), rngs, strict=True):
        for _ in range(12):
            play(ppo, rng, 3)
            if ppo is watched:
                states.append((ppo.state_dict(), through_a_file(ppo.state_dict())))

    assert_same(watched.state_dict(), left_alone.state_dict())
    for state, copy in states:
        assert_same(state, copy)


def test_a_state_taken_right_after_loading_is_the_one_that_was_loaded() -> None:
    ppo, other = ppo_of(), ppo_of(seed=2)
    play(ppo, np.random.default_rng(1), 13)
    state = ppo.state_dict()

    other.load_state_dict(state)

    again = other.state_dict()
    clock = state["rollout"]["clock"]
    state["rollout"]["cut"][clock - 1, torch.arange(4)] = True  # loading ends the unfinished segments
    assert_same(again, state)


@pytest.mark.parametrize("n_slots", [1, 9])
def test_a_run_may_resume_with_another_number_of_slots_and_keeps_every_counted_step(n_slots: int) -> None:
    ppo, other = ppo_of(), ppo_of(n_slots=n_slots)
    play(ppo, np.random.default_rng(1), 13)

    other.load_state_dict(ppo.state_dict())
    size = other._rollout.size
    play(other, np.random.default_rng(2), 40, n_slots)

    assert size == ppo._rollout.size > 0
    assert other.n_steps == ppo.n_steps + 39 * n_slots


def test_loading_only_the_weights_begins_a_new_run_with_the_same_policy() -> None:
    ppo, other = ppo_of(), ppo_of(seed=2)
    play(ppo, np.random.default_rng(1), 21)

    other.load_weights(through_a_file(ppo.state_dict()))

    ours, theirs = ppo.state_dict(), other.state_dict()
    for part in ("policy", "adam"):
        assert_same(ours[part], theirs[part], part)
    assert other.n_steps == other._rollout.size == 0
    play(other, np.random.default_rng(2), 20)
    assert other.n_steps == 19 * 4


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"width": 3}, r"observation 'legs': checkpoint has 'box \(2,\)', env has 'box \(3,\)'"),
        ({"action": ActionSpec(1, (2, 4), (-1.0,), (1.0,))}, r"actions: checkpoint has .*\(2, 3\).*env has .*\(2, 4\)"),
        (
            {"settings": dataclasses.replace(SETTINGS, hidden_units=16)},
            r"'actor.0.weight' has shape \(8, 2\), .*\(16, 2\)",
        ),
        ({"settings": dataclasses.replace(SETTINGS, num_layers=3)}, r"'actor.6.weight' is missing"),
        ({"settings": dataclasses.replace(SETTINGS, normalize=False)}, "trained with normalize, this run is without"),
    ],
)
@pytest.mark.parametrize("method", ["load_state_dict", "load_weights"])
def test_a_checkpoint_that_does_not_fit_is_refused_by_name_and_changes_nothing(
    other: dict[str, Any], message: str, method: str
) -> None:
    trained, ppo = ppo_of(), ppo_of(seed=2, **other)
    play(trained, np.random.default_rng(1), 21)
    before = ppo.state_dict()

    with pytest.raises(SpecError, match=message):
        getattr(ppo, method)(trained.state_dict())

    assert_same(ppo.state_dict(), before)


def broken(state: dict[str, Any], *path: str, value: object = None) -> dict[str, Any]:
    """Return `state` with one entry replaced, or removed when `value` is None."""
    if len(path) > 1:
        return state | {path[0]: broken(state[path[0]], *path[1:], value=value)}
    rest = {key: entry for key, entry in state.items() if key != path[0]}
    return rest if value is None else rest | {path[0]: value}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("policy", "network", "critic.0.bias"), None, "'critic.0.bias' is missing"),
        (("policy", "network", "extra"), torch.zeros(1), "'extra' is not part of this network"),
        (
            ("policy", "network", "critic.0.bias"),
            torch.full((8,), torch.nan),
            "'critic.0.bias' holds numbers that are not finite",
        ),
        (("policy", "network", "critic.0.bias"), [0.0] * 8, "'critic.0.bias' is a list"),
        (("adam", "square"), torch.zeros(3), r"optimizer .* 'square' has shape \(3,\)"),
        (("adam", "n_steps"), -1, "optimizer .* 'n_steps' is -1"),
        (("policy", "normalizer", "mean"), torch.zeros(5, dtype=torch.float64), r"'mean' has shape \(5,\)"),
        (("generator",), torch.zeros(3, dtype=torch.uint8), "'generator' is not a random state"),
        (("rollout", "value"), torch.zeros(1, 1), "'value' has shape"),
        (("rollout", "clock"), torch.full((4,), 1000), "'clock' goes beyond"),
        (("rollout", "log_prob"), None, "'log_prob'"),
        (("rollout",), None, "lacks rollout"),
        (("format",), 77, "has format 77"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name_and_changes_nothing(
    path: tuple[str, ...], value: object, message: str
) -> None:
    trained, ppo = ppo_of(), ppo_of(seed=2)
    play(trained, np.random.default_rng(1), 21)
    before = ppo.state_dict()

    with pytest.raises(SpecError, match=message):
        ppo.load_state_dict(broken(trained.state_dict(), *path, value=value))

    assert_same(ppo.state_dict(), before)
