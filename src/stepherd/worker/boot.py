"""A worker's life: make the process fit for user code, build the envs, serve, close.

All user code runs in here, inside one guard: whatever it raises, down to SystemExit and KeyboardInterrupt, becomes a
note that the manager can show.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import pickle
import signal
import sys
import traceback
from pathlib import Path

from stepherd.core.errors import SpecError, StepherdError
from stepherd.envs.build import build_env
from stepherd.envs.env import Env
from stepherd.spec.specs import EnvSpec
from stepherd.transport.bell import Bell, BellBroken, Kind
from stepherd.transport.block import Block
from stepherd.transport.control import Control, control_bytes
from stepherd.transport.layout import Layout
from stepherd.transport.notes import STACK_SIGNAL, Closing, Failure, Job, Ready, read_note, write_note
from stepherd.worker.serve import close_envs, headline_of, message_of, serve

log = logging.getLogger(__name__)

EXIT_FAILED = 1
_OUR_CODE = str(Path(__file__).parent.parent) + os.sep
TRACEBACK_CHARACTERS_MAX = 200_000  # a recursion error's traceback is long, its ends say all


def live(bell_fd: int) -> int:
    """Live from the first message to the last and return the exit code."""
    bell = Bell.inherited(bell_fd)
    _fit_for_user_code()
    envs: list[Env] = []
    try:
        message = bell.wait_and_hear()
        if message.kind is not Kind.JOB:
            return 0  # closed before it had begun
        block, control = _build(read_note(message.note, Job), envs, bell)
        serve(bell, block, control, envs)
        problems = close_envs(envs, control)
        bell.ring(Kind.CLOSED, write_note(Closing(problems)))
    except BellBroken as error:
        # The manager is gone or has given up on us; or it is there, and will show the end of the log.
        log.error("The manager cannot be reached (%s): it is gone, or an env has closed descriptors not its own", error)
        return EXIT_FAILED
    except BaseException as error:  # noqa: BLE001 - the boundary of the process: user code may raise anything
        return _fail(bell, error)
    return 0


def _fit_for_user_code() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the manager's to interpret
    output = os.fdopen(os.dup(2), "w")  # an env may close or replace its standard streams
    faulthandler.enable(output)  # a crash in native code leaves the Python stack in the log
    if STACK_SIGNAL is not None and hasattr(faulthandler, "register"):
        faulthandler.register(STACK_SIGNAL, output)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what was printed before a kill is in the log


def _build(job: Job, envs: list[Env], bell: Bell) -> tuple[Block, Control]:
    sys.path[:] = job.sys_path
    source = job.env if isinstance(job.env, str) else pickle.loads(job.env)  # noqa: S301 - the user's own factory
    kwargs = pickle.loads(job.env_kwargs)  # noqa: S301 - the same
    for _ in job.env_ids:
        env = build_env(source, kwargs)
        envs.append(env)  # one by one: those built before a failure must be reachable
    spec = _common_spec(envs)
    layout = Layout.of(spec)
    n_envs = len(envs)
    block = Block.create(layout.block_bytes(n_envs), poison_from=control_bytes(n_envs))
    bell.ring(Kind.READY, write_note(Ready(spec)), block.fd)
    block.close_fd()
    return block, Control(block.buffer, n_envs)


def _common_spec(envs: list[Env]) -> EnvSpec:
    spec = envs[0].spec
    for env in envs[1:]:
        if env.spec != spec:
            raise SpecError(f"the envs of one pool must be alike, but one is {spec} and another {env.spec}")
    return spec


def _fail(bell: Bell, error: BaseException) -> int:
    with contextlib.suppress(BellBroken):
        bell.ring(Kind.FAILED, write_note(_failure_of(error)))
    return EXIT_FAILED


def _failure_of(error: BaseException) -> Failure:
    if isinstance(error, StepherdError):
        return Failure(message_of(error), "")  # ours are written for people; where in our code they arose helps nobody
    return Failure(headline_of(error), _traceback_of(error))


def _traceback_of(error: BaseException) -> str:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OUR_CODE):
        frames = frames.tb_next  # how we came to call the env helps nobody
    try:
        text = "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    except BaseException:  # noqa: BLE001 - user code again: the texts of the error and of all its causes
        text = "".join(traceback.format_tb(error.__traceback__))
    half = TRACEBACK_CHARACTERS_MAX // 2
    if len(text) > 2 * half:
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text
