"""The ladder asks, sends SIGTERM, kills and reaps, for all children together and within one bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd.core.deadline import Deadline
from stepherd.process.exits import Exit
from stepherd.process.shutdown import end_all
from unit.core.fake_clock import FakeClock

NEVER = None
GRACE_S, KILL_S = 5.0, 3.0
BOUND_S = 2 * GRACE_S + KILL_S


@dataclass(eq=False)
class FakeChild:
    """Ends so many seconds after each kind of request, or never because of it."""

    clock: FakeClock
    after_ask_s: float | None = NEVER
    after_sigterm_s: float | None = NEVER
    after_kill_s: float | None = 0.0
    ended_before: bool = False
    ends_at: float = float("inf")
    heard: list[str] = field(default_factory=list)
    reaped: bool = False

    def __post_init__(self) -> None:
        if self.ended_before:
            self.ends_at = self.clock.now

    def look(self) -> Exit | None:
        return Exit(0) if self.clock.now >= self.ends_at else None

    def ask(self) -> None:
        self._take("ask", self.after_ask_s)

    def terminate(self) -> None:
        self._take("sigterm", self.after_sigterm_s)

    def kill(self) -> None:
        self._take("kill", self.after_kill_s)

    def reap(self) -> bool:
        assert not self.reaped, "reaped twice"
        self.reaped = self.look() is not None
        return self.reaped

    def abandon(self) -> None:
        assert not self.reaped, "abandoned after it was reaped"
        self.heard.append("abandon")

    def _take(self, request: str, after_s: float | None) -> None:
        assert not self.reaped, "a signal to a pid that is not ours any more"
        self.heard.append(request)
        if after_s is not None:
            self.ends_at = min(self.ends_at, self.clock.now + after_s)


class Ladder:
    """Runs `end_all` over fake children; its wait moves the clock to the next end, or to the deadline."""

    def __init__(self, clock: FakeClock, children: Sequence[FakeChild], interrupt_at: int | None = None) -> None:
        self.clock, self.children = clock, children
        self.n_waits = 0
        self._interrupt_at = interrupt_at

    def run(self, grace_s: float = GRACE_S, kill_s: float = KILL_S) -> list[FakeChild]:
        return end_all(
            self.children, ask=FakeChild.ask, wait=self._wait, grace_s=grace_s, kill_s=kill_s, clock=self.clock
        )

    def _wait(self, deadline: Deadline) -> None:
        self.n_waits += 1
        assert self.n_waits < 1000, "it spins"
        if self.n_waits == self._interrupt_at:
            raise KeyboardInterrupt
        ends = [child.ends_at for child in self.children if child.ends_at > self.clock.now]
        self.clock.now = min([deadline.at, *ends])


@pytest.mark.parametrize(
    ("make", "heard", "took_s"),
    [
        (lambda clock: FakeChild(clock, ended_before=True), [], 0.0),
        (lambda clock: FakeChild(clock, after_ask_s=1.0), ["ask"], 1.0),
        (lambda clock: FakeChild(clock, after_ask_s=4.999), ["ask"], 4.999),
        (lambda clock: FakeChild(clock, after_sigterm_s=2.0), ["ask", "sigterm"], GRACE_S + 2.0),
        (lambda clock: FakeChild(clock, after_ask_s=7.0), ["ask", "sigterm"], 7.0),
        (lambda clock: FakeChild(clock), ["ask", "sigterm", "kill"], 2 * GRACE_S),
        (lambda clock: FakeChild(clock, after_kill_s=1.0), ["ask", "sigterm", "kill"], 2 * GRACE_S + 1.0),
    ],
    ids=["ended", "asked", "asked-late", "sigterm", "asked-too-late", "kill", "kill-slow"],
)
def test_a_child_is_pressed_only_as_hard_as_it_needs(
    make: Callable[[FakeClock], FakeChild], heard: list[str], took_s: float
) -> None:
    clock = FakeClock()
    child = make(clock)
    begun = clock.now

    leaked = Ladder(clock, [child]).run()

    assert leaked == []
    assert child.heard == heard
    assert child.reaped
    assert clock.now - begun == pytest.approx(took_s)


def test_who_cannot_be_killed_is_abandoned_and_returned() -> None:
    clock = FakeClock()
    stuck, fine = FakeChild(clock, after_kill_s=NEVER), FakeChild(clock, after_ask_s=0.0)
    begun = clock.now

    leaked = Ladder(clock, [stuck, fine]).run()

    assert leaked == [stuck]
    assert stuck.heard == ["ask", "sigterm", "kill", "abandon"]
    assert fine.reaped
    assert clock.now - begun == pytest.approx(BOUND_S)


def test_the_bound_is_the_same_for_a_hundred_children_as_for_one() -> None:
    clock = FakeClock()
    children = [FakeChild(clock, after_kill_s=NEVER) for _ in range(100)]
    begun = clock.now

    leaked = Ladder(clock, children).run()

    assert leaked == children
    assert clock.now - begun == pytest.approx(BOUND_S)


def test_all_children_are_asked_before_any_is_waited_for() -> None:
    clock = FakeClock()
    children = [FakeChild(clock, after_ask_s=4.0) for _ in range(10)]

    Ladder(clock, children).run()

    assert all(child.heard == ["ask"] for child in children)
    assert clock.now == pytest.approx(1004.0)


def test_without_a_grace_everything_happens_in_one_breath() -> None:
    clock = FakeClock()
    child = FakeChild(clock, after_ask_s=1.0, after_sigterm_s=1.0)

    leaked = Ladder(clock, [child]).run(grace_s=0.0)

    assert leaked == []
    assert child.heard == ["ask", "sigterm", "kill"]
    assert clock.now == 1000.0


def test_nobody_to_end_takes_no_time() -> None:
    clock = FakeClock()
    ladder = Ladder(clock, [])

    assert ladder.run() == []
    assert clock.now == 1000.0


@pytest.mark.parametrize("interrupt_at", [1, 2])
def test_an_interrupt_kills_and_reaps_all_at_once_and_then_goes_on(interrupt_at: int) -> None:
    clock = FakeClock()
    children = [FakeChild(clock) for _ in range(3)]
    begun = clock.now

    with pytest.raises(KeyboardInterrupt):
        Ladder(clock, children, interrupt_at).run()

    assert all(child.heard[-1] == "kill" for child in children)
    assert all(child.reaped for child in children)
    assert clock.now - begun <= GRACE_S + KILL_S


def test_an_interrupt_while_the_killed_are_waited_for_still_reaps_whom_it_can() -> None:
    clock = FakeClock()
    slow, quick = FakeChild(clock, after_kill_s=1.0), FakeChild(clock, after_kill_s=0.0)

    with pytest.raises(KeyboardInterrupt):
        Ladder(clock, [slow, quick], interrupt_at=4).run()

    assert quick.reaped
    assert slow.heard[-1] == "abandon"


def test_a_request_that_raises_kills_all_and_goes_on() -> None:
    clock = FakeClock()
    children = [FakeChild(clock) for _ in range(2)]

    def ask(child: FakeChild) -> None:
        raise RuntimeError("no paper")

    with pytest.raises(RuntimeError, match="no paper"):
        end_all(children, ask=ask, wait=Ladder(clock, children)._wait, grace_s=1.0, kill_s=1.0, clock=clock)

    assert all(child.heard == ["kill"] and child.reaped for child in children)


some_seconds = st.none() | st.floats(0.0, 20.0)


@settings(deadline=None, max_examples=200)
@given(
    manners=st.lists(st.tuples(some_seconds, some_seconds, some_seconds, st.booleans()), max_size=12),
    grace_s=st.floats(0.0, 6.0),
    kill_s=st.floats(0.001, 6.0),
)
def test_whatever_children_do_the_bound_holds_and_each_is_reaped_or_returned(
    manners: list[tuple[float | None, float | None, float | None, bool]], grace_s: float, kill_s: float
) -> None:
    clock = FakeClock()
    children = [FakeChild(clock, *manner) for manner in manners]
    begun = clock.now

    leaked = Ladder(clock, children).run(grace_s, kill_s)

    assert clock.now - begun <= 2 * grace_s + kill_s + 1e-6
    assert leaked == [child for child in children if not child.reaped]
    assert all("abandon" in child.heard for child in leaked)
    for child in children:
        assert child.heard == ["ask", "sigterm", "kill", "abandon"][: len(child.heard)]
