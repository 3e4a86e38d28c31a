"""Looks at what a Gymnasium env really returns: whether it is in its space, of its type, and an object of its own."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gymnasium import spaces

from stepherd.testing.check_probe import Facts


class GymnasiumSpy:
    """Stands in for a `gymnasium.Env` and notes in `facts` what is not as its spaces say."""

    def __init__(self, env: Any, facts: Facts) -> None:
        self._env, self._facts = env, facts
        self._before: dict[str, tuple[Any, bytes]] = {}

    def reset(self, *, seed: int | None = None) -> Any:
        """Reset the env and look."""
        began_at = time.perf_counter()
        try:
            result = self._env.reset(seed=seed)
        except TypeError as error:
            if "'seed'" in str(error):
                self._facts.note("api", "reset() takes no seed: it is written for Gym's old API")
            raise
        self._facts.resets_s.append(time.perf_counter() - began_at)
        if not (isinstance(result, tuple) and len(result) == 2):
            self._facts.note(
                "api",
                f"reset() returned {_kind(result)} instead of (observation, info): it is written for Gym's old API",
            )
            return result
        self._look(self._env.observation_space, result[0], "", "reset()")
        return result

    def step(self, action: Any) -> Any:
        """Step the env and look."""
        if not self._env.action_space.contains(action):
            self._facts.note("api", f"its own action space {self._env.action_space} does not contain {action!r}")
        began_at = time.perf_counter()
        result = self._env.step(action)
        self._facts.steps_s.append(time.perf_counter() - began_at)
        if not (isinstance(result, tuple) and len(result) == 5):
            self._facts.note(
                "api",
                f"step() returned {_kind(result)} instead of (observation, reward, terminated, truncated, info): it "
                "is written for Gym's old API",
            )
            return result
        obs, _, terminated, truncated, info = result
        self._look(self._env.observation_space, obs, "", "step()")
        for name, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_):
                self._facts.note("api", f"step() returned {_kind(value)} for {name}, not a bool")
        if not isinstance(info, dict):
            self._facts.note("api", f"step() returned {_kind(info)} for info, not a dict")
        return result

    def close(self) -> None:
        """Close the env."""
        self._env.close()

    def _look(self, space: Any, value: Any, path: str, when: str) -> None:
        if isinstance(space, spaces.Dict) and isinstance(value, dict):
            for key, inner in space.spaces.items():
                if key in value:
                    self._look(inner, value[key], f"{path}/{key}", when)
                else:
                    self._facts.note("space", f"{when} returned an observation without {f'{path}/{key}'[1:]!r}")
        elif isinstance(space, spaces.Tuple) and isinstance(value, tuple | list):
            for index, (inner, part) in enumerate(zip(space.spaces, value, strict=False)):
                self._look(inner, part, f"{path}/{index}", when)
        else:
            self._look_at_leaf(space, value, path[1:] or "obs", when)

    def _look_at_leaf(self, space: Any, value: Any, name: str, when: str) -> None:
        self._look_for_reuse(value, name)
        if space.contains(value):
            return
        array = np.asarray(value)
        if isinstance(space, spaces.Box) and array.shape == space.shape and array.dtype != space.dtype:
            self._facts.note("dtype", f"observation {name!r} is {array.dtype}, its space declares {space.dtype}", name)
            with np.errstate(all="ignore"):
                value = array.astype(space.dtype) if array.dtype.kind in "biuf" else value
            if space.contains(value):
                return
        array = np.asarray(value)
        if array.dtype.kind == "f" and array.shape == space.shape and np.isnan(array).any():
            return  # looked for elsewhere, with all kinds of envs
        self._facts.note("space", f"{when} returned for {name!r} {_how_outside(space, array)}", f"{when} {name}")

    def _look_for_reuse(self, value: Any, name: str) -> None:
        if not isinstance(value, np.ndarray):
            return
        content = value.tobytes()
        before = self._before.get(name)
        if before is not None and before[0] is value and before[1] != content:
            self._facts.reuses_observations = True
        self._before[name] = value, content


def _kind(value: Any) -> str:
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return f"{type(value).__name__}{size}"


def _how_outside(space: Any, value: Any) -> str:
    if value.shape != space.shape:
        return f"shape {value.shape}, its space declares {space.shape}"
    if isinstance(space, spaces.Box) and value.dtype.kind in "biuf":
        outside = ~((value >= space.low) & (value <= space.high))
        if outside.any():
            at = tuple(int(i) for i in np.argwhere(outside)[0])
            where = f" at index {', '.join(map(str, at))}" if at else ""
            return f"{value[at]}{where}, outside of its bounds {space.low[at]} to {space.high[at]}"
    text = repr(value.tolist())
    return f"{text if len(text) < 100 else f'{text[:100]} …'}, which is not in {space}"
