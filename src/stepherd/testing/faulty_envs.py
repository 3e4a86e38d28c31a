"""Gymnasium envs that misbehave on purpose, to try out whatever runs them; with the healthy one and the wrong ones.

    open_env_manager("python:stepherd.testing.faulty_envs:HangingEnv", num_workers=2, env_kwargs={"where": "reset"})

Every class can be imported and takes plain values only, so it crosses to any worker. Each docstring says *Fault*, what
the env does, and *Expect*, what a user of a good runner sees. *Named* means: which worker, doing what, and the cause.
Knows nothing of managers or workers, so that any runner can be tried.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.testing.counting_env import CountingEnv, FaultyEnv, pass_time, steps_counted
from stepherd.testing.wrong_envs import HugeObservationEnv, WrongObservationEnv, WrongRewardEnv

__all__ = [
    "CountingEnv",
    "FaultyEnv",
    "steps_counted",
    "RaisingEnv",
    "ExitingEnv",
    "SignalledEnv",
    "HangingEnv",
    "GilHoldingEnv",
    "SignalProofEnv",
    "FloodingEnv",
    "DescriptorClosingEnv",
    "WanderingEnv",
    "ThreadLeavingEnv",
    "ExitHookEnv",
    "ParentEnv",
    "MemoryEatingEnv",
    "HugeObservationEnv",
    "WrongObservationEnv",
    "WrongRewardEnv",
]

FOR_EVER_S = 3600.0  # longer than any deadline of a test, yet it ends
GRANDCHILD_S = 120  # a grandchild that somebody's bug leaves behind ends by itself


class RaisingEnv(FaultyEnv):
    """Fault: raises `error`, one of `ERRORS`.

    Expect: the failure is named, with the type's name, the message where there is one, and the traceback as text;
    nothing is raised in the trainer as if it came from there, neither Ctrl-C nor an exit.
    """

    def __init__(self, *, error: str = "ValueError", **faulty: Any) -> None:
        """Make an env that raises `ERRORS[error]()`."""
        self._error = error
        super().__init__(**faulty)

    def fault(self) -> None:
        """Raise."""
        raise ERRORS[self._error]()


class TwoArgumentError(Exception):
    """Can be pickled but not unpickled: it needs two arguments, and only one is kept."""

    def __init__(self, code: int, place: str) -> None:
        super().__init__(f"error {code} in {place}")


class NoPickleError(Exception):
    """Refuses to be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("this error stays where it is")


class MuteError(Exception):
    """Raises when asked for its text."""

    def __str__(self) -> str:
        raise RuntimeError("an error in the error")

    __repr__ = __str__


def _local_error() -> Exception:
    class LocalError(Exception):
        pass

    return LocalError("its class cannot be imported")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("deliberate"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(0),
    "GeneratorExit": GeneratorExit,
    "TwoArgumentError": lambda: TwoArgumentError(7, "the arena"),
    "NoPickleError": lambda: NoPickleError("deliberate"),
    "LocalError": _local_error,
    "LockError": lambda: RuntimeError("holds a lock", threading.Lock()),
    "MuteError": MuteError,
    "EndlessError": lambda: ValueError("deliberate, and no end of it: " + 80 * 2**20 * "x"),
}
"""What a `RaisingEnv` can raise, by name."""


class ExitingEnv(FaultyEnv):
    """Fault: ends the process with `code`, without any clean-up.

    Expect: named as an early end, also with code 0; replaced.
    """

    def __init__(self, *, code: int = 3, **faulty: Any) -> None:
        """Make an env that calls `os._exit(code)`."""
        self._code = code
        super().__init__(**faulty)

    def fault(self) -> None:
        """End the process."""
        os._exit(self._code)


class SignalledEnv(FaultyEnv):
    """Fault: gets a signal: "SIGKILL" as the memory killer sends it, "SIGSEGV" as native code does, "SIGSTOP" …

    Expect: the signal is named, with what it often means, and the worker replaced; a stopped one is late.
    """

    def __init__(self, *, signal_name: str = "SIGKILL", **faulty: Any) -> None:
        """Make an env that sends its own process the signal of this name."""
        self._signal_name = signal_name
        super().__init__(**faulty)

    def fault(self) -> None:
        """Send the signal."""
        os.kill(os.getpid(), signal.Signals[self._signal_name])


class HangingEnv(FaultyEnv):
    """Fault: never comes back, in Python.

    Expect: late by the deadline of that call, named and replaced; a close that hangs is cut short and remarked.
    """

    def fault(self) -> None:
        """Wait for nothing."""
        pass_time(FOR_EVER_S)


class GilHoldingEnv(FaultyEnv):
    """Fault: never comes back from native code and keeps the GIL, so no thread or signal handler of Python runs.

    Expect: as `HangingEnv`, for help comes from outside; the process still dies with the trainer.
    """

    def fault(self) -> None:
        """Block in the C library."""
        native = ctypes.PyDLL(None)  # unlike CDLL, it keeps the GIL during a call
        while True:
            native.usleep(ctypes.c_uint(int(FOR_EVER_S) * 10**6))


class SignalProofEnv(HangingEnv):
    """Fault: ignores every signal that can be ignored, or blocks them all with `blocks`, and then hangs.

    Expect: as `HangingEnv`; a close climbs to SIGKILL within its bound.
    """

    def __init__(self, *, blocks: bool = False, **faulty: Any) -> None:
        """Make an env that SIGTERM does not move."""
        for number in signal.valid_signals() - {signal.Signals[name] for name in ("SIGCHLD", "SIGKILL", "SIGSTOP")}:
            if number not in CRASHES:
                signal.signal(number, signal.SIG_IGN)
        if blocks:
            posix: Any = signal  # Windows has nothing like it
            posix.pthread_sigmask(posix.SIG_BLOCK, signal.valid_signals())
        super().__init__(**faulty)


CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}  # a handler for these would change the fault


class FloodingEnv(CountingEnv):
    """Fault: writes `kib` KiB to stdout and as much to stderr in every step, in one piece without a newline.

    Expect: no step waits for anybody to read it; the log of the worker has it all.
    """

    def __init__(self, *, kib: int = 256, **healthy: Any) -> None:
        """Make an env that prints too much."""
        self._text = b"flood " * (kib * 1024 // 6)
        super().__init__(**healthy)

    def step(self, action: np.int64) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Print, then step."""
        for fd in (1, 2):
            os.write(fd, self._text)
        return super().step(action)


class DescriptorClosingEnv(FaultyEnv):
    """Fault: closes descriptors it did not open: the "standard" three, or all the "others", as careless launchers do.

    Expect: without the standard ones it steps on; without the others its worker is cut off, which is named.
    """

    def __init__(self, *, which: Literal["standard", "others"] = "others", **faulty: Any) -> None:
        """Make an env that closes what it does not own."""
        self._which = which
        super().__init__(**faulty)

    def fault(self) -> None:
        """Close them, and take the first numbers for itself."""
        os.closerange(0, 3) if self._which == "standard" else os.closerange(3, 256)
        self._mine = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]


class WanderingEnv(FaultyEnv):
    """Fault: changes into a folder that is then removed, and empties the environment.

    Expect: nothing; the worker needs neither, and its replacement starts in the trainer's folder.
    """

    def fault(self) -> None:
        """Leave."""
        folder = tempfile.mkdtemp()
        os.chdir(folder)
        shutil.rmtree(folder)
        os.environ.clear()


class ThreadLeavingEnv(FaultyEnv):
    """Fault: starts a thread that never ends and that the interpreter waits for at its exit.

    Expect: the worker is ended within the bound of the close, with a remark.
    """

    def fault(self) -> None:
        """Start the thread."""
        threading.Thread(target=pass_time, args=(FOR_EVER_S,), name="left behind").start()


class ExitHookEnv(FaultyEnv):
    """Fault: registers an exit hook that never returns.

    Expect: as `ThreadLeavingEnv`.
    """

    def fault(self) -> None:
        """Register the hook: the interpreter runs such finalizers at its exit."""
        weakref.finalize(self.unwrapped, pass_time, FOR_EVER_S)


class ParentEnv(FaultyEnv):
    """Fault: starts a process and never ends it, as envs with a simulator do; `pids_path` gets a line with its pid.

    `stubborn` makes it ignore SIGTERM, `stopped` stops it, and `own_session` takes it out of its group.

    Expect: it is gone when its worker is, whoever died first and however. One with a session of its own is found and
    killed by a living parent, where `/proc` shows environments; nobody finds it once the parent has been killed.
    """

    def __init__(
        self, *, pids_path: str, stubborn: bool = False, stopped: bool = False, own_session: bool = False, **faulty: Any
    ) -> None:
        """Make an env that starts a process."""
        self._pids_path, self._stopped, self._own_session = pids_path, stopped, own_session
        ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if stubborn else ""
        self._program = f"{ignore}import time; print(flush=True); time.sleep({GRANDCHILD_S})"
        super().__init__(**faulty)

    def fault(self) -> None:
        """Start it, and go on once it runs."""
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", self._program],
            stdout=subprocess.PIPE,
            start_new_session=self._own_session,
        )
        assert self.child.stdout is not None
        wait_readable(self.child.stdout.fileno(), Deadline.after(GRANDCHILD_S))
        if self._stopped:
            self.child.send_signal(signal.Signals["SIGSTOP"])
        with Path(self._pids_path).open("a") as pids:
            pids.write(f"{self.child.pid}\n")


class MemoryEatingEnv(FaultyEnv):
    """Fault: takes memory until there is none; the limit is lowered first, so that only this process runs out.

    Expect: the MemoryError is named like any other.
    """

    def fault(self) -> None:
        """Take it."""
        resource: Any = importlib.import_module("resource")  # does not exist on Windows
        resource.setrlimit(resource.RLIMIT_AS, (2**30, resource.RLIM_INFINITY))
        hoard = []
        while True:
            hoard.append(bytes(2**26))  # address space is enough: writing to it would take a busy machine seconds
