"""What became of a pool: the value that a close returns, with every step accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One worker, over all the processes it has had."""

    worker_id: int
    env_ids: tuple[int, ...]
    pid: int
    """Of the last process; 0 if none could be started."""
    exit: str
    """How the last process ended, in words."""
    n_restarts: int
    """After failures."""
    sent: int
    """Actions handed to the worker."""
    delivered: int
    """Steps whose outcome was handed to the caller."""
    discarded: Mapping[str, int]
    """Steps that an env began and whose outcome the caller never got, by cause."""
    unbegun: int
    """Actions that no env began to execute before its worker ended."""
    error: str | None
    """The last failure, the whole text; `None` for a worker that never failed."""
    leaked: bool
    """A process of it still runs, and nothing could end that."""
    n_recycled: int = 0
    """Processes that were replaced on purpose, healthy (`RecyclePolicy`)."""
    problems: tuple[str, ...] = ()
    """What went wrong on the way out, in words: an env whose `close` raised, a worker that had to be killed."""
    leaked_pids: tuple[int, ...] = ()
    """The processes that still run: the last one, or one that was replaced."""

    @property
    def executed(self) -> int:
        """Steps the worker's envs have begun, as counted inside the worker."""
        return self.delivered + sum(self.discarded.values())


@dataclass(frozen=True, slots=True)
class CloseReport:
    """All workers of a pool. `sent == delivered + discarded + unbegun`, always."""

    workers: tuple[WorkerReport, ...]
    took_s: float
    """How long the close took."""

    @property
    def sent(self) -> int:
        """Actions handed to workers."""
        return sum(worker.sent for worker in self.workers)

    @property
    def delivered(self) -> int:
        """Steps handed to the caller."""
        return sum(worker.delivered for worker in self.workers)

    @property
    def discarded(self) -> int:
        """Steps executed in vain."""
        return sum(sum(worker.discarded.values()) for worker in self.workers)

    @property
    def unbegun(self) -> int:
        """Actions never executed."""
        return sum(worker.unbegun for worker in self.workers)

    @property
    def executed(self) -> int:
        """Steps that envs have begun."""
        return self.delivered + self.discarded

    @property
    def leaked(self) -> tuple[WorkerReport, ...]:
        """The workers whose process could not be ended."""
        return tuple(worker for worker in self.workers if worker.leaked)

    def __str__(self) -> str:
        """The report in one line, and a line more for each worker that has something to say."""
        restarts = sum(worker.n_restarts for worker in self.workers)
        summary = (
            f"Closed {_counted(len(self.workers), 'worker')} in {self.took_s:.2f} s: "
            f"{_counted(self.delivered, 'step')} delivered, {self.discarded} discarded, "
            f"{_counted(restarts, 'restart')}, {_counted(len(self.leaked), 'process', 'processes')} left."
        )
        lines = [summary]
        lines += [f"  worker {w.worker_id}: {_remarks(w)}" for w in self.workers if _remarks(w)]
        return "\n".join(lines)


def _remarks(worker: WorkerReport) -> str:
    remarks = [f"{_counted(n, 'step')} discarded: {cause}" for cause, n in sorted(worker.discarded.items())]
    if worker.n_restarts:
        remarks.append(f"restarted {_counted(worker.n_restarts, 'time')}")
    if worker.n_recycled:
        remarks.append(f"recycled {_counted(worker.n_recycled, 'time')}")
    remarks += worker.problems
    if worker.leaked:
        remarks += [f"process {pid} could not be ended and still runs" for pid in worker.leaked_pids or (worker.pid,)]
    if worker.error is not None:
        remarks.append(worker.error.strip().splitlines()[0])
    return "; ".join(remarks)


def _counted(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"
