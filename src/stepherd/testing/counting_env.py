"""A healthy Gymnasium env whose every number can be checked, and the same with room for one fault.

Knows nothing of managers or workers, so that any runner of Gymnasium envs can be tried with it.
"""

from __future__ import annotations

import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import Waiter

Where = Literal["constructor", "reset", "step", "idle", "close"]
Obs = npt.NDArray[Any]

IDLE_AFTER_S = 0.05  # by then a worker has passed its answer on and waits for the next action


class CountingEnv(gymnasium.Env[Obs, np.int64]):
    """Fault: none. Observes `[seed, episode, step, action]`, all exact, and earns `100 * episode + step`.

    Expect: every number right in every episode, `[…, length, …]` as the last observation of each, and as many steps
    delivered, discarded or lost as `steps_counted` says. Seed and action are -1 where there was none.
    """

    def __init__(
        self, *, length: int = 10, truncates: bool = False, counter_path: str | None = None, step_s: float = 0.0
    ) -> None:
        """Make an env whose episodes end after `length` steps; each step begun adds a byte to `counter_path`.

        Each step takes `step_s` seconds.
        """
        self.observation_space = spaces.Box(-1.0, np.inf, (4,), np.float64)
        self.action_space: spaces.Space[Any] = spaces.Discrete(1000)
        self._length, self._truncates, self._step_s = length, truncates, step_s
        self._counter_path = counter_path
        self._seed, self._episode, self._step, self._action = -1, 0, 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode; see `gymnasium.Env.reset`."""
        super().reset(seed=seed, options=options)
        self._seed = -1 if seed is None else seed
        self._episode += 1
        self._step, self._action = 0, -1
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Count, and go one step on; see `gymnasium.Env.step`."""
        self._begin_step()
        self._step += 1
        self._action = int(action)
        ended = self._step >= self._length
        terminated, truncated = ended and not self._truncates, ended and self._truncates
        return self._observation(), self._reward(), terminated, truncated, {}

    def _begin_step(self) -> None:
        if self._counter_path is not None:
            with Path(self._counter_path).open("ab") as counter:
                counter.write(b".")
        if self._step_s:
            pass_time(self._step_s)

    def _observation(self) -> Any:
        return np.array([self._seed, self._episode, self._step, self._action], np.float64)

    def _reward(self) -> Any:
        return 100.0 * self._episode + self._step


def steps_counted(counter_path: str | os.PathLike[str]) -> int:
    """Return how many steps all envs with this `counter_path` have begun."""
    path = Path(counter_path)
    return path.stat().st_size if path.exists() else 0


class FaultyEnv(CountingEnv):
    """Fault: none yet; subclasses say in `fault` what happens.

    It happens in the call `where`, once `after` such calls went well; "idle" is a moment after a step was answered.
    With `once_path` it happens only if this file does not exist yet, which it then does: so a replacement is healthy,
    and of many envs one is not.
    """

    def __init__(self, *, where: Where = "step", after: int = 0, once_path: str | None = None, **healthy: Any) -> None:
        """Make an env with a fault in it; `healthy` arguments are those of `CountingEnv`."""
        super().__init__(**healthy)
        self._where, self._left, self._once_path = where, after, once_path
        self._fail_if_due("constructor")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode, or fail."""
        self._fail_if_due("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: np.int64) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Count, and go one step on, or fail in between."""
        outcome = super().step(action)
        if self._is_due("idle"):
            threading.Timer(IDLE_AFTER_S, self.fault).start()
        return outcome

    def close(self) -> None:
        """Close, or fail."""
        self._fail_if_due("close")

    def fault(self) -> None:
        """Do what this class is for."""

    def _begin_step(self) -> None:
        super()._begin_step()
        self._fail_if_due("step")

    def _fail_if_due(self, where: Where) -> None:
        if self._is_due(where):
            self.fault()

    def _is_due(self, where: Where) -> bool:
        if where != self._where:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        if self._once_path is not None:
            try:
                Path(self._once_path).touch(exist_ok=False)
            except FileExistsError:
                return False
        return True


def pass_time(seconds: float) -> None:
    """Wait for nothing, in Python, where a signal handler can interrupt it."""
    deadline = Deadline.after(seconds)
    with closing(Waiter[None]()) as nothing:
        while not deadline.passed:
            nothing.wait(deadline)
