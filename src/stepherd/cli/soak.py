"""`stepherd soak`: from typed options to an exit code, with a picture of how it goes.

0    clean                            2    the command line is wrong
1    something was violated           3    the env could not be built
130  Ctrl-C, 143 SIGTERM: stopped; what was done until then is shown
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.text import Text

    from stepherd.testing.soak_run import Soak, SoakProgress

CLEAN, VIOLATED, WRONG, NEVER_READY = 0, 1, 2, 3
REFRESH_S = 0.25  # as the display of `learn`
LINE_EVERY_S = 5.0  # without a terminal

_EXAMPLES = """\
examples:
  stepherd soak gymnasium:CartPole-v1 --num-envs 4 --cycles 100
  stepherd soak python:my_package.envs:make_env --minutes 10 --faults all
  stepherd soak gymnasium:CartPole-v1 --faults kill,raise --seed 7 --junit soak.xml

exit codes:
  0 clean, 1 violations, 2 wrong command line, 3 the env cannot be built, 130 stopped by Ctrl-C
"""


def add_soak_options(parser: argparse.ArgumentParser) -> None:
    """Make `parser` the parser of `stepherd soak`, help included."""
    parser.description = (
        "Open, reset, step and close an env in worker processes, again and again, with faults at random moments, and"
        " check after each cycle that nothing hangs, nothing is lost and nothing is left behind."
    )
    parser.epilog = _EXAMPLES
    parser.formatter_class = HelpFormatter
    parser.set_defaults(run=soak)
    parser.add_argument("env", metavar="ENV", help="gymnasium:CartPole-v1, or python:package.module:callable")
    pool = parser.add_argument_group("the pool")
    pool.add_argument("--num-envs", type=int, default=4, metavar="N", help="worker processes (default: 4)")
    pool.add_argument("--envs-per-worker", type=int, default=1, metavar="N", help="envs in each of them (default: 1)")
    pool.add_argument("--env-kwargs", metavar="JSON", help="what the env is called with, e.g. '{\"size\": 3}'")
    much = parser.add_argument_group("how much")
    much.add_argument("--cycles", type=int, metavar="N", help="so many cycles (default: 20, if no time is given)")
    much.add_argument("--minutes", type=float, metavar="M", help="so long; whichever comes first")
    much.add_argument("--steps-per-cycle", type=int, default=100, metavar="N", help="of each env (default: 100)")
    much.add_argument(
        "--faults",
        default="",
        metavar="KIND,…",
        help="none (default), all, or some of kill, freeze, segv, abort, raise, exit, hang, hang-close, slow, oom,"
        " child, flood, parent",
    )
    much.add_argument("--seed", type=int, metavar="SEED", help="plays the same plan again (default: draws one)")
    limits = parser.add_argument_group("time limits, in seconds")
    for name, what in (
        ("spawn", "start a worker and build its envs (default: ten times what a trial took)"),
        ("reset", "one reset of one env (default: the same)"),
        ("step", "one step of one env (default: the same)"),
        ("grace", "each polite request to end, of which there are two (default: 2)"),
        ("kill", "the operating system's time to end the killed (default: 5)"),
    ):
        limits.add_argument(f"--{name}-s", type=float, metavar="S", help=what)
    files = parser.add_argument_group("what was found, for programs")
    files.add_argument("--json", type=Path, metavar="FILE", help="everything, as JSON")
    files.add_argument("--junit", type=Path, metavar="FILE", help="JUnit XML, a test case for each check")


class HelpFormatter(argparse.HelpFormatter):
    """Keeps the epilog as it is and leaves room for the names of options."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, max_help_position=26, **more)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


def soak(typed: argparse.Namespace) -> int:
    """Soak as `typed` says; show how it goes; return the exit code."""
    from stepherd.core.errors import EnvNeverReady, SpecError
    from stepherd.training.stop_signals import StopNow, stop_signals

    see_the_folder_started_from()
    soaking: Soak | None = None
    with stop_signals() as stop:
        try:
            check_writable(typed.json, typed.junit)
            with open_picture() as picture:
                soaking = _soaking(typed, lambda: stop.requested, picture.update)
                picture.message(f"Soaking {typed.env}, seed {soaking.seed}.")
                soaking.run()
        except (ValueError, SpecError) as error:
            return complain(f"Error: {error}", WRONG)
        except EnvNeverReady as error:
            return complain(f"Error: {error}", NEVER_READY)
        except StopNow as now:
            complain(f"{now}.", WRONG)
        stop.ignore_more()
        if soaking is None:
            return stop.exit_code or VIOLATED
        report = soaking.report()
        if typed.json is not None:
            typed.json.write_text(report.to_json(), encoding="utf-8")
        if typed.junit is not None:
            typed.junit.write_text(report.to_junit(), encoding="utf-8")
        print(report)
        return stop.exit_code or (CLEAN if report.is_clean else VIOLATED)


def _soaking(
    typed: argparse.Namespace, wants_to_stop: Callable[[], bool], on_progress: Callable[[SoakProgress], None]
) -> Soak:
    from stepherd.testing.soak_request import SoakLimits  # these bring numpy; --help has no use for it
    from stepherd.testing.soak_run import Soak

    given = {name: getattr(typed, name) for name in ("spawn_s", "reset_s", "step_s", "grace_s", "kill_s")}
    return Soak(
        typed.env,
        num_envs=typed.num_envs,
        envs_per_worker=typed.envs_per_worker,
        cycles=typed.cycles,
        minutes=typed.minutes,
        steps_per_cycle=typed.steps_per_cycle,
        faults=typed.faults,
        seed=typed.seed,
        env_kwargs=read_kwargs(typed.env_kwargs),
        limits=SoakLimits(**{name: value for name, value in given.items() if value is not None}),
        on_progress=on_progress,
        wants_to_stop=wants_to_stop,
    )


def read_kwargs(text: str | None) -> dict[str, Any]:
    """Return the keyword arguments in a JSON object.

    Raises:
        ValueError: it is none.
    """
    if text is None:
        return {}
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"--env-kwargs is no JSON: {error}") from error
    if not isinstance(kwargs, dict):
        raise ValueError(f'--env-kwargs must be a JSON object such as {{"size": 3}}, not {text}')
    return kwargs


def see_the_folder_started_from() -> None:
    """Let `python:my_module:make_env` be found where the user is."""
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def check_writable(*files: Path | None) -> None:
    """Check that files can be written, before minutes are spent on what goes into them.

    Raises:
        ValueError: one cannot.
    """
    for path in filter(None, files):
        try:
            with path.open("a"):
                pass
        except OSError as error:
            raise ValueError(f"{path} cannot be written: {error.strerror}") from error


def complain(text: str, code: int) -> int:
    """Say what is wrong and return the exit code."""
    print(text, file=sys.stderr)
    return code


@contextmanager
def open_picture() -> Iterator[Picture]:
    """Give a live picture on a terminal, plain lines elsewhere or without rich."""
    try:
        from rich.console import Console  # comes with the extra `train`
        from rich.live import Live
    except ModuleNotFoundError:
        yield Picture(None, None)
        return
    console = Console()
    if not console.is_terminal or console.is_dumb_terminal:
        yield Picture(None, None)
        return
    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        yield Picture(console, live)


class Picture:
    """Shows how a soak goes. Losing the terminal ends the picture and never the soak."""

    def __init__(self, console: Console | None, live: Live | None) -> None:
        self._console, self._live = console, live
        self._shown_at = -LINE_EVERY_S
        self._n_seen = 0
        self._shown: set[str] = set()

    def update(self, progress: SoakProgress) -> None:
        """Show a moment of the soak."""
        for violation in progress.report.found[self._n_seen :]:
            if violation.likeness not in self._shown:
                self._shown.add(violation.likeness)
                self.message(f"VIOLATION {violation}")
        self._n_seen = len(progress.report.found)
        every_s = LINE_EVERY_S if self._live is None else REFRESH_S
        if time.monotonic() - self._shown_at < every_s:
            return
        live = self._live
        if live is not None:
            self._shown_at = time.monotonic()
            with contextlib.suppress(OSError):
                live.update(_Frame(progress), refresh=True)
        elif progress.record is not None:
            self._shown_at = time.monotonic()
            self.message(_line(progress))

    def message(self, text: str) -> None:
        """Print a line; on a terminal, above the picture."""
        with contextlib.suppress(OSError):
            if self._console is None:
                print(text, flush=True)
            else:
                self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _line(progress: SoakProgress) -> str:
    assert progress.record is not None
    report = progress.report
    of = "" if progress.n_cycles is None else f" of {progress.n_cycles}"
    return (
        f"{_clock(progress.elapsed_s)}  cycle {progress.record.cycle}{of}: {_counted(report.n_steps, 'step')}, "
        f"{_counted(_n_restarts(progress), 'restart')}, {_counted(sum(_struck(progress).values()), 'fault')}, "
        f"{_counted(len(report.found), 'violation')}"
    )


class _Frame:
    """A moment of a soak, drawn for whatever size the terminal has just then."""

    def __init__(self, progress: SoakProgress) -> None:
        self._progress = progress

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(20, options.max_width - 1)  # some terminals begin a new line when the last column is filled
        is_unicode = options.encoding.lower().startswith("utf")
        for line in self._lines(width, is_unicode)[: max(1, options.size.height - 1)]:
            line.truncate(width, overflow="ellipsis" if is_unicode else "crop")
            line.no_wrap = True
            yield line

    def _lines(self, width: int, is_unicode: bool) -> list[Text]:
        from rich.text import Text

        progress, report = self._progress, self._progress.report
        share, left = _share(progress)
        head = Text.assemble((report.env, "bold"), f"  seed {report.seed}")
        times = f"{_clock(progress.elapsed_s)}{left}"
        head.append(" " * max(2, width - head.cell_len - len(times)) + times)
        cycle = Text(
            f"cycle {len(report.cycles) + 1}" + (f" of {progress.n_cycles}" if progress.n_cycles else "") + "  "
        )
        cells = width - cycle.cell_len - 6
        full, empty = ("━", "─") if is_unicode else ("#", "-")
        filled = int(share * cells)
        cycle.append(full * filled, "green").append(empty * (cells - filled), "dim").append(f"  {share:4.0%}")
        doing = Text("starting")
        if progress.doing is not None:
            states = ", ".join(f"{n} {state}" for state, n in progress.doing.states.items())
            doing = Text(f"{progress.doing.phase}, round {progress.doing.n_rounds}")
            doing.append(f": {states}" if states else "", "dim")
        struck = _struck(progress)
        counts = Text(f"{_counted(report.n_steps, 'step')}  {_counted(_n_restarts(progress), 'restart')}  ")
        counts.append(_counted(sum(struck.values()), "fault"))
        listed = ", ".join(f"{kind} {n}" for kind, n in struck.items() if n)
        counts.append(f": {listed}" if listed else "", "dim")
        n = len(report.found)
        verdict = Text(_counted(n, "violation"), "bold red" if n else "green")
        return [head, cycle, doing, counts, verdict]


def _share(progress: SoakProgress) -> tuple[float, str]:
    """Return how far the soak is, from 0 to 1, and in words how long the rest will take."""
    done = len(progress.report.cycles)
    shares = [0.0]
    if progress.n_cycles is not None:
        shares.append(min(1.0, done / progress.n_cycles))
    if progress.within_s is not None:
        shares.append(min(1.0, progress.elapsed_s / progress.within_s))
    share = max(shares)
    if share == 0.0 or not done:
        return share, ""
    return share, f", about {_clock(progress.elapsed_s * (1 - share) / share)} left"


def _struck(progress: SoakProgress) -> dict[str, int]:
    """Return how many faults of each kind have struck."""
    return {kind: counts.total() - counts["too late"] for kind, counts in progress.report.outcomes().items()}


def _n_restarts(progress: SoakProgress) -> int:
    return sum(cycle.n_restarts for cycle in progress.report.cycles)


def _counted(n: int, one: str) -> str:
    return f"{n:,} {one}{'s' * (n != 1)}"


def _clock(seconds: float) -> str:
    from stepherd.testing.soak_report import duration

    return duration(seconds)
