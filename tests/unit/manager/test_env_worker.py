"""What a manager knows of one worker: what it is doing, what it owes, and its account."""

from __future__ import annotations

import pytest

from stepherd.manager.env_worker import EnvWorker, Memory, WorkerState
from stepherd.manager.restarts import RestartHistory, RestartPolicy
from stepherd.process.exits import Exit
from stepherd.transport.control import Command, Control, Phase
from stepherd.transport.layout import Layout
from unit.manager.fake_backend import SPEC, FakeBackend


def a_worker(n_envs: int = 3) -> tuple[EnvWorker, Control]:
    """Return worker 2, which has envs 10 and up and is up, and its control lines."""
    worker = EnvWorker(2, range(10, 10 + n_envs), RestartHistory(RestartPolicy()))
    worker.begin_life(FakeBackend().spawn(2, 0), 5.0)
    layout = Layout.of(SPEC)
    buffer = memoryview(bytearray(layout.block_bytes(n_envs)))
    worker.memory = Memory(Control(buffer, n_envs), *layout.split(buffer, n_envs))
    return worker, worker.memory.control


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.IDLE, "idle"),
        (Phase.STEPPING, "stepping env 11 (step 2 in this process)"),
        (Phase.RESETTING, "resetting env 11 (after 1 steps in this process)"),
        (Phase.CLOSING, "closing env 11"),
    ],
)
def test_what_it_does_is_said_with_the_pools_number_of_the_env(phase: Phase, words: str) -> None:
    worker, control = a_worker()
    control.begin_step(1)
    control.finish_step(1, ended=False)
    control.begin_step(1)

    control.enter(phase, 1, 0)

    assert worker.doing() == words


def test_without_a_block_it_is_building_its_envs() -> None:
    worker, _ = a_worker()
    worker.memory = None

    assert worker.doing() == "building its envs"
    assert worker.owed() == []


def test_it_owes_what_it_was_asked_and_has_not_answered() -> None:
    worker, control = a_worker()
    for index in (0, 2):
        control.ask(index, Command.STEP)
    before = worker.owed()

    control.answer(0, control.request(0))

    assert before == [10, 12]
    assert worker.owed() == [12]


def test_a_step_without_an_outcome_is_discarded_if_it_was_begun_and_unbegun_if_not() -> None:
    worker, control = a_worker()
    worker.sent_to_env = [1, 1, 0]
    control.begin_step(0)

    worker.write_off(0, "the worker died")
    worker.write_off(1, "the worker died")

    assert worker.ledger.discarded == {"the worker died": 1}
    assert worker.ledger.unbegun == 1


def test_a_new_life_begins_with_a_clean_slate_and_the_old_account() -> None:
    worker, _ = a_worker()
    worker.ledger.sent = 7
    worker.exit, worker.sent_to_env = Exit(1), [3, 3, 3]
    worker.memory = None

    worker.begin_life(FakeBackend().spawn(2, 1), 9.0)

    assert (worker.generation, worker.state) == (1, WorkerState.SPAWNING)
    assert worker.exit is None
    assert worker.sent_to_env == [0, 0, 0]
    assert worker.spawned_at == 9.0
    assert worker.report().sent == 7


def test_a_worker_that_never_started_says_so() -> None:
    worker = EnvWorker(0, range(1), RestartHistory(RestartPolicy()))

    report = worker.report()

    assert (report.exit, report.pid, report.n_restarts) == ("never started", 0, 0)
