"""A Gymnasium env is one behavior with one agent place, and every number of it lands where it belongs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stepherd.core.errors import SpecError
from stepherd.envs.gymnasium_env import GymnasiumEnv, behavior_name
from stepherd.spec.batch import Actions, EnvActions, EnvSteps
from stepherd.testing.faulty_envs import CountingEnv, RaisingEnv, WrongObservationEnv, WrongRewardEnv
from stepherd.transport.layout import Layout


def arrays_for(env: GymnasiumEnv) -> tuple[EnvSteps, EnvActions]:
    """Return the arrays of one env, as a worker's block has them."""
    layout = Layout.of(env.spec)
    return next(iter(layout.per_env(memoryview(bytearray(b"\xff" * layout.block_bytes(1))), 1)))


def act(actions: EnvActions, choice: int) -> EnvActions:
    """Write a choice into the only branch."""
    (mine,) = actions.values()
    mine.discrete[...] = choice
    return actions


def test_a_reset_writes_the_first_observation_and_a_clean_slate() -> None:
    env = GymnasiumEnv(CountingEnv())
    steps, _ = arrays_for(env)

    env.reset(7, steps)

    mine = steps["CountingEnv"]
    assert mine.obs[0].tolist() == [[7.0, 1.0, 0.0, -1.0]]
    assert mine.reward.tolist() == [0.0]
    assert mine.deciding.tolist() == [True]
    assert mine.ended.tolist() == [False]


def test_a_step_in_the_middle_of_an_episode_writes_obs_and_leaves_final_obs_alone() -> None:
    env = GymnasiumEnv(CountingEnv())
    steps, actions = arrays_for(env)
    env.reset(None, steps)
    before = steps["CountingEnv"].final_obs[0].tobytes()

    ended = env.step(act(actions, 9), steps)

    mine = steps["CountingEnv"]
    assert not ended
    assert mine.obs[0].tolist() == [[-1.0, 1.0, 1.0, 9.0]]
    assert mine.reward.tolist() == [101.0]
    assert mine.deciding.tolist() == [True]
    assert mine.final_obs[0].tobytes() == before


@pytest.mark.parametrize("truncates", [False, True])
def test_the_end_of_an_episode_keeps_the_last_observation_apart_from_the_next_first(truncates: bool) -> None:
    env = GymnasiumEnv(CountingEnv(length=2, truncates=truncates))
    steps, actions = arrays_for(env)
    env.reset(7, steps)
    env.step(act(actions, 1), steps)

    ended = env.step(act(actions, 2), steps)
    env.next_episode(steps)

    mine = steps["CountingEnv"]
    assert ended
    assert mine.final_obs[0].tolist() == [[7.0, 1.0, 2.0, 2.0]]
    assert mine.obs[0].tolist() == [[-1.0, 2.0, 0.0, -1.0]]
    assert mine.reward.tolist() == [102.0]
    assert (mine.terminated.tolist(), mine.interrupted.tolist()) == ([not truncates], [truncates])
    assert mine.deciding.tolist() == [True]


def test_an_episode_that_terminates_and_is_cut_off_in_one_step_says_both() -> None:
    class BothEnv(CountingEnv):
        def step(self, action: np.int64) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            obs, reward, _, _, info = super().step(action)
            return obs, reward, True, True, info

    env = GymnasiumEnv(BothEnv())
    steps, actions = arrays_for(env)
    env.reset(None, steps)

    ended = env.step(act(actions, 0), steps)

    assert ended
    assert steps["BothEnv"].terminated.tolist() == steps["BothEnv"].interrupted.tolist() == [True]


def test_nested_observations_land_in_an_array_each() -> None:
    class NestedEnv(gymnasium.Env[dict[str, Any], np.int64]):
        observation_space = spaces.Dict(
            image=spaces.Box(0, 255, (2, 3), np.uint8),
            more=spaces.Tuple([spaces.Discrete(9), spaces.Box(0.0, 1.0, ())]),
        )
        action_space = spaces.Discrete(2)

        def reset(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            return {"image": np.full((2, 3), 5, np.uint8), "more": (np.int64(7), np.float32(0.5))}, {}

    env = GymnasiumEnv(NestedEnv())
    steps, _ = arrays_for(env)

    env.reset(None, steps)

    named = dict(zip([o.name for o in env.spec.behaviors[0].observations], steps["NestedEnv"].obs, strict=True))
    assert named["image"].tolist() == [[[5, 5, 5], [5, 5, 5]]]
    assert (named["more/0"].tolist(), named["more/1"].tolist()) == ([7], [0.5])


@pytest.mark.parametrize(
    ("env_id", "name"),
    [("CartPole-v1", "CartPole"), ("LunarLanderContinuous-v3", "LunarLanderContinuous"), ("Space/My-Env-v0", "My-Env")],
)
def test_a_behavior_is_named_after_the_id_without_namespace_and_version(env_id: str, name: str) -> None:
    env = CountingEnv()
    env.spec = gymnasium.envs.registration.EnvSpec(env_id)

    assert behavior_name(env) == name


def test_a_behavior_of_an_env_without_an_id_is_named_after_its_class_behind_all_wrappers() -> None:
    env = gymnasium.wrappers.TimeLimit(CountingEnv(), 5)

    assert behavior_name(env) == "CountingEnv"


@pytest.mark.parametrize("wrong", ["shape", "broadcast", "dtype", "text", "nothing"])
def test_an_observation_that_was_not_declared_is_named(wrong: str) -> None:
    env = GymnasiumEnv(WrongObservationEnv(wrong=wrong))
    steps, actions = arrays_for(env)
    env.reset(None, steps)

    with pytest.raises(SpecError, match="observation 'obs'"):
        env.step(act(actions, 0), steps)


@pytest.mark.parametrize("wrong", ["nothing", "text", "array"])
def test_a_reward_that_is_no_number_is_named(wrong: str) -> None:
    env = GymnasiumEnv(WrongRewardEnv(wrong=wrong))
    steps, actions = arrays_for(env)
    env.reset(None, steps)

    with pytest.raises(SpecError, match=r"the reward is .*, which is not a number"):
        env.step(act(actions, 0), steps)


@pytest.mark.parametrize(("wrong", "carried"), [("nan", np.nan), ("infinity", np.inf)])
def test_a_reward_that_is_not_finite_is_carried_as_it_is(wrong: str, carried: float) -> None:
    env = GymnasiumEnv(WrongRewardEnv(wrong=wrong))
    steps, actions = arrays_for(env)
    env.reset(None, steps)

    env.step(act(actions, 0), steps)

    np.testing.assert_array_equal(steps["WrongRewardEnv"].reward, [carried])


def test_what_the_env_raises_comes_through_as_it_is() -> None:
    env = GymnasiumEnv(RaisingEnv(error="KeyboardInterrupt"))
    steps, actions = arrays_for(env)
    env.reset(None, steps)

    with pytest.raises(KeyboardInterrupt):
        env.step(act(actions, 0), steps)


def test_closing_closes_the_env() -> None:
    env = GymnasiumEnv(RaisingEnv(where="close"))

    with pytest.raises(ValueError, match="deliberate"):
        env.close()


def test_actions_are_given_as_values_of_the_space() -> None:
    seen: list[Any] = []

    class SeeingEnv(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Box(-1.0, 1.0, (2, 2), np.float32)

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            seen.append(action)
            return super().step(np.int64(0))

    env = GymnasiumEnv(SeeingEnv())
    steps, actions = arrays_for(env)
    env.reset(None, steps)
    (mine,) = actions.values()
    mine.continuous[...] = [[0.25, -0.5, 0.75, -1.0]]

    env.step({"SeeingEnv": Actions(mine.continuous, mine.discrete)}, steps)

    assert seen[0].tolist() == [[0.25, -0.5], [0.75, -1.0]]
    assert seen[0].dtype == np.float32
