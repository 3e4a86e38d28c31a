"""The pretended workers keep the protocol that real ones keep."""

from __future__ import annotations

import pickle

import pytest

from stepherd.core.deadline import Deadline
from stepherd.process.exits import Exit
from stepherd.transport.bell import BellBroken, Kind
from stepherd.transport.control import Phase
from stepherd.transport.notes import Closing, Failure, Job, read_note, write_note
from unit.manager.fake_backend import Act, FakeBackend, FakeLink, Moment, Nature, Outcome

JOB = write_note(Job("python:a:b", pickle.dumps({}), (0, 1), ()))


def heard(backend: FakeBackend, link: FakeLink, n: int) -> list[Kind]:
    """Wait for `n` messages of a worker and return their kinds."""
    kinds: list[Kind] = []
    deadline = Deadline.after(100.0, backend.clock)
    while len(kinds) < n and not deadline.passed:
        if link in backend.wait(deadline):
            kinds += [message.kind for message in [link.hear()] if message is not None]
    return kinds


def test_a_worker_builds_then_closes_then_ends() -> None:
    backend = FakeBackend()
    link = backend.spawn(0, 0)

    link.ring(Kind.JOB, JOB)
    link.ring(Kind.CLOSE)
    kinds = heard(backend, link, 3)
    backend.let_pass(1.0)

    assert kinds == [Kind.READY, Kind.CLOSED, Kind.GONE]
    assert link.look() == Exit(0)
    assert link.reap()


def test_time_passes_only_until_the_deadline() -> None:
    backend = FakeBackend()
    begun = backend.clock()

    assert backend.wait(Deadline.after(0.2, backend.clock)) == []
    assert backend.clock() == pytest.approx(begun + 0.2)


def test_a_manager_that_asks_again_and_again_without_letting_time_pass_is_caught() -> None:
    backend = FakeBackend()
    link = backend.spawn(0, 0)
    link.die()
    link._manager_listens = False  # its end alone keeps waking the wait

    with pytest.raises(AssertionError, match="time stands still"):
        heard(backend, link, 1_000_000)


def test_a_plan_makes_a_worker_raise_at_its_moment() -> None:
    def plan(moment: Moment) -> Act:
        return Act(then=Outcome.RAISES) if moment.phase is Phase.SPAWNING and moment.env == 1 else Act()

    backend = FakeBackend(plan)
    link = backend.spawn(0, 0)
    link.ring(Kind.JOB, JOB)
    backend.let_pass(1.0)

    message = link.hear()

    assert message is not None
    assert read_note(message.note, Failure).error == "ValueError: planned"
    assert link.look() == Exit(1)


def test_a_worker_that_hangs_ends_by_a_kill_only() -> None:
    backend = FakeBackend(lambda _: Act(then=Outcome.HANGS), lambda *_: Nature(sigterm_s=float("inf")))
    link = backend.spawn(0, 0)
    link.ring(Kind.JOB, JOB)
    link.terminate()
    backend.let_pass(100.0)
    survived = link.look() is None

    link.kill()
    backend.let_pass(1.0)

    assert survived
    assert link.look() == Exit(None, 9)


def test_a_worker_that_hung_up_cannot_be_rung() -> None:
    backend = FakeBackend(lambda _: Act(then=Outcome.HANGS_UP))
    link = backend.spawn(0, 0)
    link.ring(Kind.JOB, JOB)
    backend.let_pass(1.0)

    with pytest.raises(BellBroken):
        link.ring(Kind.CLOSE)
    assert link.look() is None


def test_a_worker_whose_manager_hangs_up_ends() -> None:
    backend = FakeBackend()
    link = backend.spawn(0, 0)

    link.hang_up()
    backend.let_pass(1.0)

    assert link.look() is not None


def test_a_close_that_raises_is_in_the_last_words() -> None:
    backend = FakeBackend(lambda m: Act(then=Outcome.RAISES) if m.phase is Phase.CLOSING else Act())
    link = backend.spawn(0, 0)
    link.ring(Kind.JOB, JOB)
    link.ring(Kind.CLOSE)
    backend.let_pass(1.0)
    link.hear()

    message = link.hear()

    assert message is not None
    assert read_note(message.note, Closing).problems == ("close() raised ValueError: planned",) * 2
