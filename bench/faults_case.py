"""One cell of `faults.py`: a training loop over three envs in one library, which meets one fault and tells what it saw.

Runs in a process of its own, in a temporary folder, under that library's Python. What it sees goes to the file
`events`, a line of JSON each; who watches from outside judges it, because this process may never come back.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.faults_env import PID_FILE, STEPS_BEFORE, FaultyEnv
from bench.faults_pools import N_ENVS, Actions, Answers, Pool, choose_pool

STEPS_AFTER = 5
"""So many right steps of every env after the fault, and the loop has gone on."""
SETTLED_S = 0.3  # a signal has arrived by then, and a killed process is gone
EVENTS = "events"
TEXT_CHARACTERS_MAX = 20_000
WITHOUT_S = 15.0
"""After so long with steps of some envs only, the loop goes on without the others."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is to happen; comes as JSON."""

    library: str
    play: str
    """What the training loop does, see `play`."""
    fault: str = ""
    where: str = ""
    step_s: float = 0.0


class WrongDataError(Exception):
    """A library handed out a number that its env did not produce, or not then."""


class Check:
    """Holds every answer against what the env must have answered."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._steps: dict[int, int] = {}
        self.right = [0] * N_ENVS
        """Right steps of each env."""

    def take_first(self, answers: Answers) -> None:
        """Take in the answers to a reset."""
        for row, answer in answers.items():
            number, step, action = (int(value) for value in answer.obs)
            if (step, action) != (0, -1):
                raise WrongDataError(f"env {row} was reset and observes {answer}")
            self._numbers[row], self._steps[row] = number, 0

    def take(self, answers: Answers, actions: Actions) -> None:
        """Take in the answers to `actions`."""
        self.take_first({row: answer for row, answer in answers.items() if answer.lost})
        for row, answer in answers.items():
            if answer.lost:
                continue
            self._steps[row] += 1
            expected = [self._numbers[row], self._steps[row], actions[row]]
            if [int(value) for value in answer.obs] != expected:
                raise WrongDataError(f"env {row} should observe {expected}, but {answer}")
            if answer.reward != 1000 * self._steps[row] + actions[row]:
                raise WrongDataError(f"env {row} should earn for {expected}, but {answer}")
            self.right[row] += 1


class Loop:
    """A training loop, in as far as it matters here."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.check = pool, Check()
        self._answers: Answers = {}
        self._n_steps = 0

    def reset(self) -> None:
        """Reset all envs."""
        self._answers = self.pool.reset()
        self.check.take_first(self._answers)

    def step(self) -> None:
        """Step every env that has answered."""
        actions = self._actions()
        self._answers = self.pool.step(actions)
        self.check.take(self._answers, actions)

    def send(self) -> None:
        """Leave a step unread."""
        self.pool.send(self._actions())

    def go_on(self) -> None:
        """Step until every env has stepped well a few times, and tell when each had done so once."""
        begun_at, before, told = time.monotonic(), list(self.check.right), False
        while True:
            self.step()
            right = [now - then for now, then in zip(self.check.right, before, strict=True)]
            if min(right) >= 1 and not told:
                tell("went on")
                told = True
            if min(right) >= STEPS_AFTER:
                return
            if not min(right) and max(right) and time.monotonic() > begun_at + WITHOUT_S:
                tell("went on without", f"steps of each env: {right}")
                return

    def _actions(self) -> Actions:
        self._n_steps += 1
        return {row: (100 * row + self._n_steps) % 1000 for row in self._answers}


def main() -> None:
    """Play the case that the command line describes."""
    case = Case(**json.loads(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    open_pool = choose_pool(case.library)
    make_env = functools.partial(
        FaultyEnv, folder=str(Path.cwd()), fault=case.fault, where=case.where, step_s=case.step_s
    )
    pool = None
    try:
        if case.play == "open":
            tell("begin")
        pool = open_pool(make_env)
        play(case.play, Loop(pool))
    except WrongDataError as error:
        tell("wrong data", str(error))
    except Exception as error:
        tell("raised", f"{type(error).__name__}: {error}")
    if pool is None:
        return
    if case.play == "leave":
        tell("begin")
        raise RuntimeError("the training loop has failed, and nobody closes the pool")
    tell("closing")
    try:
        tell("closed", pool.close())
    except Exception as error:
        tell("close raised", f"{type(error).__name__}: {error}")


def play(name: str, loop: Loop) -> None:
    """Do what the training loop does, up to the close; tell "begin" right before the fault."""
    if name == "reset":
        tell("begin")
    loop.reset()
    for _ in range(STEPS_BEFORE):
        loop.step()
    if name in ("kill, step", "stop, step", "stop, close"):
        pid = int(Path(PID_FILE).read_text())
        os.kill(pid, signal.Signals["SIGKILL" if name.startswith("kill") else "SIGSTOP"])
        time.sleep(SETTLED_S)
    if name == "leave":
        return
    tell("begin")
    if name in ("send, close", "die"):
        loop.send()
    if name == "die":
        os.kill(os.getpid(), signal.Signals["SIGKILL"])
    if not name.endswith("close"):
        loop.go_on()


def tell(what: str, text: str = "") -> None:
    """Write down what happened, and when; a line at a time, for this process can be killed at any moment."""
    line = json.dumps({"what": what, "at": time.monotonic(), "text": text[:TEXT_CHARACTERS_MAX]}) + "\n"
    with Path(EVENTS).open("a") as events:
        events.write(line)
