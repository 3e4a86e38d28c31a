"""A run folder has one owner, is never taken by mistake, and never mixes an old run with a new one."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepherd.core.errors import RunFolderError
from stepherd.training.run_folder import (
    RunFolder,
    behavior_folder_name,
    check_run_id,
    list_checkpoints,
    open_run_folder,
    write_atomically,
)

HOLD_THE_FOLDER = """
import sys
from pathlib import Path
from stepherd.training.run_folder import open_run_folder
with open_run_folder(Path(sys.argv[1]), "demo", resume=True):
    print("held", flush=True)
    sys.stdin.readline()
"""


def start_a_run(results: Path, *, checkpoints: tuple[int, ...] = ()) -> RunFolder:
    """Leave the folder of a run `demo` that was started and reached `checkpoints`."""
    with open_run_folder(results, "demo") as folder:
        folder.write_configuration("behaviors: {}\n")
        folder.behavior("CartPole").mkdir()  # the curves, from the first moment of a run
        for step in checkpoints:
            (folder.checkpoints / str(step)).mkdir(parents=True)
            (folder.checkpoints / str(step) / "state.json").write_text("{}")
    return folder


def refusal(results: Path, run_id: str = "demo", *, resume: bool = False, force: bool = False) -> str:
    """Return what is said to somebody who may not have the folder."""
    with pytest.raises(RunFolderError) as caught, open_run_folder(results, run_id, resume=resume, force=force):
        pass
    return str(caught.value)


def names_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_new_run_gets_an_empty_folder_with_a_place_for_everything(tmp_path: Path) -> None:
    with open_run_folder(tmp_path / "results", "demo") as folder:
        folder.write_configuration("default_settings: {}\n")

        assert not folder.is_resumed
        assert folder.path == tmp_path / "results" / "demo"
        assert folder.configuration.read_text() == "default_settings: {}\n"
        assert folder.worker_log(3) == folder.path / "run_logs" / "worker-3.log"
        assert folder.run_logs.is_dir()
        assert folder.behavior("Cart/Pole") == folder.path / "Cart%2FPole"


def test_an_empty_folder_counts_as_new(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()

    with open_run_folder(tmp_path, "demo") as folder:
        assert not folder.is_resumed


def test_a_run_that_left_nothing_but_its_lock_counts_as_new(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "run.lock").touch()
    (tmp_path / "demo" / "run.pid").write_text("{}")

    with open_run_folder(tmp_path, "demo") as folder:
        assert not folder.is_resumed


def test_an_existing_run_is_refused_with_what_to_type(tmp_path: Path) -> None:
    start_a_run(tmp_path)

    assert re.search(r"demo exists already.*--resume.*--force.*--run-id", refusal(tmp_path))


def test_a_refusal_leaves_no_trace_in_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.tex").touch()

    for resume in (False, True):
        refusal(tmp_path, resume=resume)

    assert names_in(tmp_path / "demo") == {"thesis.tex"}


def test_resume_of_a_run_with_checkpoints_keeps_everything(tmp_path: Path) -> None:
    start_a_run(tmp_path, checkpoints=(100, 200))
    before = names_in(tmp_path / "demo")

    with open_run_folder(tmp_path, "demo", resume=True) as folder:
        assert folder.is_resumed
        assert names_in(folder.path) - {"run.pid"} == before


def test_resume_wins_over_force_so_that_nothing_is_deleted(tmp_path: Path) -> None:
    start_a_run(tmp_path, checkpoints=(100,))

    with open_run_folder(tmp_path, "demo", resume=True, force=True) as folder:
        assert folder.is_resumed
        assert [path.name for path in list_checkpoints(folder.checkpoints)] == ["100"]


def test_resume_of_a_missing_run_says_which_runs_there_are(tmp_path: Path) -> None:
    start_a_run(tmp_path)

    said = refusal(tmp_path, "dmeo", resume=True)

    assert re.search(r"no run 'dmeo' to resume.*Runs there: demo\..*leave --resume out", said)
    assert not (tmp_path / "dmeo").exists()


def test_resume_of_a_run_that_never_reached_a_checkpoint_starts_it_again_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start_a_run(tmp_path)

    with caplog.at_level(logging.WARNING), open_run_folder(tmp_path, "demo", resume=True) as folder:
        assert not folder.is_resumed

    assert "demo never reached a checkpoint: it starts again at step 0" in caplog.text


def test_resume_is_refused_when_the_checkpoints_of_a_run_are_gone(tmp_path: Path) -> None:
    folder = start_a_run(tmp_path)
    folder.training_status.write_text(json.dumps({"CartPole": {"checkpoints": [{"steps": 5}]}, "metadata": {}}))

    assert re.search("has reached checkpoints, but .* holds none any more", refusal(tmp_path, resume=True))


def test_resume_of_a_run_of_ml_agents_is_refused_by_name(tmp_path: Path) -> None:
    run = tmp_path / "demo"
    (run / "3DBall").mkdir(parents=True)
    (run / "3DBall" / "checkpoint.pt").touch()
    (run / "configuration.yaml").touch()

    assert "run of ML-Agents" in refusal(tmp_path, resume=True)


def test_force_deletes_what_the_earlier_run_left_and_nothing_else(tmp_path: Path) -> None:
    folder = start_a_run(tmp_path, checkpoints=(100, 200))
    ours = ["CartPole/events.out.tfevents.1.host.2.0", "run_logs/worker-0.log", "run_logs/training_status.json"]
    foreign = ["notes.txt", "CartPole/plot.png", "checkpoints/best/CartPole.pt", "run_logs/mine.log"]
    for name in (*ours, *foreign):
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(name)

    with open_run_folder(tmp_path, "demo", force=True) as folder:
        left = {name for name in names_in(folder.path) if (folder.path / name).is_file()}

        assert not folder.is_resumed
        assert left == {*foreign, "run.lock", "run.pid"}
        assert list_checkpoints(folder.checkpoints) == []


def test_force_of_a_run_that_does_not_exist_just_starts_it(tmp_path: Path) -> None:
    with open_run_folder(tmp_path, "demo", force=True) as folder:
        assert not folder.is_resumed


def test_a_second_run_is_refused_with_the_process_that_holds_the_folder(tmp_path: Path) -> None:
    with open_run_folder(tmp_path, "demo"):
        for resume, force in ((False, False), (True, False), (False, True)):
            said = refusal(tmp_path, resume=resume, force=force)

            assert re.search(rf"{tmp_path}/demo is in use by .* process {os.getpid()}", said)


def test_a_second_run_is_refused_even_if_the_holder_left_no_word(tmp_path: Path) -> None:
    with open_run_folder(tmp_path, "demo") as folder:
        (folder.path / "run.pid").write_text("half a wo")

        assert "in use by another run" in refusal(tmp_path)


def test_the_folder_is_free_again_after_an_error_in_the_block(tmp_path: Path) -> None:
    def fail_in_the_block() -> None:
        with open_run_folder(tmp_path, "demo") as folder:
            folder.write_configuration("a: 1\n")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_block()

    with open_run_folder(tmp_path, "demo", resume=True):
        assert (tmp_path / "demo" / "run.pid").exists()
    assert not (tmp_path / "demo" / "run.pid").exists()


@pytest.mark.timeout(30)
def test_a_killed_run_holds_the_folder_no_longer(tmp_path: Path) -> None:
    start_a_run(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD_THE_FOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert f"process {process.pid}" in refusal(tmp_path, resume=True)

        process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)

    with open_run_folder(tmp_path, "demo", resume=True) as folder:
        assert json.loads((folder.path / "run.pid").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("run_id", ["ppo", "cart pole 3", "run-1_b.2", "длинный", "3", "a,b=c+d"])
def test_a_usual_run_id_is_taken(run_id: str, tmp_path: Path) -> None:
    with open_run_folder(tmp_path, run_id) as folder:
        assert folder.path.parent == tmp_path


@pytest.mark.parametrize(
    ("run_id", "problem"),
    [
        ("", "it is empty"),
        (".", "ends with a dot"),
        ("..", "ends with a dot"),
        ("../other", "contains '/'"),
        ("a/b", "contains '/'"),
        ("a\\b", r"contains '\\\\'"),
        ("a:b*", r"contains '\*' and ':'"),
        ("a\nb", r"contains '\\n'"),
        ("a\0b", r"contains '\\x00'"),
        (" a", "begins or ends with a space"),
        ("nul", "Windows"),
        ("COM1.txt", "Windows"),
    ],
)
def test_a_run_id_that_is_no_folder_name_is_refused_with_the_reason(run_id: str, problem: str) -> None:
    with pytest.raises(RunFolderError, match=problem):
        check_run_id(run_id)


def test_a_run_id_too_long_for_the_file_system_is_refused_as_such(tmp_path: Path) -> None:
    assert "Cannot make the run folder" in refusal(tmp_path, "a" * 300)


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "demo").touch()

    assert "demo is a file" in refusal(tmp_path)


def test_a_results_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").touch()

    assert re.search(r"Cannot make the run folder .*results.demo", refusal(tmp_path / "results"))


@pytest.mark.parametrize(
    ("behavior", "name"),
    [
        ("CartPole", "CartPole"),
        ("My/Behavior?team=0", "My%2FBehavior%3Fteam=0"),
        ("行走", "行走"),
        ("..", "%2E%2E"),
        ("checkpoints", "%63heckpoints"),
        ("Run_Logs", "%52un_Logs"),
        ("CON", "%43ON"),
        ("100%", "100%25"),
        ("end. ", "end.%20"),
    ],
)
def test_a_behavior_name_becomes_a_safe_readable_folder_name(behavior: str, name: str) -> None:
    assert behavior_folder_name(behavior) == name


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_a_folder_name_gives_its_behavior_back(behavior: str) -> None:
    name = behavior_folder_name(behavior)

    assert len(name.encode()) <= 120
    assert name not in (".", "..")
    assert not set(name) & set('/\\:*?"<>|\0')
    assert "~" in name or unquote(name) == behavior


def test_long_behavior_names_stay_apart() -> None:
    names = {behavior_folder_name("行" * 100 + end) for end in ("a", "b", "")}

    assert len(names) == 3
    assert max(len(name.encode()) for name in names) <= 120


def test_checkpoints_are_listed_by_number_and_nothing_else_is(tmp_path: Path) -> None:
    for name in ("9000", "10000", "10000-2", "10000-10", "11000", ".tmp-12000", "best", "7k"):
        (tmp_path / name).mkdir()

    assert [path.name for path in list_checkpoints(tmp_path)] == ["9000", "10000", "10000-2", "10000-10", "11000"]
    assert list_checkpoints(tmp_path / "missing") == []


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(28, "No space left on device")

    write_atomically(tmp_path / "status.json", b"old")
    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "status.json", b"new and longer")

    assert (tmp_path / "status.json").read_bytes() == b"old"
    assert names_in(tmp_path) == {"status.json"}


def test_a_configuration_that_cannot_be_written_is_a_run_folder_error(tmp_path: Path) -> None:
    with open_run_folder(tmp_path, "demo") as folder:
        folder.configuration.mkdir()

        with pytest.raises(RunFolderError, match=r"Cannot write .*configuration\.yaml"):
            folder.write_configuration("a: 1\n")
