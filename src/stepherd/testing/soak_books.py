"""The books a soak keeps of every action it sends and every row it gets, to compare with what the pool says.

Each row carries the stamp that its env gave it (see `soak_env`), so a row that is missing, doubled, swapped, torn or
from another time is noticed when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stepherd.spec.batch import Actions, BehaviorSteps, StepBatch
from stepherd.spec.specs import EnvSpec
from stepherd.testing.soak_env import (
    ACTION,
    CHECKSUM,
    EPISODE,
    PID,
    STEP,
    action_checksum,
    actions_of_row,
    row_checksum,
)


@dataclass(slots=True)
class EnvBook:
    """What is known of one env."""

    pid: int = 0
    """Of the process that the last row came from."""
    n_steps: int = 0
    """How many steps that process had begun with this env."""
    episode: int = 0
    sent: int = 0
    """Actions sent to this env since it came back to life."""
    in_flight: int = 0
    """The checksum of the action it works on; 0 for none."""
    awaited: bool = False
    """Its worker failed, and it has not come back yet."""


class Books:
    """All of one pool. `problem` is called with a sentence for each thing that is not as it must be."""

    def __init__(self, spec: EnvSpec, n_envs: int, envs_per_worker: int, problem: Callable[[str], None]) -> None:
        self.envs = [EnvBook() for _ in range(n_envs)]
        self.sent = 0
        self.delivered = 0
        self._envs_per_worker = envs_per_worker
        self._names = spec.names
        self._problem = problem

    @property
    def in_flight(self) -> list[int]:
        """The envs whose answers are on their way."""
        return [env_id for env_id, env in enumerate(self.envs) if env.in_flight]

    @property
    def awaited(self) -> list[int]:
        """The envs whose worker failed and that have not come back yet."""
        return [env_id for env_id, env in enumerate(self.envs) if env.awaited]

    def send(self, actions: dict[str, Actions], env_ids: Sequence[int]) -> None:
        """Note that row i of `actions` is sent to env `env_ids[i]`."""
        for row, env_id in enumerate(env_ids):
            env = self.envs[env_id]
            env.in_flight = action_checksum(actions_of_row(actions, row))
            env.sent += 1
        self.sent += len(env_ids)

    def lose(self, worker_id: int) -> None:
        """Note that a worker failed: its envs will come back, marked lost."""
        first = worker_id * self._envs_per_worker
        for env in self.envs[first : first + self._envs_per_worker]:
            env.awaited = True

    def take_reset(self, batch: StepBatch) -> None:
        """Check the rows of a reset, one of every env."""
        if list(batch.env_ids) != list(range(len(self.envs))):
            self._problem(f"a reset returned envs {list(batch.env_ids)} instead of all {len(self.envs)} in order")
        for row, env_id in enumerate(batch.env_ids):
            env = self.envs[env_id]
            for steps in self._stamped(batch, row, int(env_id)):
                stamp = steps.stamp
                if stamp[PID] == env.pid and stamp[STEP] != env.sent:
                    self._problem(
                        f"after a reset, env {env_id} had executed {stamp[STEP]} steps of the {env.sent} sent to it"
                    )
                if stamp[PID] != env.pid and stamp[STEP] != 0:
                    self._problem(f"env {env_id} came back from a reset in a new process with step {stamp[STEP]}")
                if stamp[ACTION]:
                    self._problem(f"env {env_id} answered a reset with the row of a step")
            self._open(env, batch, row)

    def take(self, batch: StepBatch) -> None:
        """Check the rows of a receive or a drain."""
        if list(batch.env_ids) != sorted(set(batch.env_ids.tolist())):
            self._problem(f"a batch has envs {list(batch.env_ids)}: not each once, in ascending order")
        for row, env_id in enumerate(batch.env_ids):
            env = self.envs[env_id]
            if batch.lost[row]:
                self._check_lost(batch, row, int(env_id), env)
                self._open(env, batch, row)
                continue
            self.delivered += 1
            if not env.in_flight:
                self._problem(f"env {env_id} answered, though nothing was on its way")
            self._check_step(batch, row, int(env_id), env)
            self._note(env, batch, row)

    def _check_step(self, batch: StepBatch, row: int, env_id: int, env: EnvBook) -> None:
        for steps in self._stamped(batch, row, env_id):
            stamp, name = steps.stamp, f"env {env_id}"
            if stamp[PID] != env.pid:
                self._problem(f"{name} answered from process {stamp[PID]}, not {env.pid}, and was not marked lost")
            elif stamp[STEP] != env.n_steps + 1:
                self._problem(f"{name} delivered step {stamp[STEP]} after step {env.n_steps}")
            if stamp[ACTION] != env.in_flight:
                self._problem(f"{name} executed another action in step {stamp[STEP]} than the one sent to it")
            if self._n_agents(batch, steps.name) == 1 and stamp[EPISODE] - env.episode != int(steps.ended):
                self._problem(f"{name} is in episode {stamp[EPISODE]} after {env.episode}, ended: {steps.ended}")
            if steps.ended:
                self._check_final(batch[steps.name], row, steps.place, f"{name}, step {stamp[STEP]}", stamp)

    def _check_final(self, of: BehaviorSteps, row: int, place: int, name: str, stamp: Sequence[int]) -> None:
        final = of.final_obs[-1][row, place].tolist()
        if final[STEP] != stamp[STEP] or final[PID] != stamp[PID]:
            self._problem(f"{name}: its last observation is of step {final[STEP]}")
        elif final[CHECKSUM] != row_checksum([array[row] for array in of.final_obs[:-1]], place, None):
            self._problem(f"{name}: its last observation was changed on the way")

    def _check_lost(self, batch: StepBatch, row: int, env_id: int, env: EnvBook) -> None:
        for steps in self._stamped(batch, row, env_id):
            stamp = steps.stamp
            if stamp[PID] == env.pid:
                self._problem(f"env {env_id} is marked lost, but comes from the process it was in, {env.pid}")
            if stamp[STEP] or stamp[EPISODE] != 1:
                self._problem(f"env {env_id} came back lost with step {stamp[STEP]} of episode {stamp[EPISODE]}")
            if steps.ended or batch[steps.name].reward[row, steps.place]:
                self._problem(f"env {env_id} came back lost with a reward or an end")

    def _open(self, env: EnvBook, batch: StepBatch, row: int) -> None:
        self._note(env, batch, row)
        env.sent = env.n_steps

    def _note(self, env: EnvBook, batch: StepBatch, row: int) -> None:
        stamp = batch[self._names[0]].obs[-1][row, 0].tolist()
        env.pid, env.n_steps, env.episode = stamp[PID], stamp[STEP], stamp[EPISODE]
        env.in_flight, env.awaited = 0, False

    def _stamped(self, batch: StepBatch, row: int, env_id: int) -> Iterable[_Stamped]:
        """Yield each agent place of a row, after checking that the row is whole."""
        for name in self._names:
            of = batch[name]
            inside = _row_of(of, row)
            for place in range(len(inside.reward)):
                stamp = inside.obs[-1][place].tolist()
                if stamp[CHECKSUM] != row_checksum(inside.obs[:-1], place, inside):
                    self._problem(f"a row of env {env_id} was changed on the way (step {stamp[STEP]})")
                yield _Stamped(name, place, stamp, bool(inside.ended[place]))

    def _n_agents(self, batch: StepBatch, name: str) -> int:
        return int(batch[name].reward.shape[1])


@dataclass(frozen=True, slots=True)
class _Stamped:
    name: str
    place: int
    stamp: Sequence[int]
    ended: bool


def _row_of(of: BehaviorSteps, row: int) -> BehaviorSteps:
    return BehaviorSteps(
        tuple(array[row] for array in of.obs),
        of.final_obs,
        of.reward[row],
        of.deciding[row],
        of.terminated[row],
        of.interrupted[row],
    )
