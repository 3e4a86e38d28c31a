"""Saves and loads what a resume needs, such that there is always a checkpoint that loads.

    checkpoints/<step>/
      <Behavior>.pt     one per behavior: what its trainer gave, loadable with `weights_only=True`
      state.json        steps, rewards, versions, and what the caller wants back
      manifest.json     size and SHA-256 of every other file

A checkpoint is written into a folder of another name, reaches the disk, and only then gets its own; so a kill, a full
disk or a power cut leaves the earlier ones and never half of a new one. One that is damaged later is noticed and the
one before it is used. There is no `<Behavior>/checkpoint.pt` as in ML-Agents, which would be a second truth that can
be old or half written: `--initialize-from RUN` means the newest good checkpoint of that run (`find_checkpoint`).

Knows nothing of trainers: state dicts and JSON values pass through.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import shutil
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleError
from typing import TYPE_CHECKING, Any, cast

from stepherd._version import __version__
from stepherd.core.errors import CheckpointError
from stepherd.training.run_folder import (
    TEMPORARY,
    RunFolder,
    behavior_folder_name,
    checkpoint_order,
    discard_folder,
    list_checkpoints,
    sync_folder,
    write_atomically,
    write_through,
)

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_StateDicts = Mapping[str, Mapping[str, Any]]
_Behaviors = dict[str, dict[str, Any]]  # by behavior: file, steps, reward, created; as in state.json

_STATE = "state.json"
_MANIFEST = "manifest.json"
_FORMAT = 1
# What torch.load raises for an empty file, random bytes, a cut file or a pickle of something else (all seen).
_UNREADABLE = (EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError, PickleError, struct.error)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    step: int


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What a checkpoint holds."""

    step: int
    behaviors: dict[str, dict[str, Any]]
    """The state dict of each behavior's trainer."""
    steps: dict[str, int]
    """How far each behavior was."""
    state: dict[str, Any]
    """What the caller of `save` wanted back. JSON made its tuples lists and its keys strings."""


class Checkpoints:
    """The checkpoints of the run that holds `folder`; there is one such object per run. Owns no resource.

    Clears away what a crash left of unfinished ones and writes the training status, so that it exists from the start.
    `keep` is how many checkpoints stay; 0 or less keeps all.

    Raises:
        CheckpointError: the folder cannot be made or read.
    """

    def __init__(self, folder: RunFolder, keep: int) -> None:
        self._folder = folder.checkpoints
        self._status = folder.training_status
        self._keep = keep
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for leftover in self._folder.glob(f"{TEMPORARY}*"):
                shutil.rmtree(leftover)
            self._saved = {path: _read_behaviors(path) for path in list_checkpoints(self._folder)}
        except OSError as error:
            raise CheckpointError(f"Cannot prepare {self._folder}: {error}") from error
        self._write_status()

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint whose files are all whole, None if there is none at all: `latest_checkpoint`."""
        return latest_checkpoint(self._folder)

    def save(
        self,
        step: int,
        state_dicts: _StateDicts,
        state: Mapping[str, Any],
        *,
        steps: Mapping[str, int] | None = None,
        rewards: Mapping[str, float | None] | None = None,
    ) -> Path:
        """Save a checkpoint, delete the oldest beyond `keep`, and bring the training status up to date.

        When this returns, the checkpoint is on the disk. `state_dicts` has, by behavior, tensors, numbers, strings,
        lists, tuples and dicts; `state` anything JSON can hold. `steps` is how far each behavior is (`step` if not
        given), `rewards` its mean reward for the status. Saving twice at one step is fine: the later one replaces
        the earlier. Blocks for as long as the disk takes.

        Raises:
            CheckpointError: the file system refused. The earlier checkpoints are untouched, nothing half written is
                left, and a later save may succeed: training can go on.
            TypeError: a state dict or `state` holds something that could not be loaded again.
        """
        assert step >= 0, f"step {step}"
        path = self._next_path(step)
        behaviors = {
            name: {
                "file": f"{behavior_folder_name(name)}.pt",
                "steps": (steps or {}).get(name, step),
                "reward": (rewards or {}).get(name),
                "created": time.time(),
            }
            for name in state_dicts
        }
        aside = self._folder / f"{TEMPORARY}{path.name}"
        try:
            shutil.rmtree(aside, ignore_errors=True)  # left by a failed save whose clean-up failed too
            aside.mkdir()
            _write_files(aside, step, behaviors, state_dicts, state)
            sync_folder(aside)
            aside.rename(path)
            sync_folder(self._folder)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if isinstance(error, OSError):
                raise CheckpointError(self._why_not_saved(path, error)) from error
            raise
        self._saved[path] = behaviors
        self._rotate(path)
        self._write_status()
        return path

    def _next_path(self, step: int) -> Path:
        taken = [number for at, number in map(_order, list_checkpoints(self._folder)) if at == step]
        return self._folder / (f"{step}-{max(taken) + 1}" if taken else str(step))

    def _why_not_saved(self, path: Path, error: OSError) -> str:
        newest = max(self._saved, key=_order).name if self._saved else "none yet"
        free = "?"
        with suppress(OSError):
            free = str(shutil.disk_usage(self._folder).free // 2**20)
        return f"Cannot save checkpoint {path}: {error} ({free} MiB free). The newest that is whole is {newest}."

    def _rotate(self, saved: Path) -> None:
        """Delete what `saved` makes superfluous, but only once it has been read back and found whole."""
        order = _order(saved)
        # One with a higher step is a damaged one that the run was not resumed from; it is for its owner to delete.
        older = [path for path in list_checkpoints(self._folder) if _order(path) < order]
        replaced = [path for path in older if _order(path)[0] == order[0]]
        rest = older[: len(older) - len(replaced)]
        surplus = replaced + (rest[: max(0, len(rest) + 1 - self._keep)] if self._keep > 0 else [])
        if not surplus:
            return
        if (damage := _damage(saved)) is not None:
            log.warning("%s It was written just now; is the disk failing? Older checkpoints are kept.", damage)
            return
        try:
            for path in surplus:
                discard_folder(path)
        except OSError as error:
            log.warning("Cannot delete old checkpoints in %s: %s", self._folder, error)
        self._saved = {path: behaviors for path, behaviors in self._saved.items() if path.exists()}

    def _write_status(self) -> None:
        try:
            text = json.dumps(_status(self._saved), indent=4, allow_nan=False)
            write_atomically(self._status, text.encode())
        except OSError as error:  # it repeats what the checkpoints say, and is written again with the next one
            log.warning("Cannot write %s: %s", self._status, error)


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint in `folder` whose files are all whole, None if there is none at all. Only reads.

    Damaged ones are passed over with a warning that says which step is lost.

    Raises:
        CheckpointError: there are checkpoints, and every one is damaged.
    """
    paths = list_checkpoints(folder)
    for path in reversed(paths):
        if (damage := _damage(path)) is None:
            return Checkpoint(path, _order(path)[0])
        log.warning("%s It is passed over; the checkpoint before it is used, if there is one.", damage)
    if paths:
        raise CheckpointError(f"Every checkpoint in {folder} is damaged ({len(paths)} of them); none can be loaded.")
    return None


def load_checkpoint(path: Path, map_location: str | torch.device = "cpu") -> SavedRun:
    """Load a checkpoint, with its tensors on `map_location`. The bytes that are loaded are those that were verified.

    Raises:
        CheckpointError: it is incomplete, damaged, or of a format this version does not know.
    """
    manifest = _read_manifest(path)
    record = json.loads(_read_file(path, _STATE, manifest))
    if record["format"] != _FORMAT:
        raise CheckpointError(
            f"Checkpoint {path} was written by Stepherd {record['stepherd_version']} in format {record['format']}; "
            f"this version reads format {_FORMAT}."
        )
    saved = SavedRun(record["step"], {}, {}, record["state"])
    for name, entry in record["behaviors"].items():
        data = _read_file(path, entry["file"], manifest)
        saved.behaviors[name] = _load_tensors(data, path / entry["file"], map_location)
        saved.steps[name] = entry["steps"]
    return saved


def load_state_dict(path: Path, map_location: str | torch.device = "cpu") -> dict[str, Any]:
    """Load one `<Behavior>.pt`, wherever it lies (`init_path` in the configuration).

    Raises:
        CheckpointError: it is missing, or is not a state dict.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"Cannot read {path}: {error.strerror}. Give the path of a <Behavior>.pt.") from error
    return _load_tensors(data, path, map_location)


def find_checkpoint(results_dir: Path, run_id: str) -> Checkpoint:
    """Return the newest good checkpoint of another run, for `--initialize-from`. Only reads; the run may be going on.

    Raises:
        CheckpointError: there is no such run, or it has no checkpoint that loads.
    """
    run = Path(results_dir) / run_id
    if not run.is_dir():
        raise CheckpointError(f"Cannot initialize from run {run_id!r}: there is no folder {run}.")
    if (checkpoint := latest_checkpoint(run / "checkpoints")) is not None:
        return checkpoint
    if any(run.glob("*/checkpoint.pt")):
        raise CheckpointError(f"Cannot initialize from {run}: it was trained by ML-Agents, whose networks differ.")
    raise CheckpointError(f"Cannot initialize from run {run_id!r}: it has not reached a checkpoint yet.")


def _write_files(
    aside: Path, step: int, behaviors: _Behaviors, state_dicts: _StateDicts, state: Mapping[str, Any]
) -> None:
    described = {
        "format": _FORMAT,
        "step": step,
        **_versions(),
        "behaviors": behaviors,
        "state": dict(state),
    }
    files: dict[str, dict[str, int | str]] = {}

    def write(name: str, data: bytes | memoryview) -> None:
        write_through(aside / name, data)
        files[name] = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    write(_STATE, json.dumps(described, indent=2).encode())
    for name, state_dict in state_dicts.items():
        write(behaviors[name]["file"], _tensor_bytes(name, state_dict))
    write_through(aside / _MANIFEST, json.dumps({"format": _FORMAT, "files": files}, indent=2).encode())


def _tensor_bytes(behavior: str, state_dict: Mapping[str, Any]) -> memoryview:
    """Return the state dict as a file's bytes, having made sure that they can be loaded again."""
    import torch  # heavy

    # Through memory, because torch turns a full disk into errors of its own when it writes to a file itself.
    buffer = io.BytesIO()
    try:
        torch.save(dict(state_dict), buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True, map_location="meta")  # reads the structure, not the numbers
    except (PickleError, AttributeError, TypeError) as error:
        raise TypeError(
            f"the state dict of {behavior} holds something other than tensors, numbers, strings, lists, tuples and "
            f"dicts, so it could not be loaded again: {str(error).splitlines()[-1]}"
        ) from error
    return buffer.getbuffer()


def _load_tensors(data: bytes, path: Path, map_location: str | torch.device) -> dict[str, Any]:
    import torch  # heavy

    try:
        state_dict = torch.load(io.BytesIO(data), weights_only=True, map_location=map_location)
    except _UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path} ({len(data)} bytes) is not a file of weights that loads: {reason}") from error
    if not isinstance(state_dict, dict):
        raise CheckpointError(f"{path} holds a {type(state_dict).__name__}, not a state dict.")
    return state_dict


def _damage(path: Path) -> CheckpointError | None:
    """Return what is wrong with a checkpoint, None if every file is there and is what was written."""
    try:
        manifest = _read_manifest(path)
        for name in manifest:
            _read_file(path, name, manifest)
    except CheckpointError as error:
        return error
    return None


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())["files"]
    except FileNotFoundError:
        raise CheckpointError(f"Checkpoint {path} is not complete: it has no {_MANIFEST}.") from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"Checkpoint {path} is damaged: {_MANIFEST} cannot be read ({error}).") from error
    if not isinstance(manifest, dict) or _STATE not in manifest:
        raise CheckpointError(f"Checkpoint {path} is damaged: {_MANIFEST} does not list {_STATE}.")
    return manifest


def _read_file(path: Path, name: str, manifest: Mapping[str, Any]) -> bytes:
    try:
        data = (path / name).read_bytes()
        size_bytes, sha256 = manifest[name]["size_bytes"], manifest[name]["sha256"]
    except OSError as error:
        raise CheckpointError(f"Checkpoint {path} is damaged: {name} cannot be read ({error.strerror}).") from error
    except (LookupError, TypeError) as error:
        raise CheckpointError(f"Checkpoint {path} is damaged: {_MANIFEST} does not describe {name}.") from error
    if len(data) != size_bytes or hashlib.sha256(data).hexdigest() != sha256:
        sizes = f"{len(data)} bytes now, {size_bytes} when it was written"
        raise CheckpointError(f"Checkpoint {path} is damaged: {name} has changed ({sizes}).")
    return data


def _order(path: Path) -> tuple[int, int]:
    order = checkpoint_order(path)
    assert order is not None, path
    return order


def _read_behaviors(path: Path) -> _Behaviors:
    """Return what is known of a checkpoint without verifying it: nothing if it is damaged."""
    try:
        behaviors = json.loads((path / _STATE).read_bytes())["behaviors"]
        assert all({"file", "steps", "reward", "created"} <= entry.keys() for entry in behaviors.values())
    except (OSError, ValueError, LookupError, TypeError, AttributeError, AssertionError):
        return {}
    return cast("_Behaviors", behaviors)


def _status(saved: Mapping[Path, _Behaviors]) -> dict[str, Any]:
    status: dict[str, Any] = {}
    for path in sorted(saved, key=_order):
        for name, described in saved[path].items():
            reward = described["reward"]
            entry = {
                "steps": described["steps"],
                "file_path": (path / described["file"]).as_posix(),
                "reward": reward if reward is not None and math.isfinite(reward) else None,
                "creation_time": described["created"],
                "auxillary_file_paths": [],  # ML-Agents' spelling
            }
            behavior = status.setdefault(name, {"checkpoints": []})
            behavior["checkpoints"].append(entry)
            behavior["final_checkpoint"] = entry
    status["metadata"] = {"stats_format_version": "0.3.0", **_versions()}  # ML-Agents' number for this shape
    return status


def _versions() -> dict[str, str]:
    import torch  # heavy

    return {"stepherd_version": __version__, "torch_version": str(torch.__version__)}
