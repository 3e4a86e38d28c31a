"""Every error Stepherd raises on purpose.

    StepherdError
    ├── ConfigError        the configuration file or the command line is wrong; lists everything that is
    ├── SpecError          an env has a space, shape or value that cannot be carried
    │   └── WrongValue          a value in the middle of a run is not finite or outside its space
    ├── RunFolderError     the run folder is taken, missing or cannot be resumed
    │   └── CheckpointError    a checkpoint cannot be written or read; the earlier ones are untouched
    ├── TrainingDiverged   weights or losses are not finite; what could be saved is what diverged
    ├── UnsupportedPlatform  worker processes cannot be supervised on this system yet
    ├── ManagerClosed      a call on an env manager after `close`
    ├── EnvBusy            an action was sent to an env that is not waiting for one
    ├── TooFewReady        a `recv` deadline passed; the answers that arrived stay queued
    └── WorkerError        something is wrong with one worker, which the message names
        ├── EnvNeverReady  its envs could not be built: not a crash, so never retried
        └── WorkerFailed   it failed and its restart budget is spent

Messages are for the person at 3 a.m.: who, what, since when, likely why, what to do, where to look.
"""

from __future__ import annotations

from typing import Any


class StepherdError(Exception):
    """The root: catch this to catch everything Stepherd raises on purpose."""


class ConfigError(StepherdError):
    """The configuration is wrong. `problems` has one line for each mistake, in file order."""

    def __init__(self, problems: list[str]) -> None:
        assert problems, "a ConfigError names at least one problem"
        self.problems = problems
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problems,), vars(self)  # or a pool or queue could not unpickle it, and would hang


class SpecError(StepherdError):
    """An env has a space, shape or value that cannot be carried; the message names it."""


class WrongValue(SpecError):
    """An env sent a value that is not finite or outside its space, in the middle of a run; nothing learned from it."""


class TrainingDiverged(StepherdError):
    """Losses, gradients or network outputs are not finite. The checkpoints from before are good; the state is not."""


class UnsupportedPlatform(StepherdError, NotImplementedError):
    """Worker processes cannot be supervised on this system yet."""


class RunFolderError(StepherdError):
    """The run folder is taken by another run, exists already, is missing, or cannot be resumed."""


class CheckpointError(RunFolderError):
    """A checkpoint cannot be written or read; the message says which, why, and what is still there."""


class ManagerClosed(StepherdError):
    """The env manager was closed before this call."""


class EnvBusy(StepherdError):
    """An action was sent to an env that is not waiting for one."""


class TooFewReady(StepherdError):
    """The deadline of a `recv` passed with fewer answers than asked for; those that arrived stay queued."""


class WorkerError(StepherdError):
    """Something is wrong with one worker. `worker_id` says which; the message says what, why and where to look."""

    def __init__(self, worker_id: int, message: str) -> None:
        self.worker_id = worker_id
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.worker_id, str(self)), vars(self)


class EnvNeverReady(WorkerError):
    """A worker's envs could not be built. A wrong path or a typo is not a crash, so this is never retried."""


class WorkerFailed(WorkerError):
    """A worker failed and its restart budget is spent."""
