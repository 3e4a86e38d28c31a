"""Shows a training run: a live picture on a terminal, ML-Agents' one-line summaries everywhere else.

Draws at most four times a second and only when called, so it needs no thread. Losing the terminal, or whoever reads
the other end of a pipe, ends the display and never the run. Knows nothing of envs, policies or processes.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from stepherd.core.deadline import Clock
from stepherd.training.progress import BehaviorProgress, Progress, TimeShares, WorkerStatus
from stepherd.training.statistics import WINDOW, Summary

log = logging.getLogger(__name__)

REFRESH_S = 0.25  # people see no more, and a terminal over a network takes no more

_BEHAVIORS_MAX = 8
_TWO_LINES_MAX = 3  # so many behaviors have a second line each
_ROWS_MAX = 8  # up to so many workers have a line each; of more, only those that need looking at
_LOOK_AT_MAX = 4
_STATES = {  # a glyph, one for terminals without Unicode, a colour; what needs looking at comes first
    "down": ("✗", "x", "red"),
    "closing": ("◍", "c", "yellow"),
    "spawning": ("○", "o", "yellow"),
    "stepping": ("●", "*", "green"),
    "resetting": ("◌", "r", "cyan"),
    "idle": ("·", ".", "dim"),
}
_PARTS = (  # of the time: a short name, a shade for want of colours, a letter for want of Unicode, a colour
    ("simulate", "sim", "█", "S", "green"),
    ("transport", "trans", "▓", "T", "cyan"),
    ("infer", "infer", "▒", "I", "blue"),
    ("update", "update", "░", "U", "magenta"),
    ("other", "other", "·", ".", "dim"),
)


def summary_text(summary: Summary) -> str:
    """Return the line that ML-Agents prints for a summary; people's scripts read it."""
    if summary.mean_reward is None:
        outcome = "No episode was completed since last summary"
    else:
        outcome = f"Mean Reward: {summary.mean_reward:.3f}. Std of Reward: {summary.std_reward:.3f}"
    mode = "Training" if summary.is_training else "Not Training"
    return f"{summary.behavior}. Step: {summary.step}. Time Elapsed: {summary.elapsed_s:.3f} s. {outcome}. {mode}."


@contextmanager
def open_display(console: Console, is_terminal: bool, clock: Clock = time.monotonic) -> Iterator[Display]:
    """Give the display of a run; on a terminal its last picture stays when the block is left."""
    if not is_terminal or console.is_dumb_terminal:
        yield Display(console, None, clock)
        return
    live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
    display = Display(console, live, clock)
    display.attempt(live.start)
    try:
        yield display
    finally:
        display.draw()  # the last progress may have come too soon after the one before
        with suppress(OSError, SystemExit):  # also a lost one gives the standard streams back
            live.stop()


class Display:
    """What `open_display` gives. No call blocks for longer than the terminal takes to show it."""

    def __init__(self, console: Console, live: Live | None, clock: Clock) -> None:
        self._console = console
        self._live = live
        self._clock = clock
        self._progress: Progress | None = None
        self._drawn_at = -REFRESH_S
        self._is_lost = False

    def update(self, progress: Progress) -> None:
        """Show how far the run is, unless that was done less than a quarter of a second ago or there is no terminal."""
        self._progress = progress
        if self._live is not None and self._clock() - self._drawn_at >= REFRESH_S:
            self._drawn_at = self._clock()
            self.draw()

    def summary(self, summary: Summary) -> None:
        """Print a summary line; on a terminal, above the live picture."""
        self.message(summary_text(summary))

    def message(self, text: str) -> None:
        """Print a line; on a terminal, above the live picture."""
        printable = Text(_printable(text, self._console.encoding))  # as it is: brackets are no markup here
        self.attempt(lambda: self._console.print(printable, soft_wrap=True))

    def draw(self) -> None:
        """Show the last progress now."""
        live, progress = self._live, self._progress
        if live is not None and progress is not None:
            self.attempt(lambda: live.update(_Picture(progress), refresh=True))

    def attempt(self, show: Callable[[], object]) -> None:
        """Show something, or find out that nobody is looking any more."""
        if self._is_lost:
            return
        try:
            show()
        except (OSError, SystemExit) as error:  # rich leaves the process by itself when a pipe has closed
            self._is_lost = True
            log.warning("The display is lost (%s); the run goes on without it.", error)


@dataclass(frozen=True, slots=True)
class _Picture:
    """A progress, drawn for whatever size the terminal has at that moment."""

    progress: Progress

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        progress = self.progress
        width = max(8, options.max_width - 1)  # some terminals begin a new line when the last column is filled
        height = max(4, options.size.height - 1)
        pen = _Pen(width, options.encoding, has_colours=console.color_system is not None)
        above = [pen.head(progress), *pen.behaviors(progress.behaviors)]
        below = [pen.time(progress.time), pen.time_bar(progress.time)]
        workers = pen.workers(progress.workers, lines_max=height - len(above) - len(below))
        for line in [*above, *workers, *below][:height]:
            line.truncate(width, overflow="ellipsis" if pen.is_unicode else "crop")
            line.no_wrap = True
            yield line


@dataclass(frozen=True, slots=True)
class _Pen:
    """Draws the lines of a picture `width` cells wide."""

    width: int
    encoding: str
    has_colours: bool

    @property
    def is_unicode(self) -> bool:
        return self.encoding.lower().startswith("utf")

    def head(self, progress: Progress) -> Text:
        line = Text().append(_printable(progress.run_id, self.encoding), "bold")
        line.append(f"  {_duration(progress.elapsed_s)}")
        left = "" if progress.eta_s is None else f", about {_duration(progress.eta_s)} left"
        speed = f"{progress.steps_per_s:,.0f} steps/s"
        space = self.width - line.cell_len - len(speed)
        if space >= len(left) + 2:
            line.append(left)
            space -= len(left)
        return line.append(" " * max(2, space)).append(speed, "bold")

    def behaviors(self, behaviors: tuple[BehaviorProgress, ...]) -> list[Text]:
        shown = behaviors[:_BEHAVIORS_MAX]
        has_two_lines = len(behaviors) <= _TWO_LINES_MAX
        names = [_printable(one.name, self.encoding) for one in shown]
        name_width = max((min(cell_len(name), self.width // 4) for name in names), default=0)
        facts = [f"{one.step:,} / {one.max_steps:,}" if has_two_lines else f"reward {_reward(one)}" for one in shown]
        facts_width = max(map(len, facts), default=0)
        lines: list[Text] = []
        for one, name, fact in zip(shown, names, facts, strict=True):
            share = min(1.0, one.step / one.max_steps) if one.max_steps > 0 else 1.0
            line = Text(set_cell_size(name, name_width) + "  ")
            line.append_text(self._bar(share, self.width - name_width - facts_width - 10))
            lines.append(line.append(f"  {int(share * 100):3}%  {fact:>{facts_width}}"))
            if has_two_lines:
                lines.append(Text(" " * (name_width + 2)).append_text(_episodes(one)))
        if len(behaviors) > len(shown):
            lines.append(Text(f"and {len(behaviors) - len(shown)} more behaviors", "dim"))
        return lines

    def workers(self, workers: tuple[WorkerStatus, ...], lines_max: int) -> list[Text]:
        if not workers:  # the envs run in this process
            return []
        has_rows = len(workers) <= min(_ROWS_MAX, lines_max - 1)
        n_of = Counter(worker.state for worker in workers)
        counts = Text(f"{len(workers)} worker{'s' * (len(workers) != 1)}:")
        for state in [*(known for known in _STATES if n_of[known]), *(other for other in n_of if other not in _STATES)]:
            if not has_rows:  # then this is the legend, too
                counts.append(" ").append_text(self._glyph(state))
            counts.append(f" {n_of[state]} {state},")
        counts.right_crop(1)
        if has_rows:
            return [counts, *map(self._worker, workers)]
        glyphs = Text().join(self._glyph(worker.state) for worker in workers)
        lines = [counts, *(glyphs[at : at + self.width] for at in range(0, len(glyphs), self.width))]
        troubled = [worker for worker in workers if worker.state == "down" or worker.n_restarts]
        troubled.sort(key=lambda worker: (worker.state != "down", -worker.n_restarts))
        lines += map(self._worker, troubled[:_LOOK_AT_MAX])
        if len(troubled) > _LOOK_AT_MAX:
            lines.append(Text(f"and {len(troubled) - _LOOK_AT_MAX} more that were restarted", "dim"))
        return lines[: max(1, lines_max)]

    def time(self, time: TimeShares) -> Text:
        """Draw the legend of the time bar, in long words if they fit."""
        long, short = Text("time"), Text("time")
        for part, name, _, letter, colour in _PARTS:
            share = f" {getattr(time, part):.0%}"
            mark = "" if self.is_unicode else f"{letter}="
            long.append(f"  {mark}{part}", colour).append(share)
            short.append(f"  {mark}{name}", colour).append(share)
        return long if long.cell_len <= self.width else short

    def time_bar(self, time: TimeShares) -> Text:
        line = Text()
        begin = 0.0
        cells = self.width - len("^C")  # which a terminal echoes right behind it; wrapped, it would shift the picture
        for part, _, shade, letter, colour in _PARTS:
            end = begin + getattr(time, part) * cells
            glyph = letter if not self.is_unicode else "━" if self.has_colours else shade
            line.append(glyph * (round(end) - round(begin)), colour)
            begin = end
        return line

    def _worker(self, worker: WorkerStatus) -> Text:
        line = Text(f"{worker.worker_id:>4} ").append_text(self._glyph(worker.state))
        line.append(f" {worker.state:<9}  pid {worker.pid:<8}{worker.n_steps:>11,} steps")
        if worker.n_restarts:
            line.append(f"  {worker.n_restarts} restart{'s' * (worker.n_restarts != 1)}", "yellow")
        return line

    def _glyph(self, state: str) -> Text:
        glyph, letter, colour = _STATES.get(state, ("?", "?", "default"))
        return Text(glyph if self.is_unicode else letter, colour)

    def _bar(self, share: float, cells: int) -> Text:
        filled = int(share * max(0, cells))
        full, empty = ("━", "─") if self.is_unicode else ("#", "-")
        return Text(full * filled, "green").append(empty * (cells - filled), "dim")


def _printable(text: str, encoding: str) -> str:
    """Return `text` with escapes for what the terminal's encoding does not have."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _reward(behavior: BehaviorProgress) -> str:
    return "-" if behavior.mean_reward_last_100 is None else f"{behavior.mean_reward_last_100:,.2f}"


def _episodes(behavior: BehaviorProgress) -> Text:
    n = behavior.n_episodes
    if behavior.mean_reward_last_100 is None:
        return Text("no episode has ended yet", "dim")
    of = f"last {WINDOW} of {n:,} episodes" if n > WINDOW else f"{n} episode{'s' * (n != 1)}"
    return Text("mean reward ").append(_reward(behavior), "bold").append(f" ({of})")


def _duration(seconds: float) -> str:
    minutes, left = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}"
