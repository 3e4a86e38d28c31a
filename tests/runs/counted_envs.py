"""Envs that count their own steps outside of everything that Stepherd knows of, and some that fail on purpose."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

COUNT_DIR = "STEPHERD_TEST_COUNT_DIR"


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Appends one byte to a file of its own for every step it begins, whatever happens next. Goes outermost."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        path = Path(os.environ[COUNT_DIR]) / f"{os.getpid()}-{id(self)}"
        self._file = path.open("ab", buffering=0)

    def step(self, action: Any) -> Any:
        """Count, then step."""
        self._file.write(b".")
        return self.env.step(action)

    def close(self) -> None:
        """Close the count as well."""
        self._file.close()
        super().close()


def counted_steps(folder: Path) -> int:
    """Return how many steps all counted envs have begun."""
    return sum(path.stat().st_size for path in folder.iterdir())


def make_cartpole() -> gymnasium.Env[Any, Any]:
    """Return a CartPole that counts."""
    return Counted(gymnasium.make("CartPole-v1"))


def make_slow_cartpole() -> gymnasium.Env[Any, Any]:
    """Return a CartPole that counts and takes its time, so that a run can be interrupted."""
    return Counted(_Slow(gymnasium.make("CartPole-v1")))


class _Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        time.sleep(0.002)
        return self.env.step(action)


class Broken(gymnasium.Env[Any, Any]):
    """Cannot be built."""

    def __init__(self) -> None:
        raise FileNotFoundError("the level file maze.json is missing")


class DiesEachEpisode(gymnasium.Env[Any, Any]):
    """Kills its process in the fifth step."""

    observation_space = gymnasium.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin."""
        self._t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        """Step, up to the fifth."""
        self._t += 1
        if self._t == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(1, self._t, np.float32), 1.0, False, False, {}


class HangsInStep(DiesEachEpisode):
    """Never returns from its third step, and leaves a file beside the counts when it gets there."""

    def step(self, action: Any) -> Any:
        """Step, up to the third."""
        self._t += 1
        if self._t == 3:
            (Path(os.environ[COUNT_DIR]) / f"hangs-{os.getpid()}").touch()
            time.sleep(3600)
        return np.full(1, self._t, np.float32), 1.0, False, False, {}
