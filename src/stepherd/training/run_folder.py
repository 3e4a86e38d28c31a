"""The folder a training run lives in: its layout, its lock, and how a file gets into it whole.

    results/<run-id>/
      configuration.yaml                 the effective configuration, written at the start
      <Behavior>/events.out.tfevents.*   TensorBoard (`statistics.py`)
      checkpoints/<step>/                one folder per checkpoint (`checkpoints.py`)
      run_logs/worker-<id>.log           what each worker printed
      run_logs/training_status.json      in ML-Agents' shape, current at each checkpoint
      run.lock, run.pid                  who holds the folder; they stay behind and mean nothing on their own

Knows nothing of torch, envs or learning.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from stepherd.core.errors import RunFolderError

log = logging.getLogger(__name__)

TEMPORARY = ".tmp-"
"""How names of things begin that are not finished or no longer wanted; whoever holds the folder may delete them."""

_CONFIGURATION = "configuration.yaml"
_CHECKPOINTS = "checkpoints"
_RUN_LOGS = "run_logs"
_STATUS = "training_status.json"
_LOCK = "run.lock"
_HOLDER = "run.pid"
_OURS = frozenset((_CONFIGURATION, _CHECKPOINTS, _RUN_LOGS, _LOCK, _HOLDER))

_CHECKPOINT_NAME = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_EVENTS = "events.out.tfevents.*"
_PLAIN = frozenset(" !#&'()+,-.=@[]^_{}~")  # with letters and digits: what every file system takes in a name
_WINDOWS_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10)))
)
_NAME_MAX_BYTES = 120  # file systems allow 255; `.pt`, `.tmp-` and percent signs of a caller still have to fit


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where the files of one run go. Good while the `open_run_folder` that gave it is open."""

    path: Path
    run_id: str
    is_resumed: bool
    """Whether there is a checkpoint to go on from. False after `--resume` of a run that never reached one."""

    @property
    def configuration(self) -> Path:
        """The file with the effective configuration."""
        return self.path / _CONFIGURATION

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / _CHECKPOINTS

    @property
    def run_logs(self) -> Path:
        """The folder of the workers' logs and the training status."""
        return self.path / _RUN_LOGS

    @property
    def training_status(self) -> Path:
        """The file that tells, in ML-Agents' shape, which checkpoints there are."""
        return self.run_logs / _STATUS

    def worker_log(self, worker_id: int) -> Path:
        """Return the file that worker `worker_id` prints into."""
        return self.run_logs / f"worker-{worker_id}.log"

    def behavior(self, name: str) -> Path:
        """Return the folder for TensorBoard events of one behavior; it need not exist yet."""
        return self.path / behavior_folder_name(name)

    def write_configuration(self, text: str) -> None:
        """Write `configuration.yaml`, whole or not at all.

        Raises:
            RunFolderError: it cannot be written; an earlier one is untouched.
        """
        with _os_errors_explained(f"Cannot write {self.configuration}"):
            write_atomically(self.configuration, text.encode())


@contextmanager
def open_run_folder(
    results_dir: Path, run_id: str, *, resume: bool = False, force: bool = False
) -> Iterator[RunFolder]:
    """Take the folder `results_dir/run_id` for one run, and hold it until the block is left.

    A folder that holds anything is only taken with `resume` or `force`; with both, `resume` wins, as in ML-Agents.
    `resume` of a run that was started but never reached a checkpoint starts it again at step 0, with a warning:
    there is nothing to lose, and a job that was interrupted early needs no other command line than one that was
    interrupted late. `force` deletes what an earlier run left (checkpoints, events, logs, configuration) before
    anything new is written, so that nothing stale is taken for new; files that are not ours stay.
    The lock belongs to this process and is dropped by the operating system however the process ends. Never blocks.

    Raises:
        RunFolderError: the run id is no folder name; another run holds the folder; it exists and neither `resume`
            nor `force` was given; there is nothing to resume; or the file system refuses.
    """
    check_run_id(run_id)
    path = Path(results_dir) / run_id
    with _os_errors_explained(f"Cannot make the run folder {path}"):
        if not (path / _LOCK).exists():  # a refusal leaves no lock file in a folder that is not ours
            _check_start(path, resume=resume, force=force)
        path.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        with _os_errors_explained(f"Cannot prepare the run folder {path}"):
            is_resumed = _check_start(path, resume=resume, force=force)
            if force and not resume:
                _remove_earlier_run(path)
            (path / _RUN_LOGS).mkdir(exist_ok=True)
        if resume and not is_resumed:
            log.warning("Run %s never reached a checkpoint: it starts again at step 0.", run_id)
        yield RunFolder(path, run_id, is_resumed)


def check_run_id(run_id: str) -> None:
    """Check that `run_id` can be the name of one folder on every platform.

    Raises:
        RunFolderError: it cannot; the message says why.
    """
    bad = sorted({character for character in run_id if character in '/\\:*?"<>|' or not character.isprintable()})
    if not run_id:
        problem = "it is empty"
    elif bad:
        problem = f"it contains {' and '.join(map(repr, bad))}"
    elif run_id in (".", "..") or run_id.endswith("."):
        problem = "it ends with a dot"
    elif run_id != run_id.strip():
        problem = "it begins or ends with a space"
    elif _is_windows_device(run_id):
        problem = "Windows keeps that name for a device"
    else:
        return
    raise RunFolderError(
        f"{run_id!r} cannot be a run id: {problem}. It names a folder; use letters, digits, '-', '_' and '.'."
    )


def behavior_folder_name(behavior: str) -> str:
    """Return the file name that stands for a behavior: readable, safe on every platform, one name for one behavior.

    What a file name cannot hold is percent-encoded, so `urllib.parse.unquote` gives the behavior back; only names
    over 120 bytes are cut, and told apart by a hash. `My/Behavior?team=0` becomes `My%2FBehavior%3Fteam=0`.
    """
    assert behavior, "a behavior has a name"
    characters = [c if c.isalnum() or c in _PLAIN else quote(c, safe="") for c in behavior]
    name = "".join(characters)
    if name[0] in ". " or name.casefold() in _OURS or _is_windows_device(name):
        characters[0] = f"%{ord(behavior[0]):02X}"
    if name[-1] in ". ":  # Windows drops them
        characters[-1] = f"%{ord(behavior[-1]):02X}"
    name = "".join(characters)
    if len(name.encode()) <= _NAME_MAX_BYTES:
        return name
    digest = hashlib.sha256(behavior.encode()).hexdigest()[:16]
    return f"{name.encode()[: _NAME_MAX_BYTES - 17].decode(errors='ignore')}~{digest}"


def checkpoint_order(path: Path) -> tuple[int, int] | None:
    """Return what checkpoints are ordered by, None if `path` is not named like one.

    Each is named after its step; one that was saved again at the same step ends in `-2`, `-3`, …
    """
    match = _CHECKPOINT_NAME.fullmatch(path.name)
    return None if match is None else (int(match[1]), int(match[2] or 1))


def list_checkpoints(folder: Path) -> list[Path]:
    """Return what is named like a checkpoint in `folder`, oldest first, by number and not by spelling."""
    if not folder.is_dir():
        return []
    found = [(order, path) for path in folder.iterdir() if (order := checkpoint_order(path)) is not None]
    return [path for _, path in sorted(found)]


def write_atomically(path: Path, data: bytes) -> None:
    """Write `path` so that everyone, also after a power cut, sees the old file or the new one and nothing between.

    Two writers of one path need a lock between them; here the run folder's.

    Raises:
        OSError: the file system refused; the old file is untouched.
    """
    aside = path.with_name(TEMPORARY + path.name)
    try:
        write_through(aside, data)
        aside.replace(path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_through(path: Path, data: bytes | memoryview) -> None:
    """Write a file and wait until the disk has it. The name is only safe after `sync_folder` of its folder."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in `folder`, where a folder can be opened for that (not on Windows)."""
    directory: int | None = getattr(os, "O_DIRECTORY", None)
    if directory is None:
        return
    fd = os.open(folder, os.O_RDONLY | directory)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot; nothing more to do
            raise
    finally:
        os.close(fd)


def discard_folder(path: Path) -> None:
    """Delete a folder such that its name is gone at once and a half-deleted one is never taken for a whole one."""
    aside = path.with_name(f"{TEMPORARY}old-{path.name}")
    shutil.rmtree(aside, ignore_errors=True)  # from a deletion that was cut off
    path.rename(aside)
    shutil.rmtree(aside)


def _is_windows_device(name: str) -> bool:
    return name.split(".")[0].strip().casefold() in _WINDOWS_DEVICES


@contextmanager
def _os_errors_explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"{what}: {error.strerror or error}. Is the disk full, or not yours to write to?"
        ) from error


def _check_start(path: Path, *, resume: bool, force: bool) -> bool:
    """Return whether the run goes on from a checkpoint.

    Raises:
        RunFolderError: this start is not possible.
    """
    if resume:
        return _check_resume(path)
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path} is a file, so it cannot be a run folder. Choose another --run-id.")
    if not path.exists() or _never_began(path) or force:
        return False
    raise RunFolderError(
        f"The run folder {path} exists already. Add --resume to go on with it, --force to delete it and start anew, "
        "or choose another --run-id."
    )


def _check_resume(path: Path) -> bool:
    if not path.is_dir():
        others = sorted(found.parent.name for found in path.parent.glob(f"*/{_CONFIGURATION}"))
        known = f" Runs there: {', '.join(others[-10:])}." if others else ""
        raise RunFolderError(
            f"There is no run {path.name!r} to resume in {path.parent}.{known} Check --run-id and --results-dir, "
            "or leave --resume out to start it."
        )
    if list_checkpoints(path / _CHECKPOINTS):
        return True
    if any(path.glob("*/checkpoint.pt")):
        raise RunFolderError(
            f"{path} holds a run of ML-Agents, whose checkpoints Stepherd cannot go on from. Choose another --run-id."
        )
    if _status_lists_checkpoints(path / _RUN_LOGS / _STATUS):
        raise RunFolderError(
            f"Run {path.name!r} has reached checkpoints, but {path / _CHECKPOINTS} holds none any more. Put them "
            "back, or use --force instead of --resume to start anew."
        )
    if not (path / _CONFIGURATION).exists() and not _never_began(path):
        raise RunFolderError(f"{path} holds no run to resume. Leave --resume out to start one.")
    return False


def _never_began(path: Path) -> bool:
    """Return whether a run got no further than to take this folder, for example because of a typo in its env.

    A run that has begun has a folder of curves for each behavior, from its first moment.
    """
    has_checkpoints = list_checkpoints(path / _CHECKPOINTS) or _status_lists_checkpoints(path / _RUN_LOGS / _STATUS)
    return not has_checkpoints and all(entry.name in _OURS for entry in path.iterdir())


def _status_lists_checkpoints(path: Path) -> bool:
    try:
        status = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(status, dict) and any(
        isinstance(entry, dict) and entry.get("checkpoints") for entry in status.values()
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout  # only training needs it

    lock = FileLock(path / _LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RunFolderError(
            f"The run folder {path} is in use by {_holder(path)}. "
            "Wait for that run, stop it, or choose another --run-id."
        ) from None
    except (OSError, NotImplementedError) as error:
        raise RunFolderError(
            f"Cannot lock {path / _LOCK}: {error}. Two runs in one folder would destroy each other, so none starts "
            "without the lock; choose a --results-dir that is yours and, if this is a network share, a local one."
        ) from error
    holder = path / _HOLDER
    try:
        with suppress(OSError):  # only there to make the refusal of a second run helpful
            started = time.strftime("%Y-%m-%d %H:%M:%S")
            holder.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started}))
        yield
    finally:
        with suppress(OSError):
            holder.unlink(missing_ok=True)
        lock.release()


def _holder(path: Path) -> str:
    try:
        holder = json.loads((path / _HOLDER).read_bytes())
        where = "" if holder["host"] == socket.gethostname() else f" on {holder['host']}"
        return f"another run: process {holder['pid']}{where}, started {holder['started']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has not written that yet
        return "another run"


def _remove_earlier_run(path: Path) -> None:
    logs = path / _RUN_LOGS
    files = [path / _CONFIGURATION, logs / "training_status.json", *logs.glob("worker-*.log")]
    files += [*path.glob(f"*/{_EVENTS}"), *path.glob(f"{TEMPORARY}*"), *logs.glob(f"{TEMPORARY}*")]
    for file in files:
        if not file.is_dir():
            file.unlink(missing_ok=True)
    checkpoints = list_checkpoints(path / _CHECKPOINTS)
    for checkpoint in checkpoints:
        discard_folder(checkpoint)
    if checkpoints:
        log.warning("Deleted %d checkpoints of the earlier run in %s, as --force asks.", len(checkpoints), path)
