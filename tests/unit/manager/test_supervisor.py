"""What a manager makes of each thing that can happen to a worker, on pretended workers and a clock that jumps."""

from __future__ import annotations

import errno

import pytest

from stepherd.core import events
from stepherd.core.errors import EnvNeverReady, WorkerFailed
from stepherd.manager.restarts import NEVER, RestartPolicy
from stepherd.process.exits import Exit
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec
from stepherd.transport.control import Phase
from unit.manager.fake_backend import Act, Moment, Nature, Outcome, Plan
from unit.manager.fake_pool import (
    DIES,
    HANGS,
    RAISES,
    SHORT,
    changed,
    make_pool,
    once,
    open_pool,
    step_of,
    takes,
)

SPAWN = Moment(1, 0, Phase.SPAWNING, 0, 0)
RESET = Moment(1, 0, Phase.RESETTING, 0, 0)


def failures_of(happened: list[events.Event]) -> list[events.WorkerFailed]:
    """Return the failures among some events."""
    return [event for event in happened if isinstance(event, events.WorkerFailed)]


# Starting.


def test_a_pool_starts_and_says_so() -> None:
    with open_pool(num_workers=3) as pool:
        started = [event for event in pool.events if isinstance(event, events.WorkerStarted)]
        ready = [event for event in pool.events if isinstance(event, events.WorkerReady)]

        assert [(event.worker_id, event.pid, event.generation) for event in started] == [
            (0, 100, 0),
            (1, 101, 0),
            (2, 102, 0),
        ]
        assert sorted(event.worker_id for event in ready) == [0, 1, 2]


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (RAISES, "while building its envs: raised ValueError: planned\nTraceback: planned"),
        (DIES, "while building its envs: exited with code 1"),
        (changed(DIES, exit=Exit(0)), "ended by itself with code 0"),
        (changed(DIES, exit=Exit(None, 9)), "killed by SIGKILL"),
        (HANGS, "more than spawn_s = 30 s allows"),
        (Act(then=Outcome.HANGS_UP), "closed its connection"),
        (Act(then=Outcome.BABBLES), "broke the protocol: CLOSED while spawning"),
    ],
    ids=["raises", "exits", "exits-0", "killed", "hangs", "hangs-up", "babbles"],
)
def test_a_worker_that_cannot_build_its_envs_is_no_crash_and_ends_the_start(act: Act, words: str) -> None:
    pool = make_pool(once(SPAWN, act))
    begun = pool.backend.clock()

    with pytest.raises(EnvNeverReady) as caught, pool.manager:
        pytest.fail("it opened")

    assert caught.value.worker_id == 1
    assert words in str(caught.value)
    assert "Worker 1 (pid 101, env 1 of pretended)" in str(caught.value)
    assert pool.backend.clock() - begun <= SHORT.spawn_s + 1.0 + SHORT.close_s
    assert len(pool.backend.links) == 2
    pool.check_account(pool.manager.close())


@pytest.mark.parametrize("n_started", [0, 2])
def test_a_start_that_the_system_refuses_leaves_nobody_behind(n_started: int) -> None:
    pool = make_pool(num_workers=3)
    pool.backend.refusals.extend([None] * n_started)
    pool.backend.refusals.append(OSError(errno.EAGAIN, "no more processes"))

    with pytest.raises(OSError, match="no more processes"), pool.manager:
        pytest.fail("it opened")

    assert len(pool.backend.links) == n_started
    assert all(link.reaped for link in pool.backend.links)
    exits = [worker.exit for worker in pool.manager.close().workers]
    assert exits[n_started:] == ["never started"] * (3 - n_started)


def test_a_worker_that_dies_while_others_still_start_is_replaced_without_spinning() -> None:
    def plan(moment: Moment) -> Act:
        if moment.phase is Phase.SPAWNING:
            return takes(25.0 if moment.worker_id == 1 or moment.generation else 1.0)
        return Act()

    pool = make_pool(plan)
    pool.backend.later(20.0, lambda: pool.backend.of(0).die())

    with pool.manager:
        generations = [pool.worker(worker_id).generation for worker_id in (0, 1)]

    assert generations == [1, 0]


@pytest.mark.parametrize("num_workers", [2])
def test_envs_that_differ_between_workers_can_never_be_ready(num_workers: int) -> None:
    other = EnvSpec((BehaviorSpec("A", (ObservationSpec("obs", (5,), "float64"),), ActionSpec(branches=(1000,))),))
    pool = make_pool(
        num_workers=num_workers, nature_of=lambda worker_id, _: Nature(spec=other) if worker_id else Nature()
    )

    with pytest.raises(EnvNeverReady, match=r"its envs are .*those of the other workers"), pool.manager:
        pytest.fail("it opened")

    assert len(pool.backend.links) == num_workers


# Failing at work.

FAULTS: list[tuple[str, Act, str, str]] = [
    ("raises", RAISES, "raised", "raised ValueError: planned\nTraceback: planned"),
    ("exits", DIES, "died", "exited with code 1"),
    ("exits-0", changed(DIES, exit=Exit(0)), "died", "ended by itself with code 0"),
    ("killed", changed(DIES, exit=Exit(None, 9)), "died", "killed by SIGKILL"),
    ("crashes", changed(DIES, exit=Exit(None, 11)), "died", "killed by SIGSEGV"),
    ("hangs", HANGS, "late", "more than step_s = 10 s allows"),
    ("hangs-up", Act(then=Outcome.HANGS_UP), "died", "closed its connection"),
    ("babbles", Act(then=Outcome.BABBLES), "protocol", "broke the protocol: CLOSED while up"),
]


@pytest.mark.parametrize(("name", "act", "cause", "words"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_worker_that_fails_in_a_step_is_named_replaced_and_marked_lost(
    name: str, act: Act, cause: str, words: str
) -> None:
    with open_pool(once(step_of(1, 2), act), num_workers=3) as pool:
        pool.manager.reset()
        pool.step(1)
        pool.step(2)
        partial = pool.step(3).copy()
        rest = pool.manager.recv(1).copy()

        (failure,) = failures_of(pool.events)
        assert (failure.worker_id, failure.pid, failure.generation, failure.cause) == (1, 101, 0, cause)
        assert words in failure.text
        assert "while stepping env 1 (step 3 in this process)" in failure.text
        assert failure.restart_in_s == 0.0
        assert partial.env_ids.tolist() == [0, 2]
        assert partial["A"].obs[0][:, 0, 2].tolist() == [3.0, 3.0]
        assert (rest.env_ids.tolist(), rest.lost.tolist()) == ([1], [True])
        assert rest["A"].obs[0][0, 0, 1:].tolist() == [1.0, 0.0, -1.0]
        assert rest["A"].reward.tolist() == [[0.0]]
        assert not rest["A"].ended.any()
        assert pool.worker(1).ledger.discarded.total() == 1


@pytest.mark.parametrize(("name", "act", "cause", "words"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_worker_that_fails_in_the_first_reset_is_named_and_replaced(
    name: str, act: Act, cause: str, words: str
) -> None:
    with open_pool(once(RESET, act), num_workers=3) as pool:
        batch = pool.manager.reset()

        (failure,) = failures_of(pool.events)
        assert failure.cause == cause
        assert words.replace("step_s = 10", "reset_s = 20") in failure.text
        assert "while resetting env 1 (after 0 steps in this process)" in failure.text
        assert batch.env_ids.tolist() == [0, 1, 2]
        assert not batch.lost.any()
        assert pool.step().env_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("exit_status", "words"), [(Exit(None, 9), "killed by SIGKILL"), (Exit(0), "ended by itself with code 0")]
)
def test_a_worker_that_dies_idle_is_noticed_by_the_next_recv(exit_status: Exit, words: str) -> None:
    with open_pool(num_workers=2) as pool:
        pool.manager.reset()
        pool.backend.of(1).die(exit_status)

        partial = pool.step().copy()
        rest = pool.manager.recv(1)

        (failure,) = failures_of(pool.events)
        assert words in failure.text
        assert "while idle" in failure.text
        assert partial.env_ids.tolist() == [0]
        assert rest.lost.tolist() == [True]
        assert pool.worker(1).ledger.unbegun == 1


def test_with_the_budget_spent_the_failure_is_raised_again_and_again() -> None:
    with open_pool(once(step_of(1, 0), RAISES), restarts=NEVER) as pool:
        pool.manager.reset()
        pool.send()

        with pytest.raises(WorkerFailed, match="not replaced again") as first:
            pool.manager.recv()
        with pytest.raises(WorkerFailed) as second:
            pool.manager.recv()

        assert first.value is second.value
        assert first.value.worker_id == 1
        assert failures_of(pool.events)[0].restart_in_s is None


def test_with_the_budget_spent_a_drain_still_hands_out_what_the_others_answered() -> None:
    with open_pool(once(step_of(1, 0), RAISES), restarts=NEVER, num_workers=3) as pool:
        pool.manager.reset()
        pool.send()
        with pytest.raises(WorkerFailed):
            pool.manager.recv()

        batch = pool.manager.drain()

        assert batch.env_ids.tolist() == [0, 2]


def test_a_back_off_delays_the_replacement_and_nobody_else() -> None:
    policy = RestartPolicy(-1, -1, backoff_s=7.0)
    with open_pool(once(step_of(1, 0), DIES), restarts=policy) as pool:
        pool.manager.reset()
        pool.send()
        begun = pool.backend.clock()

        others = pool.manager.recv(1).env_ids.tolist()
        soon = pool.backend.clock() - begun
        for _ in range(100):
            pool.send(0, [0])
            pool.manager.recv(1)
        pool.manager.recv(1)
        back_after = pool.backend.clock() - begun

        assert others == [0]
        assert soon < 1.0
        assert 7.0 <= back_after < 8.0
        assert failures_of(pool.events)[0].restart_in_s == pytest.approx(7.0)


def test_only_the_failed_worker_restarts() -> None:
    with open_pool(once(step_of(3, 1), DIES), num_workers=8) as pool:
        pool.manager.reset()
        for _ in range(5):
            pool.step()

        assert [pool.worker(worker_id).generation for worker_id in range(8)] == [0, 0, 0, 1, 0, 0, 0, 0]


def test_a_replacement_that_cannot_start_costs_budget_and_says_why() -> None:
    with open_pool(once(step_of(1, 0), DIES), restarts=RestartPolicy(2, -1)) as pool:
        pool.manager.reset()
        pool.backend.refusals.extend([OSError(errno.EAGAIN, "no more processes")] * 2)
        pool.send()

        with pytest.raises(WorkerFailed, match="no more processes"):
            pool.manager.recv(2)

        assert pool.worker(1).restarts.n_restarts == 2


def test_a_replacement_that_cannot_start_at_first_starts_later() -> None:
    with open_pool(once(step_of(1, 0), DIES)) as pool:
        pool.manager.reset()
        pool.backend.refusals.append(OSError(errno.EAGAIN, "no more processes"))
        pool.send()

        batch = pool.manager.recv(2)

        assert batch.lost.tolist() == [False, True]
        assert "no more processes" in failures_of(pool.events)[1].text


# Being late.


@pytest.mark.parametrize("envs_per_worker", [1, 4])
def test_a_late_worker_is_noticed_at_its_deadline_and_not_much_later(envs_per_worker: int) -> None:
    with open_pool(once(step_of(1, 0), HANGS), envs_per_worker=envs_per_worker) as pool:
        pool.manager.reset()
        pool.send()
        begun = pool.backend.clock()

        pool.manager.recv()

        assert SHORT.step_s <= pool.backend.clock() - begun <= SHORT.step_s + 1.0
        assert failures_of(pool.events)[0].cause == "late"
        assert pool.backend.links[1].stacks_asked == 1


def test_a_slow_worker_is_not_late() -> None:
    with open_pool(lambda _: takes(9.9)) as pool:
        pool.manager.reset()
        for _ in range(3):
            pool.step()

        assert failures_of(pool.events) == []


def test_the_limit_counts_for_each_env_and_not_for_the_worker() -> None:
    def plan(moment: Moment) -> Act:
        return takes(9.0 if moment.phase is Phase.STEPPING else 0.1)

    with open_pool(plan, num_workers=1, envs_per_worker=20) as pool:
        pool.manager.reset()
        batch = pool.step()

        assert len(batch) == 20
        assert failures_of(pool.events) == []


def test_the_reset_after_an_episode_has_the_limit_of_a_reset() -> None:
    def plan(moment: Moment) -> Act:
        return takes(19.0 if moment.phase is Phase.RESETTING else 9.0)

    with open_pool(plan, episode_length=1) as pool:
        pool.manager.reset()
        for _ in range(3):
            pool.step()

        assert failures_of(pool.events) == []


def test_idleness_is_never_late() -> None:
    with open_pool() as pool:
        pool.manager.reset()
        pool.backend.let_pass(10_000.0)
        pool.step()
        pool.backend.let_pass(10_000.0)
        pool.step()

        assert failures_of(pool.events) == []


def test_an_answer_that_lies_there_is_not_late_however_late_it_is_looked_at() -> None:
    with open_pool() as pool:
        pool.manager.reset()
        pool.send()
        pool.backend.let_pass(10_000.0)

        batch = pool.manager.recv()

        assert len(batch) == 2
        assert failures_of(pool.events) == []


def test_a_new_action_for_a_worker_whose_last_answer_nobody_heard_yet_has_all_its_time() -> None:
    # The owner is away for longer than a step may take, and comes back to send to another env of the same worker.
    with open_pool(num_workers=1, envs_per_worker=2) as pool:
        pool.manager.reset()
        pool.send(0, [0])
        pool.backend.let_pass(60.0)
        pool.send(0, [1])

        batch = pool.manager.recv()

        assert batch.env_ids.tolist() == [0, 1]
        assert failures_of(pool.events) == []


def test_a_worker_is_not_late_the_moment_it_becomes_ready() -> None:
    # Between its word that it is ready and its first look at its bell, its control line still says nothing.
    with open_pool(once(step_of(1, 0), DIES)) as pool:
        pool.manager.reset()
        pool.send()
        for _ in range(200):
            pool.supervisor._next_check = 0.0  # a tick may come at any moment, so let it come at all of them
            try:
                pool.manager.recv(2, within_s=0.00001)
                break
            except Exception:
                continue

        assert [failure.cause for failure in failures_of(pool.events)] == ["died"]


def test_a_worker_that_answers_while_its_stack_is_asked_for_is_late_all_the_same() -> None:
    with open_pool(once(step_of(1, 0), takes(10.1))) as pool:
        pool.manager.reset()
        pool.send()

        batch = pool.manager.recv(2)

        assert [failure.cause for failure in failures_of(pool.events)] == ["late"]
        assert batch.lost.tolist() == [False, True]


# Nothing that was said is lost.


def test_what_a_worker_raised_is_heard_though_it_ended_long_before_anybody_listened() -> None:
    # With several envs it has rung before it failed, and both lie in the bell when the owner comes back.
    with open_pool(once(step_of(0, 0, env=1), RAISES), num_workers=1, envs_per_worker=3) as pool:
        pool.manager.reset()
        pool.send()
        pool.backend.let_pass(60.0)

        pool.manager.recv(3)

        (failure,) = failures_of(pool.events)
        assert failure.cause == "raised"
        assert "ValueError: planned" in failure.text


def test_rings_do_not_pile_up_in_the_bell() -> None:
    with open_pool(num_workers=1, envs_per_worker=8) as pool:
        pool.manager.reset()
        for _ in range(50):
            pool.send()
            pool.backend.let_pass(1.0)
            pool.manager.recv()

        assert len(pool.backend.of(0)._said) <= 8


@pytest.mark.parametrize("plan", [once(step_of(1, 0), DIES), once(step_of(1, 0), HANGS)])
def test_a_killed_worker_does_not_keep_the_manager_awake_until_it_is_reaped(plan: Plan) -> None:
    def slow_to_die(worker_id: int, generation: int) -> Nature:
        return Nature(kill_s=0.3)

    with open_pool(
        lambda moment: plan(moment) if moment.worker_id == 1 else takes(9.0),
        nature_of=slow_to_die,
    ) as pool:
        pool.manager.reset()
        pool.send()

        pool.manager.recv(2)  # the backend fails a manager that waits again and again while time stands still
        pool.step()

        assert pool.backend.links[1].reaped


# The hook.


def test_a_hook_that_raises_does_not_go_unnoticed() -> None:
    pool = make_pool()
    pool.supervisor._on_event = _raise_at_once

    with pytest.raises(ZeroDivisionError), pool.manager:
        pytest.fail("it opened")

    assert all(link.reaped for link in pool.backend.links)


def _raise_at_once(event: events.Event) -> None:
    raise ZeroDivisionError


def test_every_failure_is_an_event_with_its_whole_text() -> None:
    def plan(moment: Moment) -> Act:
        return DIES if moment.phase is Phase.STEPPING and moment.n == 1 else Act()

    with open_pool(plan, num_workers=4) as pool:
        pool.manager.reset()
        pool.step()
        pool.send()
        pool.manager.recv(4)

        happened = failures_of(pool.events)
        assert sorted(failure.worker_id for failure in happened) == [0, 1, 2, 3]
        assert all(failure.text.startswith("Worker ") for failure in happened)
        assert all("It printed: I am process" in failure.text for failure in happened)
