"""`stepherd learn`: from typed options to an exit code.

0    done                       130  Ctrl-C: finished the step, saved, closed
1    an error in training       143  SIGTERM: the same
2    configuration or run folder  129  the terminal was closed: the same
3    the envs could not be built
4    a worker failed and its restart budget is spent
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepherd.cli.options import typed_overrides
from stepherd.core.errors import (
    ConfigError,
    EnvNeverReady,
    RunFolderError,
    SpecError,
    StepherdError,
    UnsupportedPlatform,
    WorkerFailed,
    WrongValue,
)

if TYPE_CHECKING:
    from stepherd.cli.display import Display
    from stepherd.training.stop_signals import Stop
    from stepherd.training.trainer_controller import Outcome

_TRAINING_STACK = ("torch", "tensorboard", "filelock")
DONE, FAILED, WRONG, NEVER_READY, BUDGET_SPENT = 0, 1, 2, 3, 4


def learn(typed: argparse.Namespace) -> int:
    """Train as `typed` says; show how it goes; return the exit code."""
    try:
        from rich.console import Console  # the training stack is an extra

        from stepherd.cli.display import open_display
        from stepherd.training.config import load_config
        from stepherd.training.stop_signals import StopNow, stop_signals
    except ModuleNotFoundError as error:
        return _complain(f"`stepherd learn` needs {error.name}: pip install 'stepherd[train]'", WRONG)
    try:
        config = load_config(typed.config, typed_overrides(typed), need_env=True)
    except ConfigError as error:
        return _complain(str(error), WRONG)

    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # `python:my_module:make_env` is looked for where you start from
    console = Console()
    with stop_signals() as stop:
        try:
            with open_display(console, console.is_terminal) as display, _logging_to(display, debug=config.debug):
                for warning in config.warnings:
                    display.message(warning)
                _limit_torch_threads()
                from stepherd.training.trainer_controller import train  # imports torch, which takes a second or two

                outcome = train(config, stop, display)
        except StopNow as now:
            return _complain(f"Stopped: {now}.", stop.exit_code or FAILED)
        except ModuleNotFoundError as error:
            if error.name not in _TRAINING_STACK:
                raise
            return _complain(f"`stepherd learn` needs {error.name}: pip install 'stepherd[train]'", WRONG)
        except StepherdError as error:
            return _complain(f"Error: {error}", exit_code_of(error))
        print(_closing_text(outcome, stop))
        return stop.exit_code or DONE


def _closing_text(outcome: Outcome, stop: Stop) -> str:
    lines = [f"{name}: {steps} steps, {_mean(outcome.mean_rewards[name])}." for name, steps in outcome.steps.items()]
    lines += [str(outcome.report), f"The run is in {outcome.folder}."]
    if stop.signal is not None:
        so_far = (
            "--resume goes on from here" if outcome.is_saved else "what came after the last checkpoint is not saved"
        )
        lines.append(f"Stopped by {stop.signal.name}; {so_far}.")
    return "\n".join(lines)


def exit_code_of(error: StepherdError) -> int:
    """Return the exit code that tells a script what kind of error it was."""
    if isinstance(error, WrongValue):
        return FAILED  # in the middle of a run: the configuration is not to blame
    if isinstance(error, (ConfigError, RunFolderError, SpecError, UnsupportedPlatform)):
        return WRONG
    if isinstance(error, EnvNeverReady):
        return NEVER_READY
    return BUDGET_SPENT if isinstance(error, WorkerFailed) else FAILED


def _limit_torch_threads() -> None:
    """Leave cores to the envs: small networks learn several times slower on all of them than on one."""
    if "OMP_NUM_THREADS" in os.environ:
        return  # whoever sets it knows better
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, min(4, cores // 2)))


class _logging_to:  # noqa: N801 - a context manager
    """Shows the library's warnings in the display while the block lasts."""

    def __init__(self, display: Display, *, debug: bool) -> None:
        self._handler = _DisplayHandler(display)
        self._level = logging.DEBUG if debug else logging.WARNING
        self._logger = logging.getLogger("stepherd")

    def __enter__(self) -> None:
        self._before = self._logger.level
        self._logger.setLevel(self._level)
        self._logger.addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.setLevel(self._before)


class _DisplayHandler(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display
        self.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        self._display.message(self.format(record))


def _mean(reward: float | None) -> str:
    return "no episode was completed" if reward is None else f"mean reward of the last 100 episodes {reward:.1f}"


def _complain(text: str, code: int) -> int:
    print(text, file=sys.stderr)
    return code
