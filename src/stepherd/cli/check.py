"""`stepherd check`: from typed options to an exit code.

0    nothing failed                   2    the command line is wrong
1    something failed                 3    the env could not be built
130  Ctrl-C, 143 SIGTERM: stopped at once
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from stepherd.cli.soak import (
    NEVER_READY,
    WRONG,
    HelpFormatter,
    check_writable,
    complain,
    read_kwargs,
    see_the_folder_started_from,
)

SAFE, FAILED = 0, 1
WIDTH_MAX = 120  # longer lines are hard to read

_EXAMPLES = """\
examples:
  stepherd check gymnasium:LunarLander-v3
  stepherd check python:my_package.envs:make_env --env-kwargs '{"level": 2}'

exit codes:
  0 nothing failed, 1 something failed, 2 wrong command line, 3 the env cannot be built
"""


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Make `parser` the parser of `stepherd check`, help included."""
    parser.description = (
        "Try an env in worker processes - alone, again, with another seed, next to another worker, next to another env"
        " in its worker - and say whether it is safe to run in parallel, and what to do where it is not."
    )
    parser.epilog = _EXAMPLES
    parser.formatter_class = HelpFormatter
    parser.set_defaults(run=check)
    parser.add_argument("env", metavar="ENV", help="gymnasium:CartPole-v1, or python:package.module:callable")
    parser.add_argument("--env-kwargs", metavar="JSON", help="what the env is called with, e.g. '{\"size\": 3}'")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="in each of five trials (default: 1000)")
    parser.add_argument("--budget-s", type=float, default=10.0, metavar="S", help="of each trial (default: 10)")
    parser.add_argument("--seed", type=int, default=1, metavar="SEED", help="of the env (default: 1)")
    limits = parser.add_argument_group("time limits, in seconds")
    for name, what in (
        ("spawn", "start a worker and build its envs (default: 60)"),
        ("reset", "one reset of one env (default: 60)"),
        ("step", "one step of one env (default: 60)"),
        ("grace", "each polite request to end, of which there are two (default: 3)"),
        ("kill", "the operating system's time to end the killed (default: 5)"),
    ):
        limits.add_argument(f"--{name}-s", type=float, metavar="S", help=what)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the findings, as JSON")


def check(typed: argparse.Namespace) -> int:
    """Check the env as `typed` says; print the findings; return the exit code."""
    from stepherd.core.deadline import Timeouts
    from stepherd.core.errors import SpecError
    from stepherd.testing.check_run import LIMITS, check_env  # brings numpy; --help has no use for it
    from stepherd.training.stop_signals import StopNow, stop_signals

    see_the_folder_started_from()
    is_terminal = sys.stderr.isatty()
    names = ("spawn_s", "reset_s", "step_s", "grace_s", "kill_s")
    limits = {name: getattr(LIMITS if getattr(typed, name) is None else typed, name) for name in names}
    with stop_signals() as stop:
        try:
            check_writable(typed.json)
            with stop.at_once():
                report = check_env(
                    typed.env,
                    env_kwargs=read_kwargs(typed.env_kwargs),
                    steps=typed.steps,
                    budget_s=typed.budget_s,
                    seed=typed.seed,
                    timeouts=Timeouts(**limits),
                    on_progress=_show_trial if is_terminal else None,
                )
        except (ValueError, SpecError) as error:
            return complain(f"Error: {error}", WRONG)
        except StopNow:
            return complain("Stopped.", stop.exit_code or FAILED)
        finally:
            if is_terminal:
                _clear_line()
        if typed.json is not None:
            typed.json.write_text(report.to_json(), encoding="utf-8")
        print(report.text(min(WIDTH_MAX, shutil.get_terminal_size().columns)))
        if not report.was_built:
            return NEVER_READY
        return SAFE if report.is_safe else FAILED


def _show_trial(name: str) -> None:
    print(f"\r\x1b[Ktrying it: {name} …", end="", file=sys.stderr, flush=True)


def _clear_line() -> None:
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
