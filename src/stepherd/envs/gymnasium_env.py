"""Any single-agent Gymnasium env as a Stepherd env: one behavior with one agent place."""

from __future__ import annotations

import re
from typing import Any

from stepherd.core.errors import SpecError
from stepherd.envs import spaces
from stepherd.spec.batch import AnyArray, BehaviorSteps, EnvActions, EnvSteps
from stepherd.spec.specs import BehaviorSpec, EnvSpec


class GymnasiumEnv:
    """Owns a `gymnasium.Env`. The behavior is named after the env's id without namespace and version."""

    def __init__(self, env: Any) -> None:
        """Wrap `env`, whose spaces must be ones that can be carried.

        Raises:
            SpecError: a space cannot be carried; the message names it.
        """
        self._env = env
        leaves = list(spaces.observation_leaves(env.observation_space))
        self._paths = [path for path, _ in leaves]
        self._read_action = spaces.action_reader(env.action_space)
        self._name = behavior_name(env)
        behavior = BehaviorSpec(self._name, tuple(spec for _, spec in leaves), spaces.action_spec(env.action_space))
        self._spec = EnvSpec((behavior,))

    @property
    def spec(self) -> EnvSpec:
        """One behavior with one agent place."""
        return self._spec

    def reset(self, seed: int | None, steps: EnvSteps) -> None:
        """Begin a new episode; see `Env.reset`."""
        mine = steps[self._name]
        obs, _ = self._env.reset(seed=seed)
        self._write(obs, mine.obs)
        mine.reward[0] = 0.0
        mine.deciding[0] = True
        mine.terminated[0] = mine.interrupted[0] = False

    def step(self, actions: EnvActions, steps: EnvSteps) -> bool:
        """Act; see `Env.step`."""
        mine = steps[self._name]
        obs, reward, terminated, truncated, _ = self._env.step(self._read_action(actions[self._name]))
        ended = bool(terminated or truncated)
        self._write(obs, mine.final_obs if ended else mine.obs)
        _write_reward(reward, mine)
        mine.terminated[0] = terminated
        mine.interrupted[0] = truncated
        return ended

    def next_episode(self, steps: EnvSteps) -> None:
        """Begin the episode after one that ended; see `Env.next_episode`."""
        obs, _ = self._env.reset()
        self._write(obs, steps[self._name].obs)

    def close(self) -> None:
        """Close the env."""
        self._env.close()

    def _write(self, obs: Any, arrays: tuple[AnyArray, ...]) -> None:
        for path, array in zip(self._paths, arrays, strict=True):
            value = obs
            for key in path:
                value = value[key]
            spaces.write_leaf(value, array[0, ...], path)  # `...`: a view of a scalar too


def behavior_name(env: Any) -> str:
    """Return `Pong` for an env with the id `ALE/Pong-v5`, and the class's name for one without an id."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return type(env.unwrapped).__name__
    return re.sub(r"-v\d+$", "", spec.id.rpartition("/")[2])


def _write_reward(reward: Any, steps: BehaviorSteps) -> None:
    try:
        if reward is None or isinstance(reward, str):  # numpy would take them for NaN and for what the text says
            raise TypeError
        steps.reward[0] = reward
    except (TypeError, ValueError) as error:
        raise SpecError(f"the reward is {reward!r}, which is not a number") from error
