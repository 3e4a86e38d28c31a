"""The queue keeps every env in exactly one state, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stepherd.core.errors import EnvBusy
from stepherd.manager.step_queue import EnvState, StepQueue

N_ENVS = 5
ids = st.integers(0, N_ENVS - 1)


class AgainstAModel(RuleBasedStateMachine):
    """Does the same to a queue and to a plain dictionary."""

    @initialize()
    def begin(self) -> None:
        self.queue = StepQueue(N_ENVS)
        self.model = dict.fromkeys(range(N_ENVS), EnvState.FREE)

    @rule(env_id=ids)
    def ask(self, env_id: int) -> None:
        if self.model[env_id] in (EnvState.BUSY, EnvState.READY):
            with pytest.raises(EnvBusy, match=f"env {env_id} "):
                self.queue.check_sendable([env_id])
            return
        self.queue.check_sendable([env_id])
        if self.model[env_id] is EnvState.FREE:
            self.queue.mark_busy(env_id)
            self.model[env_id] = EnvState.BUSY

    @rule(env_id=ids)
    def answer(self, env_id: int) -> None:
        if self.model[env_id] not in (EnvState.BUSY, EnvState.RETURNING):
            with pytest.raises(AssertionError, match="unasked"):
                self.queue.mark_ready(env_id)
            return
        self.queue.mark_ready(env_id)
        self.model[env_id] = EnvState.READY if self.model[env_id] is EnvState.BUSY else EnvState.LOST

    @rule(env_id=ids)
    def fail(self, env_id: int) -> None:
        self.queue.mark_down(env_id)
        self.model[env_id] = EnvState.DOWN

    @precondition(lambda self: EnvState.DOWN in self.model.values())
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        down = [env_id for env_id, state in self.model.items() if state is EnvState.DOWN]
        env_id = data.draw(st.sampled_from(down))
        if data.draw(st.booleans()):
            self.queue.mark_returning(env_id)
            self.model[env_id] = EnvState.RETURNING
        else:
            self.queue.mark_free(env_id)
            self.model[env_id] = EnvState.FREE

    @rule()
    def take(self) -> None:
        answered = (EnvState.READY, EnvState.LOST)
        expected = [(i, state is EnvState.LOST) for i, state in self.model.items() if state in answered]

        assert self.queue.take() == expected
        self.model.update({i: EnvState.FREE for i, _ in expected})

    @invariant()
    def states_and_counts_agree(self) -> None:
        states = [self.queue.state(env_id) for env_id in range(N_ENVS)]
        counts = self.queue.counts()
        assert states == list(self.model.values())
        assert counts.free == states.count(EnvState.FREE)
        assert counts.busy == states.count(EnvState.BUSY)
        assert counts.ready == states.count(EnvState.READY) + states.count(EnvState.LOST)
        assert counts.down == states.count(EnvState.DOWN) + states.count(EnvState.RETURNING)
        assert [self.queue.is_asked(i) for i in range(N_ENVS)] == [
            state in (EnvState.BUSY, EnvState.RETURNING) for state in states
        ]
        assert counts.free + counts.busy + counts.ready + counts.down == len(self.queue)


TestAgainstAModel = AgainstAModel.TestCase
TestAgainstAModel.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


def test_answers_come_in_ascending_order_each_once() -> None:
    queue = StepQueue(4)
    for env_id in (2, 3):
        queue.mark_busy(env_id)
    queue.mark_returning(0)
    queue.mark_ready(3)
    queue.mark_ready(0)

    first, second = queue.take(), queue.take()

    assert first == [(0, True), (3, False)]
    assert second == []
    assert queue.state(2) is EnvState.BUSY


@pytest.mark.parametrize("env_id", [-1, 4, 1000])
def test_an_env_that_does_not_exist_is_told_which_do(env_id: int) -> None:
    with pytest.raises(EnvBusy, match=f"no env {env_id}; the pool has envs 0 to 3"):
        StepQueue(4).check_sendable([0, env_id])


def test_an_env_whose_worker_failed_takes_an_action_because_the_caller_could_not_know() -> None:
    queue = StepQueue(3)
    queue.mark_down(0)
    queue.mark_returning(1)
    queue.mark_returning(2)
    queue.mark_ready(2)

    queue.check_sendable([0, 1, 2])

    assert [queue.state(i) for i in range(3)] == [EnvState.DOWN, EnvState.RETURNING, EnvState.LOST]


def test_counts_are_said_in_words() -> None:
    queue = StepQueue(4)
    queue.mark_busy(1)
    queue.mark_busy(2)
    queue.mark_ready(2)
    queue.mark_down(3)

    assert str(queue.counts()) == "1 answered, 1 in flight, 1 being restarted, 1 without an action"
