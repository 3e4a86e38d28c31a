"""The worker's loop: when the bell rings, look which envs are asked for, do it, publish, ring back.

The data is written first, then the number that says it is complete, then the bell is rung.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from stepherd.envs.env import Env
from stepherd.spec.batch import EnvActions, EnvSteps
from stepherd.transport.bell import Bell, Kind
from stepherd.transport.block import Block
from stepherd.transport.control import Command, Control, Phase
from stepherd.transport.layout import Layout

# With slow envs the manager learns of each answer at once; with fast ones, of all together.
RING_AT_LEAST_NS = 1_000_000
MESSAGE_CHARACTERS_MAX = 20_000  # some errors quote all they were given


def serve(bell: Bell, block: Block, control: Control, envs: Sequence[Env]) -> None:
    """Answer until told to close, or until the manager is gone. Whatever an env raises goes up."""
    layout = Layout.of(envs[0].spec)
    arrays = list(layout.per_env(block.buffer, len(envs)))
    control.enter(Phase.IDLE, 0, time.monotonic_ns())
    while True:
        message = bell.wait_and_hear()
        if message.kind is not Kind.RING:
            return
        rung_ns = time.monotonic_ns()
        unannounced = False
        for index, env in enumerate(envs):
            if control.request(index) == control.done(index):
                continue
            steps, actions = arrays[index]
            now_ns = _answer(control, index, env, steps, actions)
            unannounced = True
            if now_ns - rung_ns > RING_AT_LEAST_NS:
                bell.ring(Kind.RING)
                rung_ns, unannounced = now_ns, False
        control.enter(Phase.IDLE, 0, time.monotonic_ns())
        if unannounced:
            bell.ring(Kind.RING)


def close_envs(envs: Sequence[Env], control: Control) -> tuple[str, ...]:
    """Close every env, also after one has raised; return what went wrong, in words."""
    problems = []
    for index, env in enumerate(envs):
        control.enter(Phase.CLOSING, index, time.monotonic_ns())
        try:
            env.close()
        except BaseException as error:  # noqa: BLE001 - user code; the other envs must be closed too
            problems.append(f"close() raised {headline_of(error)}")
    return tuple(problems)


def headline_of(error: BaseException) -> str:
    """Return `ValueError: the message`, whatever happens when the error is asked for its message."""
    message = message_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def message_of(error: BaseException) -> str:
    """Return the error's message, cut to a length that can be shown."""
    try:
        message = str(error)[: MESSAGE_CHARACTERS_MAX + 1]
    except BaseException:  # noqa: BLE001 - user code; an error whose message raises is still an error to report
        return "(its message cannot be shown: str() of it raises)"
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[:-1]} … (cut off here)"


def _answer(control: Control, index: int, env: Env, steps: EnvSteps, actions: EnvActions) -> int:
    request = control.request(index)
    command, seed = control.command(index)
    start_ns = time.monotonic_ns()
    if command is Command.RESET:
        control.enter(Phase.RESETTING, index, start_ns)
        env.reset(seed, steps)
    else:
        control.enter(Phase.STEPPING, index, start_ns)
        control.begin_step(index)
        ended = env.step(actions, steps)
        control.finish_step(index, ended)
        if ended:
            control.enter(Phase.RESETTING, index, time.monotonic_ns())
            env.next_episode(steps)
    now_ns = time.monotonic_ns()
    control.add_busy(now_ns - start_ns)
    control.answer(index, request)
    return now_ns
