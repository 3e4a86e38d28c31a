"""Which limit a worker is under follows from its state, what it owes and what its control lines say."""

from __future__ import annotations

import pytest

from stepherd.core.deadline import Timeouts
from stepherd.manager import failures
from stepherd.manager.env_worker import EnvWorker, Memory, WorkerState
from stepherd.manager.lateness import EXIT_KNOWN_S, STACK_S, Limit, limit_of
from stepherd.manager.restarts import RestartHistory, RestartPolicy
from stepherd.transport.control import Command, Control, Phase
from stepherd.transport.layout import Layout
from unit.manager.fake_backend import SPEC, FakeBackend

TIMEOUTS = Timeouts(spawn_s=1.0, reset_s=2.0, step_s=3.0, grace_s=4.0)


def a_worker(state: WorkerState) -> tuple[EnvWorker, Control]:
    """Return a worker of two envs in a state, spawned at 10, asked at 20 and going since 30; and its control lines."""
    worker = EnvWorker(0, range(2), RestartHistory(RestartPolicy()))
    worker.begin_life(FakeBackend().spawn(0, 0), 10.0)
    layout = Layout.of(SPEC)
    buffer = memoryview(bytearray(layout.block_bytes(2)))
    worker.memory = Memory(Control(buffer, 2), *layout.split(buffer, 2))
    worker.state, worker.asked_at, worker.going_since = state, 20.0, 30.0
    return worker, worker.memory.control


@pytest.mark.parametrize(
    ("state", "limit"),
    [
        (WorkerState.SPAWNING, Limit("spawn_s", 1.0, 10.0)),
        (WorkerState.UP, None),
        (WorkerState.GOING, Limit("", EXIT_KNOWN_S, 30.0)),
        (WorkerState.LEAVING, Limit("grace_s", 4.0, 30.0)),
        (WorkerState.DOWN, None),
    ],
)
def test_each_state_has_its_limit(state: WorkerState, limit: Limit | None) -> None:
    worker, _ = a_worker(state)

    assert limit_of(worker, [Command.STEP] * 2, TIMEOUTS) == limit


def test_a_worker_given_up_has_a_moment_to_write_its_stack() -> None:
    worker, _ = a_worker(WorkerState.GOING)
    worker.verdict = failures.late("step_s", 3.0, 3.1)

    assert limit_of(worker, [Command.STEP] * 2, TIMEOUTS) == Limit("", STACK_S, 30.0)


@pytest.mark.parametrize(
    ("phase", "asked", "expected"),
    [
        (Phase.STEPPING, Command.STEP, Limit("step_s", 3.0, 25.0)),
        (Phase.RESETTING, Command.STEP, Limit("reset_s", 2.0, 25.0)),  # the reset that follows the end of an episode
        (Phase.RESETTING, Command.RESET, Limit("reset_s", 2.0, 25.0)),
        (Phase.IDLE, Command.STEP, Limit("step_s", 3.0, 25.0)),
        (Phase.IDLE, Command.RESET, Limit("reset_s", 2.0, 25.0)),
        (Phase.SPAWNING, Command.RESET, Limit("reset_s", 2.0, 25.0)),
    ],
)
def test_a_worker_that_owes_an_answer_is_under_the_limit_of_what_it_does(
    phase: Phase, asked: Command, expected: Limit
) -> None:
    worker, control = a_worker(WorkerState.UP)
    control.ask(1, asked)

    control.enter(phase, 1, 25 * 10**9)

    assert limit_of(worker, [Command.STEP, asked], TIMEOUTS) == expected


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.STEPPING, Phase.RESETTING])
def test_no_limit_counts_from_before_it_was_asked(phase: Phase) -> None:
    worker, control = a_worker(WorkerState.UP)
    control.ask(0, Command.STEP)

    control.enter(phase, 0, 5 * 10**9)
    limit = limit_of(worker, [Command.STEP] * 2, TIMEOUTS)

    assert limit is not None
    assert limit.since == 20.0


def test_what_was_answered_has_no_limit_whether_anybody_has_heard_it_or_not() -> None:
    worker, control = a_worker(WorkerState.UP)
    control.ask(0, Command.STEP)
    control.enter(Phase.STEPPING, 0, 25 * 10**9)

    control.answer(0, control.request(0))

    assert limit_of(worker, [Command.STEP] * 2, TIMEOUTS) is None


def test_a_limit_is_due_when_its_seconds_are_over() -> None:
    assert Limit("step_s", 3.0, 25.0).due == 28.0
