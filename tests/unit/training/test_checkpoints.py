"""Whatever happens during or after a save, there is a checkpoint that loads, and it is not older than promised.

Run as a program, this file is the trainer that two of the tests kill.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import pickle
import random
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stepherd._version import __version__
from stepherd.core.errors import CheckpointError
from stepherd.training.checkpoints import (
    Checkpoints,
    find_checkpoint,
    latest_checkpoint,
    load_checkpoint,
    load_state_dict,
)
from stepherd.training.run_folder import RunFolder, list_checkpoints, open_run_folder

KILLS = 30
SEED = 20250117
CRASHES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.listdir", "os.scandir"}
"""The audit events at which the trainer is killed: everything that touches the disk; fsync comes on top."""


def run_folder(path: Path) -> RunFolder:
    (path / "run_logs").mkdir(parents=True, exist_ok=True)
    return RunFolder(path, path.name, is_resumed=False)


def weights(step: int) -> dict[str, Any]:
    """A state dict that tells which step it is from, large enough to be worth cutting in half."""
    return {"step": step, "policy": {"weight": torch.full((50, 50), float(step))}, "betas": (0.9, 0.999), "none": None}


def save(checkpoints: Checkpoints, step: int) -> Path:
    return checkpoints.save(step, {"CartPole": weights(step)}, {"n": step}, rewards={"CartPole": step / 2})


def step_that_loads(folder: Path) -> int:
    """Return which step a resume would go on from, having loaded all of it."""
    latest = latest_checkpoint(folder)
    assert latest is not None
    saved = load_checkpoint(latest.path)
    assert saved.step == latest.step == saved.steps["CartPole"] == saved.state["n"]
    assert torch.equal(saved.behaviors["CartPole"]["policy"]["weight"], torch.full((50, 50), float(saved.step)))
    return saved.step


def check_that_all_load(folder: Path) -> None:
    for path in list_checkpoints(folder):
        load_checkpoint(path)


def names(folder: Path) -> list[str]:
    return [path.name for path in list_checkpoints(folder)]


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    moments = {0: {"step": torch.tensor(3.0), "exp_avg": torch.rand(2, 3)}}  # as Adam has it
    adam = {"state": moments, "param_groups": [{"lr": 3e-4, "betas": (0.9, 0.999), "params": [0], "fused": None}]}
    network = OrderedDict(weight=torch.rand(2, 3), counts=torch.tensor([2**40]), half=torch.ones(1, dtype=torch.half))
    state_dict = {"network": network, "adam": adam, "rng": torch.get_rng_state(), "is_trained": True}
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)

    path = checkpoints.save(
        1000,
        {"My/Behavior?team=0": state_dict, "Other": {"n": 3}},
        {"seed": 7, "wall_s": 12.5, "nested": {"counts": [1, 2], "rng": 2**127 + 1}},
        steps={"My/Behavior?team=0": 990},
    )
    saved = load_checkpoint(path)

    assert path == tmp_path / "checkpoints" / "1000"
    assert {file.name for file in path.iterdir()} == {
        "My%2FBehavior%3Fteam=0.pt",
        "Other.pt",
        "state.json",
        "manifest.json",
    }
    assert (saved.step, saved.steps) == (1000, {"My/Behavior?team=0": 990, "Other": 1000})
    assert saved.state == {"seed": 7, "wall_s": 12.5, "nested": {"counts": [1, 2], "rng": 2**127 + 1}}
    assert saved.behaviors["Other"] == {"n": 3}
    loaded = saved.behaviors["My/Behavior?team=0"]
    torch.testing.assert_close(loaded, state_dict, rtol=0, atol=0)
    assert loaded["adam"]["param_groups"] == adam["param_groups"]


def test_tensors_come_back_on_the_device_that_is_asked_for(tmp_path: Path) -> None:
    path = save(Checkpoints(run_folder(tmp_path), keep=5), 1)

    saved = load_checkpoint(path, map_location="meta")

    assert saved.behaviors["CartPole"]["policy"]["weight"].device.type == "meta"


def test_a_run_without_checkpoints_has_no_latest(tmp_path: Path) -> None:
    assert Checkpoints(run_folder(tmp_path), keep=5).latest() is None
    assert latest_checkpoint(tmp_path / "missing") is None


def test_the_latest_is_the_one_with_the_highest_step_as_a_number(tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=0)
    for step in (9_000, 10_000, 800):
        save(checkpoints, step)

    latest = checkpoints.latest()

    assert latest is not None
    assert latest.step == 10_000


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        *itertools.product((cut_in_half, empty, Path.unlink), ("CartPole.pt", "state.json", "manifest.json")),
        *itertools.product((flip_a_bit,), ("CartPole.pt", "state.json")),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_damaged_newest_is_passed_over_with_a_warning_that_names_it(
    damage: Callable[[Path], None], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)
    save(checkpoints, 1000)
    newest = save(checkpoints, 2000)

    damage(newest / name)

    with caplog.at_level(logging.WARNING):
        assert step_that_loads(newest.parent) == 1000
    assert f"Checkpoint {newest} is" in caplog.text
    assert name in caplog.text
    with pytest.raises(CheckpointError, match=str(newest)):
        load_checkpoint(newest)


def test_a_run_whose_checkpoints_are_all_damaged_is_an_error_and_no_new_start(tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)
    for step in (1000, 2000):
        empty(save(checkpoints, step) / "CartPole.pt")

    with pytest.raises(CheckpointError, match=r"Every checkpoint in .* is damaged \(2 of them\)"):
        checkpoints.latest()


def test_a_checkpoint_of_a_later_format_is_refused_with_the_version_that_wrote_it(tmp_path: Path) -> None:
    path = save(Checkpoints(run_folder(tmp_path), keep=5), 1)
    described = json.loads((path / "state.json").read_text())
    text = json.dumps({**described, "format": 99, "stepherd_version": "9.9"})
    (path / "state.json").write_text(text)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"size_bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(CheckpointError, match=r"written by Stepherd 9\.9 in format 99"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (2, ["10000", "11000"]),
        (1, ["11000"]),
        (5, ["9000", "10000", "11000"]),
        (0, ["9000", "10000", "11000"]),
        (-1, ["9000", "10000", "11000"]),
    ],
)
def test_the_newest_stay_by_number_and_not_by_spelling(keep: int, left: list[str], tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep)

    for step in (9_000, 10_000, 11_000):
        save(checkpoints, step)

    assert names(tmp_path / "checkpoints") == left
    assert step_that_loads(tmp_path / "checkpoints") == 11_000


def test_saving_again_at_the_same_step_replaces_the_first(tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)
    for tries in (1, 2, 3):
        checkpoints.save(1000, {"CartPole": {"tries": tries}}, {})

    latest = checkpoints.latest()

    assert latest is not None
    assert load_checkpoint(latest.path).behaviors["CartPole"] == {"tries": 3}
    assert len(names(tmp_path / "checkpoints")) == 1


def test_a_run_that_went_on_from_an_older_one_keeps_what_it_saves_and_what_is_damaged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)
    save(checkpoints, 1000)
    empty(save(checkpoints, 2000) / "CartPole.pt")

    resumed = Checkpoints(run_folder(tmp_path), keep=1)
    save(resumed, 1500)

    assert names(tmp_path / "checkpoints") == ["1500", "2000"]
    assert step_that_loads(tmp_path / "checkpoints") == 1500

    save(resumed, 2000)

    assert names(tmp_path / "checkpoints") == ["2000-2"]
    assert step_that_loads(tmp_path / "checkpoints") == 2000


def test_old_ones_stay_when_the_new_one_does_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=1)
    save(checkpoints, 1000)
    fsync = os.fsync

    def lose_data(fd: int) -> None:
        if os.fstat(fd).st_size > 5000:
            os.ftruncate(fd, 5000)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", lose_data)
    save(checkpoints, 2000)

    assert names(tmp_path / "checkpoints") == ["1000", "2000"]
    assert step_that_loads(tmp_path / "checkpoints") == 1000
    assert "is the disk failing?" in caplog.text


def test_leftovers_of_a_crash_are_cleared_away_at_the_start_and_nothing_else_is(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    (folder.checkpoints / ".tmp-500" / "deep").mkdir(parents=True)
    (folder.checkpoints / ".tmp-old-400").mkdir()
    (folder.checkpoints / "best").mkdir()

    Checkpoints(folder, keep=5)

    assert [path.name for path in folder.checkpoints.iterdir()] == ["best"]


def test_everything_reaches_the_disk_before_the_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)
    happened: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(fd: int) -> None:
        fsync(fd)
        happened.append(Path(f"/proc/self/fd/{fd}").readlink().relative_to(tmp_path).as_posix())

    def note_rename(path: Path, target: Path) -> Path:
        happened.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    save(checkpoints, 7)

    at = happened.index("rename")
    files = {f"checkpoints/.tmp-7/{name}" for name in ("CartPole.pt", "state.json", "manifest.json")}
    assert set(happened[: at - 1]) == files
    assert happened[at - 1 : at + 2] == ["checkpoints/.tmp-7", "rename", "checkpoints"]


def test_a_full_disk_at_any_moment_leaves_the_earlier_ones_and_a_later_save_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=2)
    save(checkpoints, 1)
    fsync = os.fsync

    for fails_at in range(4):  # three files, then their folder
        left = iter(range(fails_at))

        def fill_up(fd: int, left: Any = left) -> None:
            if next(left, None) is None:
                raise OSError(122, "Disk quota exceeded")
            fsync(fd)

        monkeypatch.setattr(os, "fsync", fill_up)
        with pytest.raises(CheckpointError, match=r"Cannot save checkpoint .*2: .*quota exceeded.* MiB free.* is 1\."):
            save(checkpoints, 2)

        assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"1"}
        assert step_that_loads(tmp_path / "checkpoints") == 1

    monkeypatch.setattr(os, "fsync", fsync)
    save(checkpoints, 2)

    assert step_that_loads(tmp_path / "checkpoints") == 2


def test_a_file_system_that_takes_no_more_is_reported_as_such(tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=2)
    save(checkpoints, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CheckpointError, match="File too large"):
            save(checkpoints, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"1"}


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    folder.checkpoints.touch()

    with pytest.raises(CheckpointError, match="Cannot prepare"):
        Checkpoints(folder, keep=5)


def test_an_interrupted_save_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)

    def interrupt(fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(checkpoints, 1)

    assert list((tmp_path / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("value", [random.Random(), lambda: None, object()], ids=["Random", "lambda", "object"])
def test_what_could_not_be_loaded_again_is_refused_before_it_is_saved(value: object, tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)

    with pytest.raises(TypeError, match="state dict of CartPole holds something other than tensors"):
        checkpoints.save(1, {"CartPole": {"generator": value}}, {})

    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_state_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(run_folder(tmp_path), keep=5)

    with pytest.raises(TypeError, match="not JSON serializable"):
        checkpoints.save(1, {}, {"weights": torch.zeros(1)})

    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_the_training_status_has_ml_agents_shape_and_follows_the_checkpoints(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "results" / "demo")
    checkpoints = Checkpoints(folder, keep=2)
    at_the_start = json.loads(folder.training_status.read_text())

    for step in (100, 200, 300):
        checkpoints.save(step, {"Cart/Pole": {}}, {}, steps={"Cart/Pole": step - 1}, rewards={"Cart/Pole": step / 4})
    status = json.loads(folder.training_status.read_text())

    metadata = {
        "stats_format_version": "0.3.0",
        "stepherd_version": __version__,
        "torch_version": str(torch.__version__),
    }
    assert at_the_start == {"metadata": metadata}
    assert set(status) == {"Cart/Pole", "metadata"}
    entries = status["Cart/Pole"]["checkpoints"]
    assert [(entry["steps"], entry["reward"]) for entry in entries] == [(199, 50.0), (299, 75.0)]
    assert status["Cart/Pole"]["final_checkpoint"] == entries[-1]
    assert entries[-1]["file_path"] == f"{tmp_path}/results/demo/checkpoints/300/Cart%2FPole.pt"
    assert Path(entries[-1]["file_path"]).exists()
    assert entries[-1]["auxillary_file_paths"] == []
    assert entries[-1]["creation_time"] > entries[0]["creation_time"] > 1.6e9


def test_the_training_status_goes_on_after_a_resume(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    save(Checkpoints(folder, keep=5), 100)
    folder.training_status.unlink()

    save(Checkpoints(folder, keep=5), 200)

    entries = json.loads(folder.training_status.read_text())["CartPole"]["checkpoints"]
    assert [entry["steps"] for entry in entries] == [100, 200]


def test_a_reward_that_is_no_number_does_not_break_the_status(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)

    Checkpoints(folder, keep=5).save(1, {"CartPole": {}}, {}, rewards={"CartPole": float("nan")})

    assert json.loads(folder.training_status.read_text())["CartPole"]["final_checkpoint"]["reward"] is None


def test_a_status_that_cannot_be_written_costs_a_warning_and_no_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run_folder(tmp_path)
    folder.training_status.mkdir()

    save(Checkpoints(folder, keep=5), 1)

    assert step_that_loads(folder.checkpoints) == 1
    assert "training_status.json" in caplog.text


def test_weights_are_loaded_from_any_path(tmp_path: Path) -> None:
    path = save(Checkpoints(run_folder(tmp_path), keep=5), 3)
    elsewhere = (path / "CartPole.pt").rename(tmp_path / "good weights.pt")

    assert load_state_dict(elsewhere)["step"] == 3


def files_of_no_weights() -> dict[str, bytes]:
    generator = random.Random(1)
    return {
        "empty": b"",
        "text": b"behaviors:\n  CartPole:\n",
        "zip": b"PK\x03\x04" + generator.randbytes(300),
        "pickle": pickle.dumps({"policy": object()}),
        **{f"noise {n}": generator.randbytes(n) for n in range(1, 60)},
    }


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_file_of_no_weights_is_one_clear_error(tmp_path: Path) -> None:
    whole = (save(Checkpoints(run_folder(tmp_path), keep=5), 3) / "CartPole.pt").read_bytes()
    cut = {f"cut at {n}": whole[:n] for n in range(0, len(whole), 997)}
    for name, data in {**files_of_no_weights(), **cut}.items():
        path = tmp_path / f"{name}.pt"
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match=f"{name}.pt .* is not a file of weights that loads"):
            load_state_dict(path)


def test_a_file_that_is_missing_or_holds_something_else_is_named(tmp_path: Path) -> None:
    torch.save(torch.zeros(2), tmp_path / "tensor.pt")

    with pytest.raises(CheckpointError, match=r"Cannot read .*missing\.pt: No such file"):
        load_state_dict(tmp_path / "missing.pt")
    with pytest.raises(CheckpointError, match="holds a Tensor, not a state dict"):
        load_state_dict(tmp_path / "tensor.pt")


def test_another_run_is_found_to_initialize_from_while_it_goes_on(tmp_path: Path) -> None:
    with open_run_folder(tmp_path, "teacher") as folder:
        checkpoints = Checkpoints(folder, keep=5)
        for step in (100, 200):
            save(checkpoints, step)
        (folder.checkpoints / ".tmp-300").mkdir()

        found = find_checkpoint(tmp_path, "teacher")

        assert found.step == 200
        assert (folder.checkpoints / ".tmp-300").exists()


def test_a_run_to_initialize_from_that_has_nothing_to_give_is_an_error_that_says_why(tmp_path: Path) -> None:
    with open_run_folder(tmp_path, "young"):
        pass
    (tmp_path / "old" / "3DBall").mkdir(parents=True)
    (tmp_path / "old" / "3DBall" / "checkpoint.pt").touch()

    with pytest.raises(CheckpointError, match="there is no folder"):
        find_checkpoint(tmp_path, "missing")
    with pytest.raises(CheckpointError, match="has not reached a checkpoint yet"):
        find_checkpoint(tmp_path, "young")
    with pytest.raises(CheckpointError, match="trained by ML-Agents"):
        find_checkpoint(tmp_path, "old")


@pytest.mark.timeout(30)
def test_importing_the_module_does_not_import_torch() -> None:
    code = "import sys, stepherd.training.checkpoints; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=20, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["at every operation", "at random moments"])
def test_a_trainer_killed_while_it_saves_leaves_the_last_save_that_returned_or_a_newer_one(
    how: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, how, str(tmp_path)]

    done = subprocess.run(command, env=environment, timeout=50, check=False, capture_output=True, text=True)

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    n_kills = int(done.stdout.split()[-2])
    assert n_kills >= KILLS, done.stdout


def kill_at_every_operation(path: Path) -> int:
    """Save a third checkpoint, each time killed one operation later, until the save gets through; return the kills."""
    begin = run_folder(path / "begin")
    for step in (1, 2):
        save(Checkpoints(begin, keep=2), step)
    for n_kills in itertools.count():
        folder = RunFolder(path / str(n_kills), "demo", is_resumed=True)
        shutil.copytree(begin.path, folder.path)

        def save_once(report: Callable[[int], None], folder: RunFolder = folder, n_kills: int = n_kills) -> None:
            die_at(n_kills)
            save(Checkpoints(folder, keep=2), 3)
            report(3)

        promised = max([2, *Trainer(save_once).end()])
        assert step_that_loads(folder.checkpoints) in (promised, 3), f"killed at operation {n_kills}"
        check_that_all_load(folder.checkpoints)
        save(Checkpoints(folder, keep=2), 4)
        assert names(folder.checkpoints)[-1] == "4", f"killed at operation {n_kills}"
        assert len(list(folder.checkpoints.iterdir())) == 2, f"killed at operation {n_kills}"
        if promised == 3:
            return n_kills
    raise AssertionError


def die_at(operation: int) -> None:
    """Kill this process just before its next operation of that number that touches the disk."""
    counted = itertools.count()
    fsync = os.fsync

    def count(event: str = "fsync", arguments: object = None) -> None:
        if (event in CRASHES or event == "fsync") and next(counted) == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def count_fsync(fd: int) -> None:
        count()
        fsync(fd)

    sys.addaudithook(count)
    os.fsync = count_fsync  # type: ignore[assignment]  # takes what this module gives it, not every kind of file


def kill_at_random_moments(path: Path) -> int:
    """Kill a trainer that saves in a loop, over and over; return the kills."""
    folder = run_folder(path)
    generator = random.Random(SEED)
    promised = 0
    for n_kills in range(KILLS):

        def save_for_ever(report: Callable[[int], None], begin: int = promised + 1) -> None:
            checkpoints = Checkpoints(folder, keep=2)
            for step in itertools.count(begin):
                save(checkpoints, step)
                report(step)

        child = Trainer(save_for_ever)
        promised = max([promised, *child.end(first_report_within_s=20, then_after_s=generator.uniform(0.0, 0.03))])
        check_that_all_load(folder.checkpoints)
        loads = step_that_loads(folder.checkpoints)
        assert loads in (promised, promised + 1), f"kill {n_kills}, seed {SEED}: {loads} loads, {promised} was promised"
    return KILLS


class Trainer:
    """A child process that reports each save that has returned."""

    def __init__(self, work: Callable[[Callable[[int], None]], None]) -> None:
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            work(lambda step: self._report(writer, step))
            os._exit(0)
        os.close(writer)

    @staticmethod
    def _report(writer: int, step: int) -> None:
        os.write(writer, struct.pack("q", step))

    def end(self, first_report_within_s: float | None = None, then_after_s: float = 0.0) -> list[int]:
        """Return what was reported: until the child ends, or until it is killed some time after its first report."""
        reports = b""
        if first_report_within_s is not None:
            assert select.select([self._reader], [], [], first_report_within_s)[0], "no save returned"
            select.select([], [], [], then_after_s)
            os.kill(self._pid, signal.SIGKILL)
        while data := os.read(self._reader, 65536):  # ends when the child has
            reports += data
        os.close(self._reader)
        os.waitpid(self._pid, 0)
        return [step for (step,) in struct.iter_unpack("q", reports)]


if __name__ == "__main__":
    run = kill_at_every_operation if sys.argv[1] == "at every operation" else kill_at_random_moments
    print(run(Path(sys.argv[2])), "kills")
