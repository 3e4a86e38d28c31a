"""Every action ends as exactly one of: delivered, discarded with a cause, never begun."""

from __future__ import annotations

import pytest

from stepherd.manager.env_worker import EnvWorker, Memory
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.requests import Requests
from stepherd.manager.restarts import RestartHistory, RestartPolicy
from stepherd.manager.step_queue import EnvState, StepQueue
from stepherd.transport.control import Command, Control
from stepherd.transport.layout import Layout
from unit.manager.fake_backend import SPEC, FakeBackend


class Pool:
    """Two workers of two envs each that do nothing by themselves."""

    def __init__(self) -> None:
        self.backend = FakeBackend()
        self.workers = [EnvWorker(i, range(2 * i, 2 * i + 2), RestartHistory(RestartPolicy())) for i in range(2)]
        layout = Layout.of(SPEC)
        for worker in self.workers:
            worker.begin_life(self.backend.spawn(worker.worker_id, 0), 0.0)
            buffer = memoryview(bytearray(layout.block_bytes(2)))
            worker.memory = Memory(Control(buffer, 2), *layout.split(buffer, 2))
        self.queue = StepQueue(4)
        self.requests = Requests(self.workers, self.queue, RecyclePolicy())

    def ask(self, *env_ids: int, command: Command = Command.STEP, now: float = 1.0, returning: bool = False) -> None:
        """Ask some envs for a command."""
        self.requests.ask(env_ids, command, lambda env_id: 100 + env_id, now, returning=returning)

    def answer(self, *env_ids: int) -> None:
        """Let some envs answer what they were asked."""
        for env_id in env_ids:
            control, index = self.control(env_id), env_id % 2
            if control.command(index)[0] is Command.STEP:
                control.begin_step(index)
            control.answer(index, control.request(index))

    def control(self, env_id: int) -> Control:
        """Return the control lines of an env's worker."""
        memory = self.workers[env_id // 2].memory
        assert memory is not None
        return memory.control


def test_a_request_reaches_the_env_it_is_for_with_its_seed_and_rings_each_worker_once() -> None:
    pool = Pool()

    pool.ask(0, 1, 3, command=Command.RESET)

    assert [pool.control(env_id).request(env_id % 2) for env_id in range(4)] == [1, 1, 0, 1]
    assert pool.control(3).command(1) == (Command.RESET, 103)
    assert [len(link._heard) for link in pool.backend.links] == [1, 1]
    assert [pool.queue.state(env_id) for env_id in range(4)] == [
        EnvState.BUSY,
        EnvState.BUSY,
        EnvState.FREE,
        EnvState.BUSY,
    ]


def test_only_steps_are_counted_as_sent() -> None:
    pool = Pool()

    pool.ask(0, command=Command.RESET)
    pool.ask(1, 2)

    assert [worker.ledger.sent for worker in pool.workers] == [1, 1]
    assert [worker.sent_to_env for worker in pool.workers] == [[0, 1], [1, 0]]


def test_a_worker_that_owes_something_keeps_the_time_it_was_first_asked() -> None:
    pool = Pool()

    pool.ask(0, now=1.0)
    pool.ask(1, now=2.0)
    owing = pool.workers[0].asked_at
    pool.answer(0, 1)
    pool.requests.mark_answers(pool.workers[0])
    pool.requests.take(delivered=True)
    pool.ask(0, now=3.0)

    assert owing == 1.0
    assert pool.workers[0].asked_at == 3.0


def test_an_answer_is_taken_once_and_counted_as_delivered_or_discarded() -> None:
    pool = Pool()
    pool.ask(0, 1, 2)
    pool.answer(0, 2)
    for worker in pool.workers:
        pool.requests.mark_answers(worker)

    first = pool.requests.take(delivered=True)
    pool.answer(1)
    pool.requests.mark_answers(pool.workers[0])
    second = pool.requests.take(delivered=False)

    assert (first, second) == ([(0, False), (2, False)], [(1, False)])
    assert [worker.ledger.delivered for worker in pool.workers] == [1, 1]
    assert pool.workers[0].ledger.discarded == {"a reset came before its outcome was taken": 1}


def test_the_answer_to_a_reset_is_no_step() -> None:
    pool = Pool()
    pool.ask(0, command=Command.RESET, returning=True)
    pool.answer(0)
    pool.requests.mark_answers(pool.workers[0])

    assert pool.requests.take(delivered=True) == [(0, True)]
    assert pool.workers[0].ledger.delivered == pool.workers[0].ledger.sent == 0


def test_a_refused_action_was_sent_and_never_begun() -> None:
    pool = Pool()

    pool.requests.refuse([0, 1, 3])

    assert [(w.ledger.sent, w.ledger.unbegun) for w in pool.workers] == [(2, 2), (1, 1)]


@pytest.mark.parametrize("keep_answers", [False, True])
def test_what_a_failed_worker_held_is_written_off_by_how_far_it_got(keep_answers: bool) -> None:
    pool = Pool()
    pool.ask(0, 1)
    pool.answer(0)  # unheard: its last ring never came

    pool.requests.write_off(pool.workers[0], "the worker died", keep_answers=keep_answers)

    ledger = pool.workers[0].ledger
    assert (ledger.discarded.total(), ledger.unbegun) == (0 if keep_answers else 1, 1)
    assert pool.queue.state(0) is (EnvState.READY if keep_answers else EnvState.DOWN)
    assert pool.queue.state(1) is EnvState.DOWN
    assert ledger.sent == ledger.delivered + ledger.discarded.total() + ledger.unbegun + keep_answers


def test_a_worker_without_a_block_holds_nothing() -> None:
    pool = Pool()
    pool.workers[0].memory = None

    pool.requests.write_off(pool.workers[0], "the worker died", keep_answers=False)

    assert pool.queue.state(0) is EnvState.FREE


def test_a_worker_that_cannot_be_rung_is_asked_all_the_same_and_its_end_noticed_elsewhere() -> None:
    pool = Pool()
    pool.backend.links[0].die()

    pool.ask(0)

    assert pool.queue.state(0) is EnvState.BUSY
    assert pool.workers[0].owed() == [0]
