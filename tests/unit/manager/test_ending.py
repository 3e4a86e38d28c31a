"""How a pool ends: nobody is waited for beyond the bound, and nothing a worker said or did is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stepherd.core.deadline import Deadline
from stepherd.core.events import WorkerLeaked
from stepherd.process.exits import Exit
from stepherd.transport.control import Phase
from unit.manager.fake_backend import NEVER, Act, FakeLink, Moment, Nature, Outcome
from unit.manager.fake_pool import DIES, HANGS, RAISES, SHORT, changed, make_pool, once, open_pool, step_of, takes

CLOSE = Moment(1, 0, Phase.CLOSING, 0, 0)


@pytest.mark.parametrize(
    ("act", "nature", "exit_in_words", "problem", "bound_s"),
    [
        (RAISES, Nature(), "exited with code 0", "close() raised ValueError: planned", 0.1),
        (takes(3.0), Nature(), "exited with code 0", None, 3.1),
        (HANGS, Nature(), "killed by SIGTERM", "it did not end when asked, while closing env 1: killed by SIG", 5.1),
        (HANGS, Nature(sigterm_s=NEVER), "killed by SIGKILL", "it did not end when asked, while closing env 1", 10.1),
        (Act(), Nature(ends_s=4.0), "exited with code 0", None, 4.1),
        (Act(), Nature(ends_s=NEVER), "killed by SIGTERM", "its envs were closed, but its process did not end", 5.1),
        (DIES, Nature(), "exited with code 1", "it ended badly, while closing env 1: exited with code 1", 0.1),
        (changed(DIES, exit=Exit(0)), Nature(), "exited with code 0", "it ended badly, while closing env 1", 0.1),
        (changed(DIES, exit=Exit(None, 11)), Nature(), "killed by SIGSEGV", "while closing env 1: killed by SIGS", 0.1),
        (HANGS, Nature(sigterm_s=NEVER, kill_s=NEVER), "still runs", "it could not be ended while closing env 1", 13.1),
    ],
    ids=["raises", "slow", "hangs", "deaf", "lingers", "stays", "exits-1", "exits-0", "crashes", "cannot-die"],
)
def test_a_worker_that_does_not_end_well_is_remarked_within_the_bound(
    act: Act, nature: Nature, exit_in_words: str, problem: str | None, bound_s: float
) -> None:
    with open_pool(once(CLOSE, act), nature_of=lambda worker_id, _: nature if worker_id else Nature()) as pool:
        pool.manager.reset()
        pool.step()

    report = pool.manager.close()

    assert report.took_s <= bound_s
    assert exit_in_words in report.workers[1].exit
    assert [problem in found for found in report.workers[1].problems if problem] == ([True] if problem else [])
    assert len(report.workers[1].problems) == (problem is not None)
    assert report.workers[0].problems == ()


def test_who_cannot_be_ended_is_leaked_and_an_event_says_so() -> None:
    unkillable = Nature(sigterm_s=NEVER, kill_s=NEVER)
    with open_pool(once(CLOSE, HANGS), nature_of=lambda worker_id, _: unkillable if worker_id else Nature()) as pool:
        pool.manager.reset()

    report = pool.manager.close()

    assert [worker.worker_id for worker in report.leaked] == [1]
    assert pool.events[-1] == WorkerLeaked(1, 101)


def test_a_worker_killed_earlier_that_will_not_die_counts_into_the_same_bound() -> None:
    def nature_of(worker_id: int, generation: int) -> Nature:
        return Nature(sigterm_s=NEVER, kill_s=NEVER) if (worker_id, generation) == (1, 0) else Nature()

    with open_pool(once(step_of(1, 0), HANGS), nature_of=nature_of) as pool:
        pool.manager.reset()
        pool.send()
        pool.manager.recv(2)

    report = pool.manager.close()

    assert report.took_s <= SHORT.close_s
    assert pool.backend.links[1].abandoned
    assert report.workers[1].exit == "exited with code 0"


@pytest.mark.parametrize("n", [1, 8])
def test_last_words_behind_rings_that_nobody_heard_are_not_lost(n: int) -> None:
    with open_pool(lambda m: RAISES if m.phase is Phase.CLOSING else Act(), num_workers=1, envs_per_worker=n) as pool:
        pool.manager.reset()
        pool.send()  # and never taken: the rings lie in the bell when the close begins

    report = pool.manager.close()

    assert len(report.workers[0].problems) == n
    assert report.discarded == n


def test_an_env_that_raised_just_before_the_close_is_in_the_report() -> None:
    with open_pool(once(step_of(1, 0), RAISES)) as pool:
        pool.manager.reset()
        pool.send()
        pool.backend.let_pass(1.0)

    report = pool.manager.close()

    assert report.workers[1].error is not None
    assert "ValueError: planned\nTraceback: planned" in report.workers[1].error
    assert report.workers[1].problems == ()
    assert report.workers[1].discarded == {"it was not taken before the close": 1}


def test_an_env_that_raises_during_the_close_is_in_the_report() -> None:
    raises_late = changed(RAISES, takes_s=2.0)
    with open_pool(once(step_of(1, 0), raises_late)) as pool:
        pool.manager.reset()
        pool.send()

    report = pool.manager.close()

    assert report.workers[1].error is not None
    assert "while stepping env 1" in report.workers[1].error


def test_a_worker_that_died_before_it_was_asked_is_not_blamed_for_the_close() -> None:
    with open_pool() as pool:
        pool.manager.reset()
        pool.backend.of(1).die()

    report = pool.manager.close()

    (problem,) = report.workers[1].problems
    assert problem.startswith("it had ended before it was asked to, while idle: killed by SIGKILL")


def test_a_worker_restarted_earlier_is_remarked_like_any_other() -> None:
    plan = once(step_of(1, 0), DIES)
    with open_pool(lambda m: HANGS if m == Moment(1, 1, Phase.CLOSING, 0, 0) else plan(m)) as pool:
        pool.manager.reset()
        pool.send()
        pool.manager.recv(2)

    report = pool.manager.close()

    assert report.workers[1].n_restarts == 1
    assert len(report.workers[1].problems) == 1


@pytest.mark.parametrize("takes_s", [1.0, 100.0])
def test_workers_that_still_build_their_envs_are_ended_in_time(takes_s: float) -> None:
    def plan(moment: Moment) -> Act:
        if moment.phase is not Phase.SPAWNING:
            return Act()
        return RAISES if moment.worker_id == 0 else takes(takes_s)

    pool = make_pool(plan, num_workers=3)
    begun = pool.backend.clock()

    with pytest.raises(Exception, match="planned"), pool.manager:
        pytest.fail("it opened")

    assert pool.backend.clock() - begun <= SHORT.close_s
    assert all(link.reaped for link in pool.backend.links)


@pytest.mark.parametrize("interrupt_at", [1, 2, 3])
def test_ctrl_c_in_the_middle_of_a_close_kills_all_and_the_report_is_still_there(interrupt_at: int) -> None:
    pool = make_pool(lambda m: HANGS if m.phase is Phase.CLOSING else Act(), num_workers=3)
    pool.manager.__enter__()
    pool.manager.reset()
    waits, wait = iter(range(1, 1000)), pool.backend.wait

    def interrupted(deadline: Deadline) -> Sequence[FakeLink]:
        if next(waits) == interrupt_at:
            raise KeyboardInterrupt
        return wait(deadline)

    pool.backend.wait = interrupted  # type: ignore[method-assign]  # somebody presses Ctrl-C in it
    with pytest.raises(KeyboardInterrupt):
        pool.manager.close()

    report = pool.manager.close()
    assert [worker.exit.startswith("killed by SIG") for worker in report.workers] == [True] * 3
    assert all(link.reaped for link in pool.backend.links)
    assert report.leaked == ()


def test_hundreds_of_workers_end_as_fast_as_one() -> None:
    with open_pool(lambda m: HANGS if m.phase is Phase.CLOSING else Act(), num_workers=200) as pool:
        pass

    assert pool.manager.close().took_s <= SHORT.grace_s + 0.1


def test_a_worker_that_hung_up_and_lives_on_is_ended() -> None:
    with open_pool(once(step_of(1, 0), Act(then=Outcome.HANGS_UP))) as pool:
        pool.manager.reset()
        pool.send()

    assert "SIGTERM" in pool.manager.close().workers[1].exit
