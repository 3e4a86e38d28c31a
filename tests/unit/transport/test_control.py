"""Each number of a control line has one writer, is read by the other side, and disturbs no other number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd.transport.control import LINE_WORDS, NO_SEED, Command, Control, Phase, control_bytes


def fresh(n_envs: int) -> tuple[bytearray, Control]:
    """Return zeroed memory and its control lines."""
    memory = bytearray(control_bytes(n_envs))
    return memory, Control(memoryview(memory), n_envs)


def test_fresh_memory_says_that_nothing_has_happened() -> None:
    _, control = fresh(3)

    assert control.phase() == (Phase.SPAWNING, 0, 0.0)
    assert control.busy_s() == 0.0
    for env in range(3):
        assert control.request(env) == control.done(env) == control.begun(env) == control.finished(env) == 0


@pytest.mark.parametrize("seed", [None, 0, 1, 2**31 - 1, 2**63 - 1])
@pytest.mark.parametrize("command", list(Command))
def test_a_command_and_its_seed_arrive(command: Command, seed: int | None) -> None:
    _, control = fresh(2)

    control.ask(1, command, seed)

    assert control.command(1) == (command, seed)
    assert (control.request(1), control.done(1)) == (1, 0)
    assert control.request(0) == 0


def test_no_seed_is_no_seed_that_anybody_can_give() -> None:
    assert NO_SEED >= 2**63


def test_an_answer_belongs_to_the_last_request_and_to_no_older_one() -> None:
    _, control = fresh(1)

    for number in range(1, 5):
        control.ask(0, Command.STEP)
        open_before = control.done(0) != control.request(0)
        control.answer(0, control.request(0))

        assert open_before
        assert control.done(0) == control.request(0) == number


def test_steps_are_counted_when_they_begin_and_when_they_end() -> None:
    _, control = fresh(2)

    control.begin_step(1)
    in_between = (control.begun(1), control.finished(1))
    control.finish_step(1, ended=True)

    assert in_between == (1, 0)
    assert (control.begun(1), control.finished(1)) == (1, 1)
    assert (control.begun(0), control.finished(0)) == (0, 0)


def test_the_phase_tells_what_the_worker_does_with_which_env_since_when() -> None:
    _, control = fresh(4)

    control.enter(Phase.STEPPING, 3, 1_500_000_000)

    assert control.phase() == (Phase.STEPPING, 3, 1.5)


def test_busy_time_adds_up() -> None:
    _, control = fresh(1)

    control.add_busy(400_000_000)
    control.add_busy(100_000_000)

    assert control.busy_s() == 0.5


def test_memory_is_free_again_after_the_release() -> None:
    memory, control = fresh(1)

    control.release()

    memory.append(0)  # raises BufferError while a view is open


WRITES: dict[str, Callable[[Control, int], None]] = {
    "ask": lambda control, env: control.ask(env, Command.STEP, 5),
    "begin": lambda control, env: control.begin_step(env),
    "finish": lambda control, env: control.finish_step(env, ended=True),
    "answer": lambda control, env: control.answer(env, control.request(env)),
}


@settings(deadline=None, max_examples=100)
@given(
    n_envs=st.integers(1, 5),
    writes=st.lists(st.tuples(st.sampled_from(sorted(WRITES)), st.integers(0, 4)), max_size=40),
)
def test_no_line_disturbs_another(n_envs: int, writes: list[tuple[str, int]]) -> None:
    memory, control = fresh(n_envs)
    expected = [dict.fromkeys(("ask", "begin", "finish"), 0) for _ in range(n_envs)]
    answered = [0] * n_envs

    for name, number in writes:
        env = number % n_envs
        WRITES[name](control, env)
        if name == "answer":
            answered[env] = expected[env]["ask"]
        else:
            expected[env][name] += 1

    for env in range(n_envs):
        assert control.request(env) == expected[env]["ask"]
        assert control.done(env) == answered[env]
        assert control.begun(env) == expected[env]["begin"]
        assert control.finished(env) == expected[env]["finish"]
    assert bytes(memory[: LINE_WORDS * 8]) == bytes(LINE_WORDS * 8)
