"""What a caller sees of a pool: batches, deadlines, refusals and accounts, on pretended workers."""

from __future__ import annotations

import numpy as np
import pytest

from stepherd.core.deadline import Timeouts
from stepherd.core.errors import EnvBusy, ManagerClosed, TooFewReady, WorkerFailed
from stepherd.manager.restarts import NEVER
from stepherd.manager.subprocess_env_manager import EnvSeeds, patience_s
from stepherd.process.exits import Exit
from stepherd.spec.batch import Actions
from stepherd.transport.control import Phase
from unit.manager.fake_backend import Act, Moment, Plan
from unit.manager.fake_pool import DIES, HANGS, RAISES, SHORT, make_pool, once, open_pool, step_of, takes


def slow_workers(*worker_ids: int, seconds: float = 5.0) -> Plan:
    """Return a plan in which these workers take long over each step."""

    def plan(moment: Moment) -> Act:
        return takes(seconds if moment.phase is Phase.STEPPING and moment.worker_id in worker_ids else 0.001)

    return plan


# Receiving.


def test_min_envs_is_enough_and_who_is_ready_comes_along() -> None:
    with open_pool(slow_workers(3), num_workers=4) as pool:
        pool.manager.reset()
        pool.send()
        pool.backend.let_pass(1.0)

        first = pool.manager.recv(1).env_ids.tolist()
        second = pool.manager.recv(1).env_ids.tolist()

        assert first == [0, 1, 2]
        assert second == [3]


def test_without_time_what_lies_there_is_taken_all_the_same() -> None:
    with open_pool() as pool:
        pool.manager.reset()
        pool.send()
        pool.backend.let_pass(1.0)

        batch = pool.manager.recv(2, within_s=0.0)

        assert batch.env_ids.tolist() == [0, 1]


def test_asking_for_no_envs_takes_what_lies_there_and_does_not_wait() -> None:
    with open_pool(slow_workers(1)) as pool:
        pool.manager.reset()
        pool.send()
        begun = pool.backend.clock()
        nothing = pool.manager.recv(0).env_ids.tolist()
        waited = pool.backend.clock() - begun
        pool.backend.let_pass(1.0)

        something = pool.manager.recv(0).env_ids.tolist()

        assert (nothing, something) == ([], [0])
        assert waited == 0.0


def test_a_caller_that_only_ever_polls_gets_everything() -> None:
    with open_pool(num_workers=3) as pool:
        pool.manager.reset()
        seen: list[int] = []
        pool.send()
        for _ in range(100):
            pool.backend.let_pass(0.001)
            seen += pool.manager.recv(0).env_ids.tolist()

        assert sorted(seen) == [0, 1, 2]


def test_what_arrived_before_time_ran_out_stays_queued() -> None:
    with open_pool(slow_workers(1)) as pool:
        pool.manager.reset()
        pool.send(7)
        with pytest.raises(TooFewReady, match="when time ran out there were 1 answered, 1 in flight"):
            pool.manager.recv(2, within_s=1.0)

        batch = pool.manager.recv(1, within_s=0.0)

        assert batch.env_ids.tolist() == [0]
        assert batch["A"].obs[0][0, 0, 3] == 7.0
        assert pool.manager.recv().env_ids.tolist() == [1]


def test_more_than_can_ever_come_is_refused_at_once() -> None:
    with open_pool(num_workers=3) as pool:
        pool.manager.reset()
        pool.send(0, [1])
        begun = pool.backend.clock()

        with pytest.raises(TooFewReady, match="2 answers were asked for, but there are only 0 answered, 1 in flight"):
            pool.manager.recv(2)

        assert pool.backend.clock() == begun
        assert pool.manager.recv().env_ids.tolist() == [1]


def test_receiving_with_nothing_in_flight_is_refused_at_once() -> None:
    with open_pool() as pool:
        pool.manager.reset()

        with pytest.raises(TooFewReady):
            pool.manager.recv()


@pytest.mark.parametrize("min_envs", [-1, 3])
def test_a_number_that_cannot_be_is_a_mistake(min_envs: int) -> None:
    with open_pool() as pool:
        pool.manager.reset()

        with pytest.raises(ValueError, match="between 0 and 2"):
            pool.manager.recv(min_envs)


@pytest.mark.parametrize("envs_per_worker", [1, 3, 8])
def test_by_default_a_recv_waits_as_long_as_the_pools_own_deadlines_allow(envs_per_worker: int) -> None:
    def plan(moment: Moment) -> Act:  # every call takes all the time it has, and the very last step never comes back
        if moment.phase is Phase.STEPPING:
            is_last = moment.env == envs_per_worker - 1 and moment.generation == 0
            return HANGS if is_last else takes(9.9)
        return takes(19.9 if moment.phase is Phase.RESETTING else 1.0)

    with open_pool(plan, num_workers=1, envs_per_worker=envs_per_worker, episode_length=1) as pool:
        pool.manager.reset()
        pool.send()

        batch = pool.manager.recv(envs_per_worker)

        assert batch.lost.all()


def test_the_patience_covers_the_longest_way_round() -> None:
    timeouts = Timeouts(spawn_s=100.0, reset_s=10.0, step_s=1.0)

    assert patience_s(timeouts, 5.0, 1) >= (1.0 + 10.0) + 5.0 + 100.0 + 10.0
    assert patience_s(timeouts, 5.0, 4) >= 4 * (1.0 + 10.0) + 5.0 + 100.0 + 4 * 10.0


def test_a_batch_is_good_until_the_next_recv_and_a_copy_for_ever() -> None:
    with open_pool() as pool:
        pool.manager.reset()
        batch = pool.step(1)
        copy = batch.copy()

        pool.step(2)

        assert copy["A"].obs[0][:, 0, 3].tolist() == [1.0, 1.0]
        assert batch["A"].obs[0][:, 0, 3].tolist() == [2.0, 2.0]


# Sending.


def test_an_env_in_flight_takes_no_second_action_and_nothing_is_sent() -> None:
    with open_pool(num_workers=3) as pool:
        pool.manager.reset()
        pool.send(0, [1])

        with pytest.raises(EnvBusy, match="env 1 is still working"):
            pool.send()
        assert pool.manager.recv().env_ids.tolist() == [1]
        pool.send(0, [0, 2])
        assert pool.manager.recv().env_ids.tolist() == [0, 2]


def test_an_answer_that_was_not_taken_is_in_the_way_of_the_next_action() -> None:
    with open_pool() as pool:
        pool.manager.reset()
        pool.send()
        with pytest.raises(TooFewReady):
            pool.manager.recv(2, within_s=0.0)
        pool.backend.let_pass(1.0)
        pool.manager._supervisor.turn(pool.manager._deadline(0.0))

        with pytest.raises(EnvBusy, match="env 0 has answered and its answer was not taken"):
            pool.send()


def test_an_env_that_is_named_twice_is_a_mistake() -> None:
    with open_pool() as pool:
        pool.manager.reset()

        with pytest.raises(ValueError, match="repeats"):
            pool.send(0, [1, 1])


@pytest.mark.parametrize("env_id", [-1, 2])
def test_an_env_that_does_not_exist_is_told(env_id: int) -> None:
    with open_pool() as pool:
        pool.manager.reset()

        with pytest.raises(EnvBusy, match="the pool has envs 0 to 1"):
            pool.send(0, [env_id])


def test_actions_that_do_not_fit_are_refused_and_nothing_is_sent() -> None:
    with open_pool() as pool:
        pool.manager.reset()

        with pytest.raises(ValueError, match=r"A: discrete actions have shape \(2, 1, 2\), expected \(2, 1, 1\)"):
            pool.manager.send(Actions(np.zeros((2, 1, 0)), np.zeros((2, 1, 2), np.int32)))
        with pytest.raises(ValueError, match="actions are for"):
            pool.manager.send({"B": Actions(np.zeros((2, 1, 0)), np.zeros((2, 1, 1), np.int32))})
        with pytest.raises(ValueError, match="expected"):
            pool.manager.send(Actions(np.zeros((2, 1, 0)), np.zeros((2, 1, 1), np.int32)), [0])

        assert pool.step(3)["A"].obs[0][:, 0, 2:].tolist() == [[1.0, 3.0]] * 2


def test_each_row_goes_to_the_env_it_is_meant_for() -> None:
    with open_pool(num_workers=2, envs_per_worker=2) as pool:
        pool.manager.reset()
        pool.manager.send(Actions(np.zeros((3, 1, 0)), np.array([30, 10, 20], np.int32).reshape(3, 1, 1)), [3, 1, 2])

        batch = pool.manager.recv()

        assert batch.env_ids.tolist() == [1, 2, 3]
        assert batch["A"].obs[0][:, 0, 3].tolist() == [10.0, 20.0, 30.0]


def test_an_action_for_a_worker_that_is_being_replaced_is_counted_and_answered_as_lost() -> None:
    with open_pool(once(step_of(1, 0), DIES)) as pool:
        pool.manager.reset()
        pool.send()
        assert pool.manager.recv().env_ids.tolist() == [0]

        pool.send()  # to both: the caller did not look who had answered
        batch = pool.manager.recv(2)

        assert batch.lost.tolist() == [False, True]
        assert (pool.worker(1).ledger.sent, pool.worker(1).ledger.unbegun) == (2, 1)


def test_an_action_for_an_env_that_is_just_coming_back_is_counted_and_answered_as_lost() -> None:
    # It dies idle; a recv for others notices, replaces it and has it reset. The caller knows of none of this.
    def plan(moment: Moment) -> Act:
        return takes(5.0 if moment.phase is Phase.RESETTING and moment.generation == 1 else 0.001)

    with open_pool(plan) as pool:
        pool.manager.reset()
        pool.backend.of(1).die()
        while pool.worker(1).memory is None or pool.worker(1).generation == 0:
            pool.send(0, [0])
            pool.manager.recv(1)

        pool.send()
        assert pool.manager.recv().env_ids.tolist() == [0]
        batch = pool.manager.recv(1)

        assert (batch.env_ids.tolist(), batch.lost.tolist()) == ([1], [True])
        assert (pool.worker(1).ledger.sent, pool.worker(1).ledger.unbegun) == (1, 1)


# Resetting.


def test_every_env_has_a_seed_of_its_own_and_the_same_root_gives_the_same() -> None:
    seeds = []
    for _ in range(2):
        with open_pool(num_workers=2, envs_per_worker=2, seed=5) as pool:
            first = pool.manager.reset()["A"].obs[0][:, 0, 0].tolist()
            second = pool.manager.reset()["A"].obs[0][:, 0, 0].tolist()
            third = pool.manager.reset(seed=5)["A"].obs[0][:, 0, 0].tolist()
            seeds.append(first)

        assert len(set(first)) == 4
        assert second == [-1.0] * 4
        assert third == first
    assert seeds[0] == seeds[1]


def test_a_replaced_env_never_replays_its_past() -> None:
    with open_pool(once(step_of(1, 0), DIES)) as pool:
        before = pool.manager.reset()["A"].obs[0][1, 0, 0]
        pool.send()

        after = pool.manager.recv(2)["A"].obs[0][1, 0, 0]

        assert after >= 0
        assert after != before


def test_a_reset_discards_what_is_in_flight_and_what_was_not_taken_and_counts_it() -> None:
    with open_pool(slow_workers(1)) as pool:
        pool.manager.reset()
        pool.send(1)
        with pytest.raises(TooFewReady):
            pool.manager.recv(2, within_s=1.0)

        batch = pool.manager.reset()

        assert batch["A"].obs[0][:, 0, 1:].tolist() == [[2.0, 0.0, -1.0]] * 2
        assert not batch.lost.any()
    report = pool.manager.close()
    assert (report.sent, report.delivered, report.discarded) == (2, 0, 2)
    assert set(report.workers[0].discarded) == {"a reset came before its outcome was taken"}


def test_a_reset_waits_for_workers_that_are_being_replaced() -> None:
    with open_pool(once(step_of(1, 0), DIES), num_workers=3) as pool:
        pool.manager.reset()
        pool.step()

        batch = pool.manager.reset(seed=9)

        assert batch.env_ids.tolist() == [0, 1, 2]
        assert not batch.lost.any()
        assert pool.step().env_ids.tolist() == [0, 1, 2]


def test_seeds_are_below_what_every_simulator_accepts() -> None:
    seeds = [EnvSeeds(root).of(env_id, generation) for root in range(5) for env_id in range(5) for generation in (0, 1)]

    assert len(set(seeds)) == 50
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert EnvSeeds(None).root != EnvSeeds(None).root


# Draining.


def test_a_drain_brings_home_what_is_in_flight() -> None:
    with open_pool(slow_workers(1)) as pool:
        pool.manager.reset()
        pool.send(4)

        batch = pool.manager.drain()

        assert batch.env_ids.tolist() == [0, 1]
        assert batch["A"].obs[0][:, 0, 3].tolist() == [4.0, 4.0]


def test_a_drain_without_time_takes_what_lies_there() -> None:
    with open_pool(slow_workers(1)) as pool:
        pool.manager.reset()
        pool.send()
        pool.backend.let_pass(1.0)

        assert pool.manager.drain(within_s=0.0).env_ids.tolist() == [0]


@pytest.mark.parametrize("act", [DIES, RAISES, HANGS], ids=["dies", "raises", "hangs"])
def test_a_worker_that_fails_while_draining_is_reported_and_not_replaced(act: Act) -> None:
    with open_pool(once(step_of(1, 0), act), num_workers=3) as pool:
        pool.manager.reset()
        pool.send()

        batch = pool.manager.drain()

        assert batch.env_ids.tolist() == [0, 2]
    report = pool.manager.close()
    assert report.workers[1].error is not None
    assert report.workers[1].n_restarts == 0
    assert sum(report.workers[1].discarded.values()) == 1


def test_draining_nothing_is_an_empty_batch() -> None:
    with open_pool() as pool:
        pool.manager.reset()

        assert len(pool.manager.drain()) == 0


def test_what_a_worker_answered_before_it_died_survives_the_drain() -> None:
    plan = once(step_of(0, 0, env=2), DIES)
    with open_pool(plan, num_workers=1, envs_per_worker=3) as pool:
        pool.manager.reset()
        pool.send(6)

        batch = pool.manager.drain()

        assert batch.env_ids.tolist() == [0, 1]
        assert batch["A"].obs[0][:, 0, 3].tolist() == [6.0, 6.0]


# Closing.


def test_a_close_accounts_for_every_step() -> None:
    with open_pool(slow_workers(1)) as pool:
        pool.manager.reset()
        for _ in range(3):
            pool.step()
        pool.send()
        pool.backend.let_pass(1.0)  # env 0 has answered by now, env 1 is at it

    report = pool.manager.close()

    assert (report.sent, report.delivered, report.discarded, report.unbegun) == (8, 6, 2, 0)
    assert report.workers[0].discarded == {"it was not taken before the close": 1}
    assert [worker.exit for worker in report.workers] == ["exited with code 0"] * 2


def test_a_second_close_returns_the_same_report() -> None:
    with open_pool() as pool:
        first = pool.manager.close()

        assert pool.manager.close() is first


def test_nothing_works_after_the_close_and_a_glance_still_does() -> None:
    with open_pool() as pool:
        pool.manager.reset()
    manager = pool.manager

    for call in (manager.reset, manager.recv, manager.drain, pool.send, manager.__enter__, lambda: manager.spec):
        with pytest.raises(ManagerClosed, match="closed"):
            call()
    assert [status.state for status in manager.statuses()] == ["down", "down"]
    assert manager.n_envs == 2


def test_nothing_works_before_the_block_is_entered() -> None:
    pool = make_pool()

    with pytest.raises(ManagerClosed, match="not open yet"):
        pool.manager.reset()

    assert pool.manager.close().workers[0].exit == "never started"
    assert pool.backend.closed


def test_an_exception_in_the_block_closes_the_pool_and_goes_on() -> None:
    pool = make_pool()

    def work() -> None:
        pool.manager.reset()
        pool.send()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), pool.manager:
        work()

    pool.check_account(pool.manager.close())


def test_a_close_right_after_the_start_is_clean() -> None:
    with open_pool(num_workers=4):
        pass


@pytest.mark.parametrize("grace_s", [0.0, 1.0])
def test_a_grace_given_to_the_close_replaces_the_pools(grace_s: float) -> None:
    with open_pool(lambda moment: HANGS if moment.phase is Phase.CLOSING else Act()) as pool:
        report = pool.manager.close(grace_s=grace_s)

        assert report.took_s <= 2 * grace_s + SHORT.kill_s


def test_a_glance_tells_what_each_worker_does() -> None:
    with open_pool(slow_workers(1)) as pool:
        pool.manager.reset()
        pool.step()
        pool.send()
        pool.backend.let_pass(1.0)

        statuses = pool.manager.statuses()

        assert [(s.worker_id, s.pid, s.state, s.n_steps) for s in statuses] == [
            (0, 100, "idle", 1),
            (1, 101, "stepping", 1),
        ]


def test_after_the_last_failure_the_rest_of_the_pool_closes_in_peace() -> None:
    with open_pool(once(step_of(1, 0), DIES), restarts=NEVER) as pool:
        pool.manager.reset()
        pool.send()
        with pytest.raises(WorkerFailed):
            pool.manager.recv()

    report = pool.manager.close()

    assert report.workers[0].exit == str(Exit(0))
    assert report.workers[1].exit == "exited with code 1"
    assert report.workers[1].discarded == {"the worker died": 1}
