"""Three envs in each of the libraries that `faults.py` compares, behind one face.

A library is imported when its pool is chosen, before any clock runs; the peers are not installed where Stepherd is,
and the other way round.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

N_ENVS = 3
LIMIT_S = 3.0
"""How long a step or a reset may take, where a library can be told."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one env answered."""

    obs: Any
    reward: float = 0.0
    lost: bool = False
    """It is the first of a replacement, and the library says so."""


Answers = Mapping[int, Answer]
Actions = Mapping[int, int]
MakeEnv = Callable[[], Any]


class Pool(Protocol):
    """Three envs, in rows numbered from 0."""

    def reset(self) -> Answers:
        """Begin new episodes in all envs."""
        ...

    def step(self, actions: Actions) -> Answers:
        """Step the envs that have answered; return the answers that there are."""
        ...

    def send(self, actions: Actions) -> None:
        """Hand out actions and do not wait."""
        ...

    def close(self) -> str:
        """End everything; return what the library says about it."""
        ...


class GymnasiumPool:
    """Gymnasium's `AsyncVectorEnv`, as it is by default; `limit_s` is the time-out its calls can be given."""

    def __init__(self, library: Any, make_env: MakeEnv, limit_s: float | None = None) -> None:
        """Start the workers."""
        self._envs, self._limit_s = library.AsyncVectorEnv([make_env] * N_ENVS), limit_s

    def reset(self) -> Answers:
        """See `Pool`."""
        self._envs.reset_async(seed=1)
        obs, _ = self._envs.reset_wait(timeout=self._limit_s)
        return {row: Answer(obs[row]) for row in range(N_ENVS)}

    def step(self, actions: Actions) -> Answers:
        """See `Pool`."""
        self.send(actions)
        obs, rewards, *_ = self._envs.step_wait(timeout=self._limit_s)
        return {row: Answer(obs[row], float(rewards[row])) for row in range(N_ENVS)}

    def send(self, actions: Actions) -> None:
        """See `Pool`."""
        self._envs.step_async(np.array([actions[row] for row in range(N_ENVS)]))

    def close(self) -> str:
        """See `Pool`."""
        self._envs.close(timeout=self._limit_s)
        return ""


class SB3Pool:
    """Stable-Baselines3's `SubprocVecEnv`, as it is by default."""

    def __init__(self, library: Any, make_env: MakeEnv) -> None:
        """Start the workers."""
        self._envs = library.SubprocVecEnv([make_env] * N_ENVS)

    def reset(self) -> Answers:
        """See `Pool`."""
        obs = self._envs.reset()
        return {row: Answer(obs[row]) for row in range(N_ENVS)}

    def step(self, actions: Actions) -> Answers:
        """See `Pool`."""
        self.send(actions)
        obs, rewards, *_ = self._envs.step_wait()
        return {row: Answer(obs[row], float(rewards[row])) for row in range(N_ENVS)}

    def send(self, actions: Actions) -> None:
        """See `Pool`."""
        self._envs.step_async(np.array([actions[row] for row in range(N_ENVS)]))

    def close(self) -> str:
        """See `Pool`."""
        self._envs.close()
        return ""


class TianshouPool:
    """Tianshou's `SubprocVectorEnv`, as it is by default; `limit_s` is the time-out of its asynchronous mode."""

    def __init__(self, library: Any, make_env: MakeEnv, limit_s: float | None = None) -> None:
        """Start the workers."""
        options = {} if limit_s is None else {"wait_num": N_ENVS, "timeout": limit_s}
        self._envs = library.SubprocVectorEnv([make_env] * N_ENVS, **options)

    def reset(self) -> Answers:
        """See `Pool`."""
        obs, _ = self._envs.reset(seed=1)
        return {row: Answer(obs[row]) for row in range(N_ENVS)}

    def step(self, actions: Actions) -> Answers:
        """See `Pool`."""
        obs, rewards, _, _, infos = self._envs.step(np.array(list(actions.values())), list(actions))
        return {int(info["env_id"]): Answer(obs[i], float(rewards[i])) for i, info in enumerate(infos)}

    def send(self, actions: Actions) -> None:
        """See `Pool`. This is the first half of its `step`, which always waits."""
        for row, action in actions.items():
            self._envs.workers[row].send(np.int64(action))

    def close(self) -> str:
        """See `Pool`."""
        self._envs.close()
        return ""


class StepherdPool:
    """Stepherd's `open_env_manager`; only the time limits of a step and a reset are not the defaults."""

    def __init__(self, library: Any, make_env: MakeEnv) -> None:
        """Start the workers."""
        timeouts = library.Timeouts(step_s=LIMIT_S, reset_s=LIMIT_S)
        self._library = library
        self._envs = library.open_env_manager(make_env, num_workers=N_ENVS, timeouts=timeouts).__enter__()

    def reset(self) -> Answers:
        """See `Pool`."""
        return self._answers(self._envs.reset(seed=1))

    def step(self, actions: Actions) -> Answers:
        """See `Pool`."""
        self.send(actions)
        return self._answers(self._envs.recv())

    def send(self, actions: Actions) -> None:
        """See `Pool`."""
        discrete = np.array([[[action]] for action in actions.values()], np.int32)
        no_continuous = np.zeros((len(actions), 1, 0), np.float32)
        self._envs.send(self._library.Actions(continuous=no_continuous, discrete=discrete), list(actions))

    def close(self) -> str:
        """See `Pool`."""
        return str(self._envs.close())

    def _answers(self, batch: Any) -> Answers:
        (steps,) = batch.behaviors.values()
        return {
            int(row): Answer(steps.obs[0][i, 0].copy(), float(steps.reward[i, 0]), bool(batch.lost[i]))
            for i, row in enumerate(batch.env_ids)
        }


def choose_pool(name: str) -> Callable[[MakeEnv], Pool]:
    """Import a library and return what opens a pool in it."""
    if name.startswith("gymnasium"):
        gymnasium = importlib.import_module("gymnasium.vector")
        return lambda make_env: GymnasiumPool(gymnasium, make_env, LIMIT_S if name.endswith("limited") else None)
    if name.startswith("tianshou"):
        tianshou = importlib.import_module("tianshou.env")
        return lambda make_env: TianshouPool(tianshou, make_env, LIMIT_S if name.endswith("limited") else None)
    if name == "sb3":
        sb3 = importlib.import_module("stable_baselines3.common.vec_env")
        return lambda make_env: SB3Pool(sb3, make_env)
    stepherd = importlib.import_module("stepherd")
    return lambda make_env: StepherdPool(stepherd, make_env)
