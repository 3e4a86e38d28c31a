"""Envs whose every number says where it comes from, and the record of what they have really done.

Whatever an env observes holds `[env, generation, seed, episode, step, action]`: a stale, doubled or mixed up row
cannot look like the right one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np

from simulation.world import Violation
from stepherd.spec.batch import Actions, AnyArray, BehaviorSteps, EnvActions, EnvSteps
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec

N_VALUES = 6
ACTION = ActionSpec(n_continuous=1, branches=(10_000_000,), low=(0.0,), high=(1e7,))
NARROW = EnvSpec((BehaviorSpec("A", (ObservationSpec("obs", (N_VALUES + 2,), "float64"),), ACTION),))
WIDE = EnvSpec(
    (
        BehaviorSpec("A", (ObservationSpec("obs", (N_VALUES + 2,), "int64"),), ACTION, n_agents=3),
        BehaviorSpec(
            "B",
            (ObservationSpec("left", (N_VALUES + 2,), "float64"), ObservationSpec("right", (N_VALUES + 2,), "int64")),
            ACTION,
        ),
    )
)
ODD = EnvSpec((BehaviorSpec("odd", (ObservationSpec("obs", (3,), "uint8"),), ACTION),))


@dataclass(frozen=True, slots=True)
class Answer:
    """What an env has answered, the same for all its behaviors and agent places."""

    obs: tuple[int, ...]
    reward: float
    terminated: bool = False
    interrupted: bool = False
    final: tuple[int, ...] | None = None
    """The last observation of the episode that ended."""

    @property
    def generation(self) -> int:
        """In which process of its worker it was given."""
        return self.obs[1]

    @property
    def seed(self) -> int | None:
        """What the env was seeded with, if it was in this reset."""
        return None if self.obs[2] < 0 else self.obs[2]


@dataclass(slots=True)
class Truth:
    """What the envs of a world have really done."""

    begun: set[int] = field(default_factory=set)
    """The numbers of the actions whose step was begun."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """Of each action whose step was executed to its end."""
    published: set[int] = field(default_factory=set)
    """Actions whose answer was published."""
    announced: set[int] = field(default_factory=set)
    """Actions whose answer was published, and the bell rung."""
    first: dict[int, Answer] = field(default_factory=dict)
    """The answer of each env to its last reset."""
    seeds: Counter[tuple[int, int | None]] = field(default_factory=Counter)
    """How often each env was given each seed."""
    is_spec_known: bool = False
    """Whether a worker was ready already, so that an odd one is odd."""


class FakeEnv:
    """One env of one process."""

    def __init__(
        self, env_id: int, generation: int, truth: Truth, arrays: tuple[EnvSteps, EnvActions], rng: Random, p_end: float
    ) -> None:
        self._env_id, self._generation, self._truth = env_id, generation, truth
        self._steps, self._actions = arrays
        self._rng, self._p_end = rng, p_end
        self._seed, self._episode, self._t = -1, 0, 0

    def reset(self, seed: int | None) -> None:
        """Begin a new episode because somebody asked for it."""
        self._truth.seeds[self._env_id, seed] += 1
        obs = self._begin_episode(-1 if seed is None else seed)
        self._write(Answer(obs, 0.0))
        self._truth.first[self._env_id] = Answer(obs, 0.0)

    def begin_step(self) -> int:
        """Return the number of the action it is given, which it never was before."""
        action = self._read_action()
        if action in self._truth.begun:
            raise Violation(f"action {action} was executed twice")
        self._truth.begun.add(action)
        return action

    def step(self, action: int) -> bool:
        """Take a step; return whether the episode has ended. Nothing is written before `next_episode`, if it has."""
        self._t += 1
        values = (self._env_id, self._generation, self._seed, self._episode, self._t, action)
        ended = self._rng.random() < self._p_end
        if not ended:
            self._finish(action, Answer(values, action + 0.25))
            return False
        terminated = self._rng.random() < 0.6
        interrupted = not terminated or self._rng.random() < 0.1
        self._last = Answer((), action + 0.25, terminated, interrupted, values)
        return True

    def next_episode(self, action: int) -> None:
        """Begin the episode after the one that ended."""
        last = self._last
        obs = self._begin_episode(-1)
        self._finish(action, Answer(obs, last.reward, last.terminated, last.interrupted, last.final))

    def _begin_episode(self, seed: int) -> tuple[int, ...]:
        self._seed, self._episode, self._t = seed, self._episode + 1, 0
        return (self._env_id, self._generation, seed, self._episode, 0, -1)

    def _finish(self, action: int, answer: Answer) -> None:
        self._write(answer)
        self._truth.answers[action] = answer

    def _write(self, answer: Answer) -> None:
        for number, steps in enumerate(self._steps.values()):
            _write_values(steps.obs, answer.obs, number)
            if answer.final is not None:
                _write_values(steps.final_obs, answer.final, number)
            steps.reward[:] = answer.reward
            steps.deciding[:] = True
            steps.terminated[:] = answer.terminated
            steps.interrupted[:] = answer.interrupted

    def _read_action(self) -> int:
        numbers: set[float] = set()
        for actions in self._actions.values():
            numbers.update(actions.discrete.ravel().tolist(), actions.continuous.ravel().tolist())
        if len(numbers) != 1:
            raise Violation(f"env {self._env_id} was given parts of different actions: {sorted(numbers)}")
        return int(numbers.pop())


def actions_for(spec: EnvSpec, numbers: list[int]) -> Mapping[str, Actions]:
    """Return actions that say their number everywhere: row i for `numbers[i]`."""
    actions = {}
    for behavior in spec.behaviors:
        rows = np.repeat(np.array(numbers, np.int32), behavior.n_agents).reshape(-1, behavior.n_agents, 1)
        actions[behavior.name] = Actions(rows.astype(np.float32), rows)
    return actions


def read_row(behaviors: Mapping[str, BehaviorSteps], row: int) -> Answer:
    """Return the answer in a row of a batch; all behaviors and agent places must tell the same.

    Raises:
        Violation: they do not.
    """
    answers = set()
    for number, steps in enumerate(behaviors.values()):
        flags = zip(
            steps.reward[row].tolist(), steps.terminated[row].tolist(), steps.interrupted[row].tolist(), strict=True
        )
        for reward, terminated, interrupted in flags:
            final = _read_values(steps.final_obs, row, number) if terminated or interrupted else None
            answers.add(Answer(_read_values(steps.obs, row, number), reward, terminated, interrupted, final))
        if not steps.deciding[row].all():
            raise Violation("a place that decides says it does not")
    if len(answers) != 1:
        raise Violation(f"a row is made of different answers: {answers}")
    return answers.pop()


def _write_values(arrays: tuple[AnyArray, ...], values: tuple[int, ...], number: int) -> None:
    for array in arrays:
        for place in range(len(array)):
            array[place] = (*values, number, place)


def _read_values(arrays: tuple[AnyArray, ...], row: int, number: int) -> tuple[int, ...]:
    found = set()
    for array in arrays:
        for place, numbers in enumerate(array[row].tolist()):
            if numbers[N_VALUES:] != [number, place]:
                raise Violation(f"behavior {number}, place {place} observes what belongs elsewhere: {numbers}")
            found.add(tuple(int(value) for value in numbers[:N_VALUES]))
    if len(found) != 1:
        raise Violation(f"an observation is made of different answers: {found}")
    return found.pop()
