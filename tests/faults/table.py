"""The fault table: what can go wrong in an env, when, and what a user must see of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gymnasium.envs.registration import EnvSpec

from stepherd.testing import faulty_envs
from stepherd.testing.counting_env import CountingEnv

When = Literal["spawn", "reset", "next episode", "step", "idle", "close"]

RAISED = "raised"
DIED = "died"
LATE = "late"

CLOSED_WELL = "exited with code 0"
SIGTERM = "killed by SIGTERM"
SIGKILL = "killed by SIGKILL"


@dataclass(frozen=True, slots=True)
class Closing:
    """What the close report says about a worker whose env does this in `close`."""

    exit: str
    remark: str
    """In its problems; empty for none."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the table."""

    name: str
    env: str
    """A class of `faulty_envs`."""
    kwargs: Mapping[str, Any]
    cause: str
    """What a failure is called, at whatever moment but the close."""
    words: str
    """In the report of the failure."""
    closing: Closing
    when: frozenset[When]
    doing: str = ""
    """What the worker did when it failed, if that is not what the env did when it went wrong."""


def _fault(
    name: str,
    env: str,
    cause: str,
    words: str,
    closing: Closing,
    *,
    only: tuple[When, ...] = (),
    doing: str = "",
    **kwargs: Any,
) -> Fault:
    never_idle = cause in (RAISED, LATE) and env != "SignalledEnv"  # nothing calls the env then
    every: tuple[When, ...] = ("spawn", "reset", "next episode", "step", "idle", "close")
    when = only or tuple(moment for moment in every if moment != "idle" or not never_idle)
    return Fault(name, env, kwargs, cause, words, closing, frozenset(when), doing)


def _raises(error: str, words: str) -> Fault:
    remark = f"close() raised {words}"
    return _fault(f"raises {error}", "RaisingEnv", RAISED, words, Closing(CLOSED_WELL, remark), error=error)


def _signal(name: str, words: str) -> Fault:
    in_close = f"it did not end when asked, while closing env {{env}}: killed by {name}"
    return _fault(name, "SignalledEnv", DIED, words, Closing(f"killed by {name}", in_close), signal_name=name)


def _in_close(exit_in_words: str) -> Closing:
    return Closing(exit_in_words, f"it did not end when asked, while closing env {{env}}: {exit_in_words}")


FAULTS = [
    _raises("ValueError", "ValueError: deliberate"),
    _raises("KeyboardInterrupt", "KeyboardInterrupt"),
    _raises("SystemExit", "SystemExit: 0"),
    _raises("NoPickleError", "NoPickleError: deliberate"),
    _raises("TwoArgumentError", "TwoArgumentError: error 7 in the arena"),
    _raises("MuteError", "MuteError: (its message cannot be shown: str() of it raises)"),
    _fault(
        "exits with 0",
        "ExitingEnv",
        DIED,
        "ended by itself with code 0",
        Closing("exited with code 0", "it ended badly, while closing env {env}: exited with code 0"),
        code=0,
    ),
    _fault(
        "exits with 3",
        "ExitingEnv",
        DIED,
        "exited with code 3",
        Closing("exited with code 3", "it ended badly, while closing env {env}: exited with code 3"),
        code=3,
    ),
    _signal("SIGKILL", "killed by SIGKILL (often the kernel's out-of-memory killer"),
    _signal("SIGSEGV", "killed by SIGSEGV (a crash in native code"),
    _signal("SIGABRT", "killed by SIGABRT (native code gave up"),
    _fault("SIGSTOP", "SignalledEnv", LATE, "has not answered for", _in_close(SIGKILL), signal_name="SIGSTOP"),
    _fault("hangs", "HangingEnv", LATE, "in pass_time", _in_close(SIGTERM)),
    _fault("hangs with the GIL", "GilHoldingEnv", LATE, "in fault", _in_close(SIGTERM)),
    _fault("ignores signals", "SignalProofEnv", LATE, "has not answered for", _in_close(SIGKILL)),
    _fault("blocks signals", "SignalProofEnv", LATE, "has not answered for", _in_close(SIGKILL), blocks=True),
    _fault(
        "out of memory", "MemoryEatingEnv", RAISED, "MemoryError", Closing(CLOSED_WELL, "MemoryError"), only=("step",)
    ),
    _fault(
        "closes descriptors",
        "DescriptorClosingEnv",
        DIED,
        "an env has closed descriptors not its own",
        Closing("exited with code 1", "it ended badly"),
        only=("step", "next episode"),
        doing="while idle",  # the step went well; only its answer could not be announced
    ),
    _fault(
        "wrong shape",
        "WrongObservationEnv",
        RAISED,
        "observation 'obs' has shape (5,), but the observation space declares (4,)",
        Closing(CLOSED_WELL, ""),
        only=("reset", "step", "next episode"),
        wrong="shape",
    ),
    _fault(
        "wrong dtype",
        "WrongObservationEnv",
        RAISED,
        "observation 'obs' is complex128, but the observation space declares float64",
        Closing(CLOSED_WELL, ""),
        only=("step",),
        wrong="dtype",
    ),
    _fault(
        "no reward",
        "WrongRewardEnv",
        RAISED,
        "the reward is None, which is not a number",
        Closing(CLOSED_WELL, ""),
        only=("step",),
        wrong="nothing",
    ),
    _fault(
        "leaves a thread",
        "ThreadLeavingEnv",
        DIED,
        "",
        Closing(SIGTERM, "its envs were closed, but its process did not end by itself: killed by SIGTERM"),
        only=("close",),
    ),
    _fault(
        "leaves an exit hook",
        "ExitHookEnv",
        DIED,
        "",
        Closing(SIGTERM, "its envs were closed, but its process did not end by itself: killed by SIGTERM"),
        only=("close",),
    ),
]


def faults_when(when: When) -> list[Fault]:
    """Return the rows of the table that happen at this moment."""
    return [fault for fault in FAULTS if when in fault.when]


def make_claimed(*, folder: str, when: When, after: int = 0, **healthy: Any) -> CountingEnv:
    """Return the env with the next fault that nobody has claimed in `folder` yet; then healthy ones."""
    env: CountingEnv | None = None
    where = {"spawn": "constructor", "next episode": "reset"}.get(when, when)
    for fault in faults_when(when):
        try:
            (Path(folder) / fault.name).open("x").write(str(os.getpid()))
        except FileExistsError:
            continue
        env = getattr(faulty_envs, fault.env)(where=where, after=after, **fault.kwargs, **healthy)
        break
    else:
        env = CountingEnv(**healthy)
    env.spec = EnvSpec("Claimed-v0")  # the envs of one pool must be alike, and so have one name
    return env
