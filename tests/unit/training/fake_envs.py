"""A pool of pretended envs that keeps the protocol of `EnvManager`, for tests of what learns from one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType

import numpy as np
import pytest
import torch

from stepherd.core.errors import TooFewReady
from stepherd.manager.env_manager import EnvManager, WorkerStatus
from stepherd.manager.report import CloseReport, WorkerReport
from stepherd.spec.batch import Actions, AnyArray, BehaviorSteps, StepBatch
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec

N_CHOICES = 50


def behavior(name: str = "Walker", n_agents: int = 1) -> BehaviorSpec:
    """Return a behavior that sees its slot and its clock, and has enough choices to name a slot."""
    action = ActionSpec(1, (N_CHOICES,), (-1.0,), (1.0,))
    return BehaviorSpec(name, (ObservationSpec("obs", (2,), "float32"),), action, n_agents)


class FakeEnvs:
    """Envs that answer at once, all that is in flight with each `recv`; `on_recv` may change that and may raise.

    What was handed out before is overwritten by the next `recv` or `reset`, as the protocol allows.
    """

    def __init__(
        self,
        *behaviors: BehaviorSpec,
        n_envs: int = 4,
        episode_length: int = 1000,
        reward: float = 1.0,
        on_recv: Callable[[FakeEnvs], None] | None = None,
        on_enter: Callable[[FakeEnvs], None] | None = None,
    ) -> None:
        self._spec = EnvSpec(behaviors or (behavior(),))
        self._n_envs, self._episode_length, self._reward = n_envs, episode_length, reward
        self._on_recv, self._on_enter = on_recv, on_enter
        self._last: StepBatch | None = None
        self.clocks = [0] * n_envs
        self.in_flight: set[int] = set()
        self.away: set[int] = set()
        """Envs of a worker that is being replaced: nobody waits for them; taken out of here, they come back lost."""
        self.lost: set[int] = set()
        """Envs whose next answer is lost."""
        self.is_late = False
        """Whether no answer comes in time."""
        self.n_recv = 0
        self.sent: list[tuple[list[int], dict[str, Actions]]] = []
        self.n_delivered = 0
        self.closed_with: list[float | None] = []

    @property
    def spec(self) -> EnvSpec:
        """What each env is."""
        return self._spec

    @property
    def n_envs(self) -> int:
        """How many there are."""
        return self._n_envs

    def reset(self, seed: int | None = None) -> StepBatch:
        """Begin new episodes everywhere; the rewards are poison, as nobody may count them."""
        self.in_flight.clear()
        self.clocks = [0] * self.n_envs
        return self._batch(range(self.n_envs), set(), reward=1e6)

    def send(self, actions: Actions | Mapping[str, Actions], env_ids: Sequence[int] | None = None) -> None:
        """Take actions in, having checked their shapes and that each env waits for one."""
        assert not isinstance(actions, Actions)
        assert env_ids is not None
        assert not self.in_flight & set(env_ids), "an env is still in flight"
        assert set(actions) == set(self.spec.names)
        for each in self.spec.behaviors:
            leading = (len(env_ids), each.n_agents)
            assert actions[each.name].continuous.shape == (*leading, each.action.n_continuous)
            assert actions[each.name].discrete.shape == (*leading, len(each.action.branches))
        self.in_flight.update(env_ids)
        self.sent.append((list(env_ids), dict(actions)))

    def recv(self, min_envs: int | None = None, within_s: float | None = None) -> StepBatch:
        """Return all that is in flight and not away."""
        self.n_recv += 1
        if self._on_recv is not None:
            self._on_recv(self)
        ready = self.in_flight - self.away
        if self.is_late or not ready:
            raise TooFewReady(f"{len(self.in_flight)} in flight")
        return self._answer(ready)

    def drain(self, within_s: float | None = None) -> StepBatch:
        """Return all that is in flight; who is away does not come back."""
        self.in_flight -= self.away
        return self._answer(self.in_flight)

    def statuses(self) -> Sequence[WorkerStatus]:
        """Return a glance at the one worker."""
        return [WorkerStatus(0, 12345, "idle", 0, self.n_delivered, 0.5 * self.n_recv)]

    def close(self, grace_s: float | None = None) -> CloseReport:
        """Return the account."""
        self.closed_with.append(grace_s)
        n_unbegun = len(self.in_flight)
        worker = WorkerReport(
            0, tuple(range(self.n_envs)), 12345, "ended", 0, self.n_delivered + n_unbegun, self.n_delivered, {},
            n_unbegun, None, leaked=False,
        )  # fmt: skip
        return CloseReport((worker,), 0.25)

    def __enter__(self) -> FakeEnvs:
        if self._on_enter is not None:
            self._on_enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, env_ids: set[int]) -> StepBatch:
        lost = self.lost & env_ids
        for env_id in env_ids:
            self.clocks[env_id] = 0 if env_id in lost else self.clocks[env_id] + 1
        ordered = sorted(env_ids)
        self.lost = self.lost - lost
        self.in_flight = self.in_flight - env_ids
        self.n_delivered += len(env_ids - lost)
        batch = self._batch(ordered, lost, self._reward)
        for env_id in ordered:
            self.clocks[env_id] %= self._episode_length
        return batch

    def _batch(self, env_ids: Sequence[int], lost: set[int], reward: float) -> StepBatch:
        self._spoil_last()
        is_lost = np.array([env_id in lost for env_id in env_ids], np.bool_)
        clocks = np.array([self.clocks[env_id] for env_id in env_ids], np.float32)
        ends = clocks >= self._episode_length
        rewards = np.where(is_lost, 0.0, reward)
        self._last = StepBatch(
            np.array(list(env_ids), np.int64),
            is_lost,
            {each.name: _steps(each, env_ids, clocks, ends, rewards) for each in self._spec.behaviors},
        )
        return self._last

    def _spoil_last(self) -> None:
        if self._last is None:
            return
        for steps in self._last.behaviors.values():
            for array in (*steps.obs, *steps.final_obs, steps.reward):
                array[:] = np.nan


def _steps(
    spec: BehaviorSpec, env_ids: Sequence[int], clocks: AnyArray, ends: AnyArray, reward: AnyArray
) -> BehaviorSteps:
    shape = (len(env_ids), spec.n_agents)
    slots = np.array(list(env_ids), np.float32).reshape(-1, 1) * spec.n_agents + np.arange(spec.n_agents)

    def observed(clock: AnyArray) -> AnyArray:
        array: AnyArray = np.stack([slots, np.broadcast_to(clock[:, None], shape)], axis=-1).astype(np.float32)
        return array

    final = observed(clocks)
    final[~ends] = np.nan
    return BehaviorSteps(
        obs=(observed(np.where(ends, 0, clocks)),),
        final_obs=(final,),
        reward=np.broadcast_to(reward[:, None], shape).astype(np.float64),
        deciding=np.ones(shape, np.bool_),
        terminated=np.broadcast_to(ends[:, None], shape).copy(),
        interrupted=np.zeros(shape, np.bool_),
    )


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    """Keep torch to one thread: with more, small networks on a busy machine run many times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def as_protocol(envs: FakeEnvs) -> EnvManager:
    """Return `envs`; the type checker says whether they keep the protocol."""
    return envs
