"""Counts episodes out of batches, averages what learning reports, and writes both where TensorBoard finds it.

The tags are ML-Agents' (`Environment/Cumulative Reward`, `Policy/...`, `Losses/...`), so its users' scripts go on
working. Event files are written here and now, without the thread of TensorBoard's own writer: nothing is left behind,
and a full disk is noticed where it can be handled. Knows nothing of envs, policies or consoles.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from stepherd.core.deadline import Clock
from stepherd.spec.batch import Bools, Floats, Ints
from stepherd.training.run_folder import RunFolder

log = logging.getLogger(__name__)

WINDOW = 100
"""How many of the last episodes "the mean reward" is taken over."""

_REWARD = "Environment/Cumulative Reward"
_LENGTH = "Environment/Episode Length"
_HISTOGRAM_BINS = 30
_EVENTS = "events.out.tfevents"


@dataclass(frozen=True, slots=True)
class Summary:
    """What happened to one behavior since the summary before."""

    behavior: str
    step: int
    elapsed_s: float
    """Seconds since this start of the run, not counting what came before a resume; ML-Agents has it so."""
    mean_reward: float | None
    """Mean return of the episodes that ended; None if none did."""
    std_reward: float
    n_episodes: int
    is_training: bool = True


def boundary_passed(before: int, after: int, every: int) -> int | None:
    """Return the last multiple of `every` in (before, after], None if there is none.

    A step counter moves by many at once; this tells whether a summary or a checkpoint is due, and for which step.
    """
    assert every > 0, f"every {every} steps"
    boundary = after // every * every
    return boundary if boundary > before else None


@contextmanager
def open_statistics(
    folder: RunFolder,
    behaviors: Sequence[str],
    resume_from_steps: Mapping[str, int] | None = None,
    *,
    is_training: bool = True,
    clock: Clock = time.monotonic,
) -> Iterator[Statistics]:
    """Give the statistics of a run, whose event files are complete and closed when the block is left.

    Event files from before stay. What they hold beyond the step that a behavior is resumed from (0 if it is not in
    `resume_from_steps`) is marked as void, so that a curve has each step once.
    """
    with ExitStack() as stack:
        records = {}
        for behavior in behaviors:
            step = (resume_from_steps or {}).get(behavior, 0)
            events = _EventFiles(folder.behavior(behavior), first_step=step + 1 if step else 0)
            stack.callback(events.close)
            records[behavior] = _Record(events, step)
        yield Statistics(records, is_training=is_training, clock=clock)


class Statistics:
    """Episode returns and lengths, interval means and event files, by behavior. See `open_statistics`."""

    def __init__(self, records: dict[str, _Record], *, is_training: bool, clock: Clock) -> None:
        self._records = records
        self._is_training = is_training
        self._clock = clock
        self._began = clock()

    def record(self, behavior: str, slots: Ints, reward: Floats, ended: Bools, lost: Bools) -> None:
        """Count one answer from each of `slots`, which name each slot once. All arrays: (n,).

        `reward` and `ended` belong to the action before, so the first answers after a reset are not for here.
        The running episode of a `lost` slot is dropped.
        """
        self._records[behavior].count(slots, reward, ended, lost)

    def add(self, behavior: str, values: Mapping[str, float]) -> None:
        """Take in values by tag, such as an update's losses; the next `write` has their mean since the last."""
        averages = self._records[behavior].averages
        for tag, value in values.items():
            total, n = averages.get(tag, (0.0, 0))
            averages[tag] = (total + float(value), n + 1)

    def mean_of_last(self, behavior: str) -> float | None:
        """Return the mean return of the last 100 episodes, of all while there are fewer, None while there are none."""
        returns = self._records[behavior].last_returns
        return float(np.mean(returns)) if returns else None

    def mean_length_of_last(self, behavior: str) -> float | None:
        """Return the mean length of the same episodes."""
        lengths = self._records[behavior].last_lengths
        return float(np.mean(lengths)) if lengths else None

    def n_episodes(self, behavior: str) -> int:
        """Return how many episodes have ended since the run began."""
        return self._records[behavior].n_episodes

    def write(self, behavior: str, step: int, extra: Mapping[str, float] | None = None) -> Summary:
        """Write the interval since the last summary to the event file, start a new one, and return it in brief.

        `extra` is written as it is; a tag that was also given to `add` has the value from here.
        A disk that refuses costs a gap in the curves and is logged; it never ends the run.
        """
        record = self._records[behavior]
        assert step > record.last_step, f"{behavior}: a summary at step {step} after one at {record.last_step}"
        record.last_step = step
        returns = np.array(record.interval_returns)
        values = {tag: total / n for tag, (total, n) in record.averages.items()}
        std = 0.0
        if returns.size:
            with np.errstate(invalid="ignore"):  # an env's infinite reward shows in the curve, not as a warning here
                values[_REWARD], std = float(returns.mean()), float(returns.std())
            values[_LENGTH] = float(np.mean(record.interval_lengths))
        record.events.write_step(step, {**values, **(extra or {})}, {f"{_REWARD}_hist": returns})
        summary = Summary(
            behavior,
            step,
            self._clock() - self._began,
            values.get(_REWARD),
            std,
            int(returns.size),
            self._is_training,
        )
        record.start_interval()
        return summary

    def write_hyperparameters(self, behavior: str, values: Mapping[str, object]) -> None:
        """Write the settings of a behavior as a table, once per start of the run."""
        rows = "\n".join(f"| {name} | {value} |" for name, value in values.items())
        self._records[behavior].events.write_text("Hyperparameters", f"| setting | value |\n| --- | --- |\n{rows}")

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on counting, as JSON values. Episodes under way are not in it."""
        return {behavior: record.state() for behavior, record in self._records.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; behaviors it does not know begin anew."""
        for behavior, record in self._records.items():
            if behavior in state:
                record.restore(state[behavior])


class _Record:
    """What is counted for one behavior."""

    def __init__(self, events: _EventFiles, last_step: int) -> None:
        self.events = events
        self.last_step = last_step
        self.n_episodes = 0
        self.last_returns: deque[float] = deque(maxlen=WINDOW)
        self.last_lengths: deque[int] = deque(maxlen=WINDOW)
        self.averages: dict[str, tuple[float, int]] = {}
        self.interval_returns: list[float] = []
        self.interval_lengths: list[int] = []
        self._running_return: Floats = np.zeros(0)
        self._running_length: Ints = np.zeros(0, np.int64)

    def count(self, slots: Ints, reward: Floats, ended: Bools, lost: Bools) -> None:
        assert slots.shape == reward.shape == ended.shape == lost.shape, "one slot, reward and pair of marks per row"
        if not slots.size:
            return
        missing = int(slots.max()) + 1 - len(self._running_return)
        if missing > 0:
            self._running_return = np.pad(self._running_return, (0, missing))
            self._running_length = np.pad(self._running_length, (0, missing))
        returns = np.where(lost, 0.0, self._running_return[slots] + reward)
        lengths = np.where(lost, 0, self._running_length[slots] + 1)
        done = ended & ~lost
        self._running_return[slots] = np.where(done, 0.0, returns)
        self._running_length[slots] = np.where(done, 0, lengths)
        if done.any():
            self._end_episodes(returns[done].tolist(), lengths[done].tolist())

    def start_interval(self) -> None:
        self.averages = {}
        self.interval_returns = []
        self.interval_lengths = []

    def state(self) -> dict[str, Any]:
        return {
            "n_episodes": self.n_episodes,
            "last_returns": list(self.last_returns),
            "last_lengths": list(self.last_lengths),
            "interval_returns": self.interval_returns,
            "interval_lengths": self.interval_lengths,
            "averages": {tag: list(pair) for tag, pair in self.averages.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.n_episodes = int(state["n_episodes"])
        self.last_returns = deque(state["last_returns"], WINDOW)
        self.last_lengths = deque(state["last_lengths"], WINDOW)
        self.interval_returns = list(state["interval_returns"])
        self.interval_lengths = list(state["interval_lengths"])
        self.averages = {tag: (total, n) for tag, (total, n) in state["averages"].items()}

    def _end_episodes(self, returns: list[float], lengths: list[int]) -> None:
        self.n_episodes += len(returns)
        self.last_returns.extend(returns)
        self.last_lengths.extend(lengths)
        self.interval_returns.extend(returns)
        self.interval_lengths.extend(lengths)


class _EventFiles:
    """The event files of one behavior: one for each start of the run, and one more after each failure to write."""

    def __init__(self, folder: Path, first_step: int) -> None:
        self._folder = folder
        self._first_step = first_step
        self._file: BinaryIO | None = None
        self._marks_void = True
        self._write([])  # opens the file, so that what is void is marked so from the start

    def write_step(self, step: int, scalars: Mapping[str, float], histograms: Mapping[str, Floats]) -> None:
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary  # optional

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        for tag, numbers in histograms.items():
            finite = numbers[np.isfinite(numbers)]
            if not finite.size:
                continue
            counts, edges = np.histogram(finite, _HISTOGRAM_BINS)
            histogram = HistogramProto(
                min=finite.min(),
                max=finite.max(),
                num=finite.size,
                sum=finite.sum(),
                sum_squares=finite @ finite,
                bucket_limit=edges.tolist(),  # right ends, so the left end of all comes as an empty bucket's
                bucket=[0, *counts.tolist()],
            )
            values.append(Summary.Value(tag=tag, histo=histogram))
        self._write([{"step": step, "summary": Summary(value=values)}])

    def write_text(self, tag: str, markdown: str) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # optional
        from tensorboard.compat.proto.tensor_pb2 import TensorProto

        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype="DT_STRING", string_val=[markdown.encode()])
        value = Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor)
        self._write([{"step": self._first_step, "summary": Summary(value=[value])}])

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # all was flushed when it was written, or has failed and been reported
                self._file.close()
        self._file = None

    def _write(self, events: list[dict[str, Any]]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # optional
        from tensorboard.summary.writer.record_writer import RecordWriter

        try:
            if self._file is None:
                self._file, first = self._open()
                events = first + events
            writer = RecordWriter(self._file)
            for event in events:
                writer.write(Event(wall_time=time.time(), **event).SerializeToString())
            writer.flush()
        except OSError as error:
            log.warning("Cannot write TensorBoard events in %s: %s. The curves have a gap here.", self._folder, error)
            self.close()  # it may end in half a record, behind which nobody reads: the next try takes a new file
        else:
            self._marks_void = False

    def _open(self) -> tuple[BinaryIO, list[dict[str, Any]]]:
        """Return a new event file and what it begins with."""
        from tensorboard.compat.proto.event_pb2 import SessionLog  # optional

        self._folder.mkdir(parents=True, exist_ok=True)
        earlier = [path.name.removeprefix(f"{_EVENTS}.") for path in self._folder.glob(f"{_EVENTS}.*")]
        # TensorBoard reads files in the order of their names: ours comes last even if the clock was set back.
        stamp = max([int(time.time()), *(int(name[:10]) + 1 for name in earlier if name[:10].isdecimal())])
        path = self._folder / f"{_EVENTS}.{stamp:010d}.{socket.gethostname()}.{os.getpid()}.0"
        first: list[dict[str, Any]] = [{"file_version": "brain.Event:2"}]  # without it, nothing is taken as void
        if earlier and self._marks_void:
            start = {"step": self._first_step, "session_log": SessionLog(status=SessionLog.START)}
            first += [start, start]  # the first start that TensorBoard's page meets voids nothing, only the next does
        return path.open("xb"), first
