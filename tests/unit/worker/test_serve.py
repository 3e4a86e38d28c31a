"""The worker's loop answers what was asked, publishes data before numbers, and closes every env whatever they raise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from stepherd.spec.batch import EnvActions, EnvSteps
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec
from stepherd.testing.counting_env import pass_time
from stepherd.testing.faulty_envs import ERRORS
from stepherd.transport.bell import Bell, Kind
from stepherd.transport.block import Block
from stepherd.transport.control import Command, Control, Phase, control_bytes
from stepherd.transport.layout import Layout
from stepherd.worker.serve import RING_AT_LEAST_NS, close_envs, serve

SPEC = EnvSpec((BehaviorSpec("A", (ObservationSpec("obs", (), "int64"),), ActionSpec(branches=(9,))),))


class ScriptedEnv:
    """Observes how often it was called and does what the test says while it is."""

    def __init__(self, length: int = 10, during: Callable[[str], None] | None = None) -> None:
        self.spec = SPEC
        self.calls: list[str] = []
        self._length, self._during = length, during or (lambda _: None)
        self._t = 0

    def reset(self, seed: int | None, steps: EnvSteps) -> None:
        self._call(f"reset {seed}")
        steps["A"].obs[0][...] = len(self.calls)
        self._t = 0

    def step(self, actions: EnvActions, steps: EnvSteps) -> bool:
        self._call(f"step {int(actions['A'].discrete[0, 0])}")
        steps["A"].obs[0][...] = len(self.calls)
        self._t += 1
        return self._t >= self._length

    def next_episode(self, steps: EnvSteps) -> None:
        self._call("next episode")
        steps["A"].obs[0][...] = len(self.calls)
        self._t = 0

    def close(self) -> None:
        self._call("close")

    def _call(self, call: str) -> None:
        self.calls.append(call)
        self._during(call)


class Pool:
    """A worker's block and bell, and the manager's side of both, in one process."""

    def __init__(self, *envs: ScriptedEnv) -> None:
        self.envs = envs
        layout = Layout.of(SPEC)
        self.block = Block.create(layout.block_bytes(len(envs)), control_bytes(len(envs)))
        self.control = Control(self.block.buffer, len(envs))
        self.manager, socket_of_worker = Bell.pair()
        self.worker = Bell(socket_of_worker)
        hot, cold, actions = layout.split(self.block.buffer, len(envs))
        self.obs = layout.steps(hot, cold)["A"].obs[0]
        self.actions = layout.actions(actions)["A"].discrete

    def ask(self, index: int, command: Command, choice: int = 0, seed: int | None = None) -> None:
        self.actions[index] = choice
        self.control.ask(index, command, seed)
        self.manager.ring(Kind.RING)

    def serve_until_told_to_close(self) -> None:
        """Let the worker answer all that was asked so far."""
        self.manager.ring(Kind.CLOSE)
        serve(self.worker, self.block, self.control, self.envs)

    def rings(self) -> int:
        """Return how often the worker has rung, and take these rings."""
        n = 0
        while (message := self.manager.hear()) is not None:
            assert message.kind is Kind.RING
            n += 1
        return n


@contextlib.contextmanager
def a_pool(*envs: ScriptedEnv) -> Iterator[Pool]:
    """Give a pool of these envs, and free it."""
    pool = Pool(*envs)
    with contextlib.closing(pool.manager), contextlib.closing(pool.worker), contextlib.closing(pool.block):
        yield pool


def test_each_env_that_was_asked_answers_and_no_other() -> None:
    with a_pool(ScriptedEnv(), ScriptedEnv(), ScriptedEnv()) as pool:
        pool.ask(0, Command.RESET, seed=5)
        pool.ask(2, Command.STEP, 7)

        pool.serve_until_told_to_close()

        assert [env.calls for env in pool.envs] == [["reset 5"], [], ["step 7"]]
        assert [pool.control.done(i) == pool.control.request(i) for i in range(3)] == [True, True, True]
        assert [pool.control.done(i) for i in range(3)] == [1, 0, 1]
        assert [pool.control.begun(i) for i in range(3)] == [0, 0, 1]
        assert pool.control.phase()[0] is Phase.IDLE


def test_a_request_is_answered_once_however_often_the_bell_rings() -> None:
    with a_pool(ScriptedEnv()) as pool:
        pool.ask(0, Command.STEP, 1)
        for _ in range(5):
            pool.manager.ring(Kind.RING)

        pool.serve_until_told_to_close()

        assert pool.envs[0].calls == ["step 1"]
        assert pool.rings() == 1


def test_the_data_is_there_before_the_number_that_says_so() -> None:
    seen: list[tuple[int, int]] = []
    with a_pool(ScriptedEnv()) as pool:
        env = ScriptedEnv(during=lambda _: seen.append((pool.control.request(0), pool.control.done(0))))
        pool.envs = (env,)
        pool.ask(0, Command.STEP)

        pool.serve_until_told_to_close()

        assert seen == [(1, 0)]
        assert pool.control.done(0) == 1
        assert pool.obs[0].tolist() == [1]


def test_the_end_of_an_episode_is_followed_by_the_next_within_one_answer() -> None:
    with a_pool(ScriptedEnv(length=1)) as pool:
        pool.ask(0, Command.STEP, 3)

        pool.serve_until_told_to_close()

        assert pool.envs[0].calls == ["step 3", "next episode"]
        assert (pool.control.begun(0), pool.control.finished(0)) == (1, 1)
        assert pool.obs[0].tolist() == [2]


def test_the_control_line_says_what_the_worker_does_while_it_does_it() -> None:
    seen: list[tuple[str, Phase, int, int, int]] = []
    with a_pool(ScriptedEnv(), ScriptedEnv()) as pool:

        def during(call: str) -> None:
            phase, index, _ = pool.control.phase()
            seen.append((call, phase, index, pool.control.begun(1), pool.control.finished(1)))

        pool.envs = (ScriptedEnv(), ScriptedEnv(length=1, during=during))
        pool.ask(1, Command.RESET, seed=3)
        pool.serve_until_told_to_close()
        pool.ask(1, Command.STEP, 4)
        pool.serve_until_told_to_close()
        close_envs(pool.envs, pool.control)

    assert seen == [
        ("reset 3", Phase.RESETTING, 1, 0, 0),
        ("step 4", Phase.STEPPING, 1, 1, 0),
        ("next episode", Phase.RESETTING, 1, 1, 1),
        ("close", Phase.CLOSING, 1, 1, 1),
    ]


def test_fast_envs_are_announced_with_one_ring() -> None:
    with a_pool(ScriptedEnv(), ScriptedEnv(), ScriptedEnv()) as pool:
        for index in range(3):
            pool.control.ask(index, Command.STEP)
        pool.manager.ring(Kind.RING)

        pool.serve_until_told_to_close()

        assert 1 <= pool.rings() <= 3  # one, unless this machine held us up in between


def test_slow_envs_are_announced_one_by_one() -> None:
    def slow(_: str) -> None:
        pass_time(3 * RING_AT_LEAST_NS / 1e9)

    with a_pool(*(ScriptedEnv(during=slow) for _ in range(3))) as pool:
        for index in range(3):
            pool.control.ask(index, Command.STEP)
        pool.manager.ring(Kind.RING)

        pool.serve_until_told_to_close()

        assert pool.rings() == 3


def test_nothing_asked_is_nothing_announced() -> None:
    with a_pool(ScriptedEnv()) as pool:
        pool.manager.ring(Kind.RING)

        pool.serve_until_told_to_close()

        assert pool.rings() == 0


def test_the_loop_ends_with_the_manager() -> None:
    with a_pool(ScriptedEnv()) as pool:
        pool.manager.close()

        serve(pool.worker, pool.block, pool.control, pool.envs)

        assert pool.envs[0].calls == []


def test_what_an_env_raises_goes_up_and_earlier_answers_stand() -> None:
    def fail(call: str) -> None:
        raise KeyboardInterrupt

    with a_pool(ScriptedEnv(), ScriptedEnv(during=fail), ScriptedEnv()) as pool:
        for index in range(3):
            pool.control.ask(index, Command.STEP)
        pool.manager.ring(Kind.RING)

        with pytest.raises(KeyboardInterrupt):
            pool.serve_until_told_to_close()

        assert [pool.control.done(index) for index in range(3)] == [1, 0, 0]
        assert [pool.control.begun(index) for index in range(3)] == [1, 1, 0]
        assert pool.control.phase()[:2] == (Phase.STEPPING, 1)


@pytest.mark.parametrize("error", sorted(ERRORS))
def test_every_env_is_closed_also_after_one_has_raised_anything(error: str) -> None:
    def fail(_: str) -> None:
        raise ERRORS[error]()

    envs = [ScriptedEnv(), ScriptedEnv(during=fail), ScriptedEnv()]
    with a_pool(*envs) as pool:
        problems = close_envs(envs, pool.control)

    assert [env.calls for env in envs] == [["close"]] * 3
    assert len(problems) == 1
    assert problems[0].startswith("close() raised ")
    assert len(problems[0]) < 100_000
