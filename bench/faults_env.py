"""The env that every library gets: each of its numbers can be checked, and one copy of it misbehaves.

Needs Gymnasium and numpy only, because the peers' Python imports it, from the temporary folder it is copied to.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

STEPS_BEFORE = 3
"""The faulty copy steps well this often."""
FAULTY_NUMBER = 1  # not 0, which Gymnasium builds in the trainer's own process to ask it for its spaces
FOR_EVER_S = 120  # longer than any watchdog here, yet it ends
PID_FILE = "faulty-pid"


class FaultyEnv(gymnasium.Env[npt.NDArray[np.float64], np.int64]):
    """Observes `[number, step, action]` and earns `1000 * step + action`; its episodes never end.

    Copies are numbered in the order in which they are built, so a replacement has a new number and is healthy.
    """

    def __init__(self, *, folder: str, fault: str = "", where: str = "", step_s: float = 0.0) -> None:
        """Make the next copy. The faulty one does `FAULTS[fault]` in the call `where`.

        With the fault "simulator" every copy has a child process, which it ends when it is closed.
        """
        self.observation_space = spaces.Box(-1.0, np.inf, (3,), np.float64)
        self.action_space: spaces.Space[Any] = spaces.Discrete(1000)
        self._number = _next_number(Path(folder))
        self._fault = fault if self._number == FAULTY_NUMBER else ""
        self._where, self._step_s, self._step = where, step_s, 0
        self._simulator = _start_simulator() if fault == "simulator" else None
        if self._number == FAULTY_NUMBER:
            (Path(folder) / PID_FILE).write_text(str(os.getpid()))
        self._fail_in("constructor")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float64], dict[str, Any]]:
        """Begin anew, or fail."""
        super().reset(seed=seed, options=options)
        self._fail_in("reset")
        self._step = 0
        return np.array([self._number, 0, -1], np.float64), {}

    def step(self, action: np.int64) -> tuple[npt.NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Count, or fail."""
        time.sleep(self._step_s)
        if self._step >= STEPS_BEFORE:
            self._fail_in("step")
        self._step += 1
        obs = np.array([self._number, self._step, action], np.float64)
        return obs, 1000.0 * self._step + int(action), False, False, {}

    def close(self) -> None:
        """End the simulator, or fail."""
        self._fail_in("close")
        if self._simulator is not None:
            self._simulator.kill()
            self._simulator.wait(FOR_EVER_S)
            self._simulator = None

    def _fail_in(self, where: str) -> None:
        if self._fault and where == self._where:
            FAULTS[self._fault]()


def _next_number(folder: Path) -> int:
    for number in itertools.count():
        try:
            (folder / f"env-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return number
    raise AssertionError("there is always a next number")


def _start_simulator() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", f"import time; time.sleep({FOR_EVER_S})"])


def _raise() -> None:
    raise ValueError("deliberate")


def _raise_unpicklable() -> None:
    raise ValueError("deliberate", threading.Lock())


def _hold_gil() -> None:
    native = ctypes.PyDLL(None)  # unlike CDLL, it keeps the GIL during a call
    native.sleep(ctypes.c_uint(FOR_EVER_S))


def _ignore_sigterm_and_hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(FOR_EVER_S)


def _flood() -> None:
    print("flood " * 2**18, flush=True)


FAULTS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.Signals["SIGKILL"]),
    "exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "raise": _raise,
    "raise unpicklable": _raise_unpicklable,
    "hang": lambda: time.sleep(FOR_EVER_S),
    "hold the GIL": _hold_gil,
    "ignore SIGTERM": _ignore_sigterm_and_hang,
    "flood": _flood,
}
"""What the faulty copy does, by name."""
