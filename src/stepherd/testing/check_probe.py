"""The env of a check: a user's env inside a probe that watches what it does and writes it down.

Runs in workers only; knows nothing of managers. What is written down is judged elsewhere.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import random
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from stepherd.envs.build import build_env
from stepherd.envs.env import Env
from stepherd.spec.batch import AnyArray, EnvActions, EnvSteps
from stepherd.spec.specs import EnvSpec
from stepherd.testing.footprint import (
    HAS_PROC,
    Process,
    descriptors_of,
    find_started_here,
    listening_ports,
    take_footprint,
)

RNG_LOOKS = 200  # calls after which the global random states have been looked at often enough; then now and then
RNG_LOOKS_EVERY = 50
PROBLEMS_MAX = 3  # of one kind: the first says what is wrong
FILES_MAX = 1000
COMMAND_CHARACTERS_MAX = 60
FEEDS = ("/dev/", "/proc/", "/sys/")  # what is written there goes nowhere on disk
NO_MARK = b"only-by-descent"  # is in no environment: what the env has started descends from its worker

T = TypeVar("T")


@dataclass(slots=True)
class Facts:
    """What one env of one process did."""

    pid: int
    build_s: float = 0.0
    memory_bytes: int = 0
    """Of the whole worker, after the env was built."""
    n_steps: int = 0
    n_episodes: int = 0
    episode_steps_max: int = 0
    steps_s: list[float] = field(default_factory=list)
    resets_s: list[float] = field(default_factory=list)
    is_spied: bool = False
    """Whether times are taken next to the env itself, without what Stepherd adds to a call."""
    close_s: float | None = None
    problems: dict[str, dict[str, str]] = field(default_factory=dict)
    """By what they are about, "api", "space", "dtype", "nan" or "reward": a sentence for each place where it is."""
    reuses_observations: bool = False
    global_random: dict[str, str] = field(default_factory=dict)
    """Which of the process's own random states it draws from or sets, with where it was seen."""
    samples: list[int] = field(default_factory=list)
    """Bytes of the worker's memory, at equal distances in steps."""
    files: dict[str, bool] = field(default_factory=dict)
    """What was opened for writing, with whether only to append."""
    ports: list[int] = field(default_factory=list)
    moved_to: str = ""
    """The folder it has changed into."""
    threads_left: list[str] = field(default_factory=list)
    processes_left: list[str] = field(default_factory=list)

    def note(self, about: str, problem: str, place: str = "") -> None:
        """Note a problem, unless there is one of that place already, or there are enough of the kind."""
        texts = self.problems.setdefault(about, {})
        if len(texts) < PROBLEMS_MAX:
            texts.setdefault(place or problem, problem)


@dataclass(frozen=True)
class CheckFactory:
    """Makes the envs of a check, in their workers. Facts go to `folder`; `temporary` is where the env's own may."""

    source: str | bytes
    kwargs: bytes
    folder: str
    temporary: str
    sample_every: int
    """Steps between two looks at the memory; 0 for none."""
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "__qualname__", self.name)  # what reports call the env

    def __call__(self) -> CheckEnv:
        """Return a watched env."""
        os.environ["TMPDIR"] = tempfile.tempdir = self.temporary
        facts = Facts(os.getpid())
        probe = _Probe(facts, Path(self.folder), self.sample_every)
        source = self.source if isinstance(self.source, str) else pickle.loads(self.source)  # noqa: S301 - the user's own
        kwargs = pickle.loads(self.kwargs)  # noqa: S301 - the same
        began_at = time.perf_counter()
        env = probe.watch("the constructor", lambda: build_env(source, kwargs))
        facts.build_s = time.perf_counter() - began_at
        facts.memory_bytes = memory_bytes()
        spy_on(env, facts)
        probe.write()
        return CheckEnv(env, probe)


def short(process: Process) -> str:
    """Return what a process is, in a few words."""
    first, *more = process.command.splitlines() or [""]
    is_cut = more or len(first) > COMMAND_CHARACTERS_MAX
    return f"process {process.pid} ({first[:COMMAND_CHARACTERS_MAX]}{' …' if is_cut else ''})"


def memory_bytes() -> int:
    """Return the bytes of memory this process holds; 0 where that cannot be read."""
    if not HAS_PROC:
        return 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def read_facts(folder: Path) -> list[Facts]:
    """Return what all probes have written to `folder`, in the order in which they were made."""
    found = []
    for path in sorted(folder.glob("*.facts"), key=lambda path: path.stat().st_ctime_ns):
        facts: Facts = pickle.loads(path.read_bytes())  # noqa: S301 - our own probe wrote it
        found.append(facts)
    return found


class CheckEnv:
    """An env that is watched. See `stepherd.envs.env.Env`."""

    def __init__(self, env: Env, probe: _Probe) -> None:
        self._env, self._probe, self._facts = env, probe, probe.facts
        self._episode_steps = 0

    @property
    def spec(self) -> EnvSpec:
        """The env's own."""
        return self._env.spec

    def reset(self, seed: int | None, steps: EnvSteps) -> None:
        """Reset the env and look at what it observes."""
        self._timed(self._facts.resets_s, "reset", lambda: self._env.reset(seed, steps))
        self._episode_steps = 0
        self._look(steps, is_reset=True)

    def step(self, actions: EnvActions, steps: EnvSteps) -> bool:
        """Step the env and look at what it observes and earns."""
        facts = self._facts
        ended = self._timed(facts.steps_s, "step", lambda: self._env.step(actions, steps))
        facts.n_steps += 1
        self._episode_steps += 1
        facts.episode_steps_max = max(facts.episode_steps_max, self._episode_steps)
        if ended or any(of.ended.any() for of in steps.values()):
            facts.n_episodes += 1
            self._episode_steps = 0
        self._look(steps, is_reset=False)
        self._probe.sample()
        return ended

    def next_episode(self, steps: EnvSteps) -> None:
        """Begin the next episode and look at what it observes."""
        self._timed(self._facts.resets_s, "reset", lambda: self._env.next_episode(steps))
        self._look(steps, is_reset=True)

    def close(self) -> None:
        """Close the env and look at what it leaves."""
        self._probe.before_close()
        began_at = time.perf_counter()
        try:
            self._env.close()
        finally:
            self._facts.close_s = time.perf_counter() - began_at
            self._probe.after_close()

    def _timed(self, times: list[float], where: str, call: Callable[[], T]) -> T:
        began_at = time.perf_counter()
        result = self._probe.watch(where, call)
        if not self._facts.is_spied:
            times.append(time.perf_counter() - began_at)
        return result

    def _look(self, steps: EnvSteps, *, is_reset: bool) -> None:
        for name, of in steps.items():
            names = [observation.name for observation in self._env.spec.behavior(name).observations]
            for observation, array in zip(names, of.obs, strict=True):
                self._look_for_nan(array, observation, "after a reset" if is_reset else "in a step")
            if of.ended.any():
                for observation, array in zip(names, of.final_obs, strict=True):
                    self._look_for_nan(array[of.ended], observation, "at the end of an episode")
            if not is_reset and not np.isfinite(of.reward).all():
                self._facts.note("reward", f"a reward was {of.reward[~np.isfinite(of.reward)][0]}", "reward")

    def _look_for_nan(self, array: AnyArray, name: str, when: str) -> None:
        if array.dtype.kind == "f" and np.isnan(array).any():
            self._facts.note("nan", f"observation {name!r} had NaN {when}")


class _Probe:
    """Watches the process around the env."""

    def __init__(self, facts: Facts, folder: Path, sample_every: int) -> None:
        self.facts = facts
        self._path = folder / f"{facts.pid}-{time.monotonic_ns()}.facts"
        self._sample_every = sample_every
        self._n_calls = 0
        self._began = take_footprint([])
        self._own_folder = str(folder)
        self._cwd = Path.cwd()
        sys.addaudithook(self._hear)  # for good: hooks cannot be removed; the process is only here for this

    def watch(self, where: str, call: Callable[[], T]) -> T:
        """Call, and note whether the process's own random states were touched; write down what is known if it fails."""
        self._n_calls += 1
        looks = self._n_calls < RNG_LOOKS or self._n_calls % RNG_LOOKS_EVERY == 0
        before = _random_states() if looks else {}
        try:
            return call()
        except BaseException:
            self.write()
            raise
        finally:
            if looks:
                for name, state in _random_states().items():
                    if state != before[name]:
                        self.facts.global_random.setdefault(name, where)

    def sample(self) -> None:
        """Note how much memory there is, now and then."""
        if self._sample_every and self.facts.n_steps % self._sample_every == 0:
            gc.collect()
            self.facts.samples.append(memory_bytes())

    def before_close(self) -> None:
        """Note what the env has open while it runs."""
        facts = self.facts
        held = [(facts.pid, target) for _, target in descriptors_of(facts.pid)]
        facts.ports = sorted(port for _, port in listening_ports(held))
        if Path.cwd() != self._cwd:
            facts.moved_to = str(Path.cwd())
        self.write()

    def after_close(self) -> None:
        """Note what the env leaves behind."""
        now = take_footprint([])
        self.facts.threads_left = [
            thread.name
            for thread in threading.enumerate()
            if not thread.daemon and thread.native_id not in self._began.threads
        ]
        children = find_started_here(sorted(now.pids - self._began.pids), NO_MARK)
        self.facts.processes_left = [
            short(process) for process in children if process.pid != self.facts.pid and not process.has_ended
        ]
        self.write()

    def write(self) -> None:
        """Write down what is known by now."""
        temporary = self._path.with_suffix(".part")
        temporary.write_bytes(pickle.dumps(self.facts))
        temporary.rename(self._path)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes):
            return
        path, mode, flags = arguments
        flags = flags if isinstance(flags, int) else 0
        if not flags & (os.O_WRONLY | os.O_RDWR) and not (isinstance(mode, str) and set(mode) & set("wax+")):
            return
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - called for every file: no objects
        if name.startswith((*FEEDS, self._own_folder)) or "__pycache__" in name or len(self.facts.files) >= FILES_MAX:
            return
        if os.path.isdir(name):  # noqa: PTH112 - as above; tempfile names the folder when it makes a file
            return
        appends = bool(flags & os.O_APPEND)
        self.facts.files[name] = self.facts.files.get(name, True) and appends


def _random_states() -> dict[str, int]:
    words, position = np.random.get_state(legacy=False)["state"].values()  # noqa: NPY002 - whether others use it
    return {"random": hash(random.getstate()), "numpy.random": zlib.crc32(words.tobytes(), position)}


def spy_on(env: Env, facts: Facts) -> None:
    """Look at what a Gymnasium env returns before it is carried anywhere; other simulators speak arrays only."""
    try:
        from stepherd.envs.gymnasium_env import GymnasiumEnv  # needs gymnasium, an extra
    except ModuleNotFoundError:
        return
    if isinstance(env, GymnasiumEnv):
        from stepherd.testing.check_spy import GymnasiumSpy

        facts.is_spied = True
        env._env = GymnasiumSpy(env._env, facts)  # noqa: SLF001 - there is no way in between but this one
