"""Envs with the mistakes that people make, each with one, for `check_env` to find; the last one has none."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepherd.testing.counting_env import pass_time

Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class SoundEnv(gymnasium.Env[Any, Any]):
    """Three numbers drawn from its own generator; an episode takes twenty steps."""

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(4)
        self.n_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed, options=options)
        self.n_steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> Step:
        """Go on."""
        self.n_steps += 1
        return self.observe(), 1.0, self.n_steps >= 20, False, {}

    def observe(self) -> Any:
        """Look."""
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


class GlobalRandomEnv(SoundEnv):
    """Draws from the process's generator, which nobody seeds."""

    def observe(self) -> Any:
        return np.full(3, random.random(), np.float32)


class SeededGlobalRandomEnv(SoundEnv):
    """Seeds the process's generator, so that a run can be repeated, and other envs are disturbed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        np.random.seed(seed) if seed is not None else None  # noqa: NPY002 - the mistake
        return super().reset(seed=seed, options=options)

    def observe(self) -> Any:
        return np.random.uniform(-1, 1, 3).astype(np.float32)  # noqa: NPY002 - the mistake


class DeafToSeedsEnv(SoundEnv):
    """Always plays the same."""

    def observe(self) -> Any:
        return np.full(3, self.n_steps / 100, np.float32)


class ClassVariableEnv(SoundEnv):
    """Counts in a variable of the class."""

    n_of_all = 0

    def step(self, action: Any) -> Step:
        type(self).n_of_all += 1
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float(self.n_of_all), terminated, truncated, info


class FixedPortEnv(SoundEnv):
    """Listens on a port of which there is one; `shared` lets others do so as well."""

    def __init__(self, port: int, shared: bool = False) -> None:
        super().__init__()
        self.server = socket.socket()
        if shared:
            self.server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.server.bind(("127.0.0.1", port))
        self.server.listen()

    def close(self) -> None:
        self.server.close()


class FixedFileEnv(SoundEnv):
    """Writes to a file of which there is one."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def step(self, action: Any) -> Step:
        with (Path(tempfile.gettempdir()) / "state.txt").open(self.mode) as file:
            file.write("x")
        return super().step(action)

    def close(self) -> None:
        (Path(tempfile.gettempdir()) / "state.txt").unlink(missing_ok=True)


class OwnFileEnv(SoundEnv):
    """Writes to files of its own and removes them."""

    def step(self, action: Any) -> Step:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"x")
        return super().step(action)


class OutsideEnv(SoundEnv):
    """Observes what its space does not have."""

    def observe(self) -> Any:
        return 5 * super().observe()


class WrongDtypeEnv(SoundEnv):
    """Observes in another type than it says."""

    def observe(self) -> Any:
        return super().observe().astype(np.float64)


class NanEnv(SoundEnv):
    """Divides by nothing now and then."""

    def observe(self) -> Any:
        return super().observe() * (np.nan if self.n_steps == 7 else 1)


class InfiniteRewardEnv(SoundEnv):
    """Earns more than there is."""

    def step(self, action: Any) -> Step:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float("inf"), terminated, truncated, info


class EndlessEnv(SoundEnv):
    """Has no end."""

    def step(self, action: Any) -> Step:
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, False, truncated, info


class ReusingEnv(SoundEnv):
    """Returns the same array each time."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(3, np.float32)

    def observe(self) -> Any:
        self.buffer[:] = super().observe()
        return self.buffer


class ChattyEnv(SoundEnv):
    """Prints at every step."""

    def step(self, action: Any) -> Step:
        print("step " * 100)
        return super().step(action)


class GrowingEnv(SoundEnv):
    """Keeps everything."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Any] = []

    def step(self, action: Any) -> Step:
        self.all.append(np.ones(40_000))
        return super().step(action)


class ThreadLeavingEnv(SoundEnv):
    """Starts a thread and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=pass_time, args=(60.0,), name="physics").start()


class ChildLeavingEnv(SoundEnv):
    """Starts a process and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        self.child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])


class FileLeavingEnv(SoundEnv):
    """Makes a file and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        with tempfile.NamedTemporaryFile(delete=False):
            pass


class MovingEnv(SoundEnv):
    """Changes the current folder."""

    def __init__(self) -> None:
        super().__init__()
        os.chdir(tempfile.gettempdir())


class HangingCloseEnv(SoundEnv):
    """Does not come back from its close."""

    def close(self) -> None:
        pass_time(60.0)


class RaisingEnv(SoundEnv):
    """Raises in the sixth step."""

    def step(self, action: Any) -> Step:
        if self.n_steps == 5:
            raise ValueError("the sea has parted")
        return super().step(action)


class OldResetEnv(SoundEnv):
    """Resets as Gym's envs did."""

    def reset(self, **options: Any) -> Any:
        return super().reset(**options)[0]


class OldStepEnv(SoundEnv):
    """Steps as Gym's envs did."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class SeedlessEnv(SoundEnv):
    """Takes no seed, as the oldest did."""

    def reset(self) -> Any:  # type: ignore[override]  # the mistake
        return self.observe(), {}


class NestedEnv(SoundEnv):
    """Observes a dictionary, one part of which is wrong in one step; acts with numbers."""

    def __init__(self, right: bool = True) -> None:
        super().__init__()
        parts = {"camera": spaces.Box(0, 255, (4, 4), np.uint8), "rest": spaces.Tuple([spaces.Discrete(3)])}
        self.observation_space = spaces.Dict(parts)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.right = right

    def observe(self) -> Any:
        camera = self.np_random.integers(0, 256, (4, 4), np.uint8)
        return {"camera": camera, "rest": (5 if self.n_steps == 3 and not self.right else 0,)}
