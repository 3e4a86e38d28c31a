"""Whether a healthy worker is replaced is a pure decision; when it is, its envs finish first and no step is lost."""

from __future__ import annotations

import pytest

from stepherd.core.errors import TooFewReady
from stepherd.core.events import WorkerFailed, WorkerRecycled
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.restarts import NEVER
from stepherd.process.exits import Exit
from stepherd.transport.control import Phase
from unit.manager.fake_backend import NEVER as FOR_EVER
from unit.manager.fake_backend import Act, Moment, Nature
from unit.manager.fake_pool import DIES, HANGS, RAISES, SHORT, FakePool, changed, open_pool

MIB = 2**20


@pytest.mark.parametrize(
    ("policy", "n_episodes", "rss_mib", "why"),
    [
        (RecyclePolicy(), 10**9, 10**6, None),
        (RecyclePolicy(after_episodes=3), 2, None, None),
        (RecyclePolicy(after_episodes=3), 3, None, "after 3 episodes"),
        (RecyclePolicy(after_episodes=3), 5, None, "after 5 episodes"),
        (RecyclePolicy(above_rss_mib=100.0), 1, 100, None),
        (RecyclePolicy(above_rss_mib=100.0), 1, 101, "at 101 MiB of memory"),
        (RecyclePolicy(above_rss_mib=100.0), 1, None, None),
        (RecyclePolicy(3, 100.0), 1, 101, "at 101 MiB of memory"),
        (RecyclePolicy(3, 100.0), 3, 101, "after 3 episodes"),
    ],
)
def test_a_worker_is_recycled_for_a_reason_in_words(
    policy: RecyclePolicy, n_episodes: int, rss_mib: int | None, why: str | None
) -> None:
    assert policy.why(n_episodes, None if rss_mib is None else rss_mib * MIB) == why
    assert policy.is_off == (policy == RecyclePolicy())


@pytest.mark.parametrize("wrong", [{"after_episodes": 0}, {"above_rss_mib": 0.0}, {"above_rss_mib": float("nan")}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RecyclePolicy(**wrong)  # type: ignore[arg-type]  # that is the point


def step_until_recycled(pool: FakePool, worker_id: int = 0) -> None:
    """Step whoever takes an action until a worker has been recycled and has come back."""
    free = list(range(pool.manager.n_envs))
    for _ in range(200):
        if free:
            pool.send(0, free)
        batch = pool.manager.recv(1)
        free = batch.env_ids.tolist()
        if pool.worker(worker_id).generation > 0 and bool(batch.lost.any()):
            return
    raise AssertionError("it was not recycled in 200 steps")


def test_a_worker_gets_a_new_process_between_two_episodes_and_its_env_comes_back_lost() -> None:
    with open_pool(num_workers=1, episode_length=3, recycle=RecyclePolicy(2), restarts=NEVER) as pool:
        pool.manager.reset()

        step_until_recycled(pool)

        (event,) = [event for event in pool.events if isinstance(event, WorkerRecycled)]
        assert (event.worker_id, event.pid, event.why) == (0, 100, "after 2 episodes")
        assert pool.backend.links[0].exit == Exit(0)
        assert pool.worker(0).ledger.discarded.total() == 0
        assert (pool.worker(0).n_recycled, pool.worker(0).n_restarts) == (1, 0)
        assert not any(isinstance(event, WorkerFailed) for event in pool.events)


def test_nobody_is_recycled_unless_asked_to() -> None:
    with open_pool(num_workers=2, episode_length=1) as pool:
        pool.manager.reset()
        for _ in range(50):
            pool.step()

        assert len(pool.backend.links) == 2


def test_envs_of_one_worker_wait_for_each_other_and_a_caller_who_would_wait_for_them_is_told() -> None:
    with open_pool(num_workers=1, envs_per_worker=2, episode_length=4, recycle=RecyclePolicy(1)) as pool:
        pool.manager.reset()
        for _ in range(4):
            pool.send(0, [0])
            pool.manager.recv(1)
        pool.send(0, [0])  # env 0 is held now: its worker is to be recycled once env 1 has ended an episode too

        with pytest.raises(TooFewReady, match="1 of these wait until the other envs of their worker end an episode"):
            pool.manager.recv(1)
        for _ in range(4):
            pool.send(0, [1])
            pool.manager.recv(1)
        pool.send(0, [1])

        assert pool.manager.recv(2).lost.tolist() == [True, True]
        assert pool.worker(0).n_recycled == 1


@pytest.mark.parametrize(
    ("act", "nature", "problem", "bound_s"),
    [
        (RAISES, Nature(), "close() raised ValueError: planned", 1.0),
        (DIES, Nature(), "it ended badly when it was to be recycled, while closing env 0: exited with code 1", 1.0),
        (changed(DIES, exit=Exit(0)), Nature(), "it ended badly when it was to be recycled, while closing env 0", 1.0),
        (HANGS, Nature(), "it did not end when it was to be recycled, while closing env 0", SHORT.grace_s + 1.0),
        (HANGS, Nature(sigterm_s=FOR_EVER), "it did not end when it was to be recycled", SHORT.grace_s + 1.0),
        (Act(), Nature(ends_s=FOR_EVER), "it did not end when it was to be recycled", SHORT.grace_s + 1.0),
    ],
    ids=["raises", "exits", "exits-0", "hangs", "deaf", "stays"],
)
def test_a_worker_that_leaves_badly_is_remarked_and_costs_no_budget(
    act: Act, nature: Nature, problem: str, bound_s: float
) -> None:
    def plan(moment: Moment) -> Act:
        return act if moment.phase is Phase.CLOSING and moment.generation == 0 else Act()

    with open_pool(
        plan,
        num_workers=1,
        episode_length=3,
        recycle=RecyclePolicy(1),
        restarts=NEVER,
        nature_of=lambda _, generation: nature if generation == 0 else Nature(),
    ) as pool:
        pool.manager.reset()
        begun = pool.backend.clock()
        step_until_recycled(pool)
        took_s = pool.backend.clock() - begun

    (found,) = pool.manager.close().workers[0].problems
    assert problem in found
    assert took_s <= bound_s


def test_a_worker_that_dies_while_it_waits_to_be_recycled_has_failed() -> None:
    with open_pool(num_workers=1, envs_per_worker=2, episode_length=2, recycle=RecyclePolicy(1)) as pool:
        pool.manager.reset()
        for _ in range(2):
            pool.send(0, [0])
            pool.manager.recv(1)
        pool.send(0, [0, 1])
        pool.backend.of(0).die()

        lost = 0
        while lost < 2:
            batch = pool.manager.recv(1)
            assert batch.lost.all()
            lost += len(batch)

        assert [type(e) for e in pool.events if isinstance(e, (WorkerFailed, WorkerRecycled))] == [WorkerFailed]
