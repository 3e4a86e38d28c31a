"""A whole manager on pretended workers, with what tests want to see of it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from stepherd.core.deadline import Timeouts
from stepherd.core.events import Event
from stepherd.manager.env_worker import EnvWorker
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.report import CloseReport
from stepherd.manager.restarts import RestartPolicy
from stepherd.manager.subprocess_env_manager import EnvSeeds, SubprocessEnvManager, patience_s
from stepherd.manager.supervisor import Supervisor
from stepherd.spec.batch import Actions, StepBatch
from stepherd.transport.control import Phase
from stepherd.transport.notes import Job
from unit.manager.fake_backend import Act, FakeBackend, Moment, Nature, Outcome, Plan, all_goes_well

SHORT = Timeouts(spawn_s=30.0, reset_s=20.0, step_s=10.0, grace_s=5.0, kill_s=3.0)
ALWAYS = RestartPolicy(-1, -1)


class FakePool:
    """A manager, the backend it runs on, and the events it reported."""

    def __init__(self, manager: SubprocessEnvManager, supervisor: Supervisor, backend: FakeBackend) -> None:
        self.manager, self.supervisor, self.backend = manager, supervisor, backend
        self.events: list[Event] = []

    def send(self, action: int = 0, env_ids: list[int] | None = None) -> None:
        """Send the same action to some envs; to all by default."""
        n = self.manager.n_envs if env_ids is None else len(env_ids)
        self.manager.send(Actions(np.zeros((n, 1, 0)), np.full((n, 1, 1), action, np.int32)), env_ids)

    def step(self, action: int = 0) -> StepBatch:
        """Send to all and wait for all that answer."""
        self.send(action)
        return self.manager.recv()

    def worker(self, worker_id: int) -> EnvWorker:
        """Return what the manager knows of a worker."""
        return self.supervisor.workers[worker_id]

    def check_account(self, report: CloseReport) -> None:
        """Check that every step is accounted for, against what the envs have counted themselves."""
        assert report.sent == report.delivered + report.discarded + report.unbegun
        for worker in report.workers:
            begun = sum(link.steps_begun for link in self.backend.links if link.worker_id == worker.worker_id)
            assert worker.executed == begun, worker
        for link in self.backend.links:
            assert link.reaped != link.abandoned
            assert link.abandoned == (link.exit is None)


def make_pool(
    plan: Plan = all_goes_well,
    *,
    num_workers: int = 2,
    envs_per_worker: int = 1,
    timeouts: Timeouts = SHORT,
    restarts: RestartPolicy = ALWAYS,
    recycle: RecyclePolicy = RecyclePolicy(),  # noqa: B008 - frozen
    nature_of: Callable[[int, int], Nature] = lambda worker_id, generation: Nature(),
    episode_length: int = 10,
    seed: int | None = 1,
) -> FakePool:
    """Return a pool whose workers were not started yet."""
    backend = FakeBackend(plan, nature_of, episode_length=episode_length)
    seeds = EnvSeeds(seed)
    events: list[Event] = []
    supervisor = Supervisor(
        backend,
        lambda env_ids: Job("python:pretended:env", b"", tuple(env_ids), ()),
        [range(i * envs_per_worker, (i + 1) * envs_per_worker) for i in range(num_workers)],
        env_name="pretended",
        seed_of=seeds.of,
        timeouts=timeouts,
        restarts=restarts,
        on_event=events.append,
        recycle=recycle,
    )
    patience = patience_s(timeouts, restarts.backoff_max_s, envs_per_worker)
    pool = FakePool(SubprocessEnvManager(supervisor, seeds, patience, timeouts.grace_s), supervisor, backend)
    pool.events = events
    return pool


@contextlib.contextmanager
def open_pool(plan: Plan = all_goes_well, **how: object) -> Iterator[FakePool]:
    """Give a pool that runs, and close it; the account must be right."""
    pool = make_pool(plan, **how)  # type: ignore[arg-type]  # passed on as they are
    with pool.manager:
        yield pool
    pool.check_account(pool.manager.close())


def once(where: Moment, act: Act) -> Plan:
    """Return a plan in which all goes well but at one moment."""
    return lambda moment: act if moment == where else Act()


def step_of(worker_id: int, n: int, *, env: int = 0, generation: int = 0) -> Moment:
    """Return the moment of the n-th step, from 0, of an env."""
    return Moment(worker_id, generation, Phase.STEPPING, env, n)


def takes(seconds: float) -> Act:
    """Return an act that goes well and takes so long."""
    return Act(takes_s=seconds)


DIES = Act(then=Outcome.ENDS)
RAISES = Act(then=Outcome.RAISES)
HANGS = Act(then=Outcome.HANGS)


def changed(act: Act, **changes: object) -> Act:
    """Return the act with some fields changed."""
    return dataclasses.replace(act, **changes)  # type: ignore[arg-type]  # passed on as they are
