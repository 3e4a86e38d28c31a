"""The front door checks what it is given before it starts anything, and takes any factory there is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepherd
from stepherd.core.deadline import Timeouts
from stepherd.testing.faulty_envs import CountingEnv

FAULTY_ENVS = "python:stepherd.testing.faulty_envs"


@pytest.mark.parametrize(("num_workers", "envs_per_worker"), [(0, 1), (-1, 1), (1, 0)])
def test_a_pool_without_workers_or_envs_is_refused(num_workers: int, envs_per_worker: int) -> None:
    with pytest.raises(ValueError, match="needs workers and envs"):
        stepherd.open_env_manager("CartPole-v1", num_workers=num_workers, envs_per_worker=envs_per_worker)


@pytest.mark.parametrize("env", [None, 5, CountingEnv(), ["CartPole-v1"]], ids=lambda env: type(env).__name__)
def test_what_is_neither_a_uri_nor_a_callable_is_told_what_to_pass(env: Any) -> None:
    with pytest.raises(TypeError, match="pass what builds it"):
        stepherd.open_env_manager(env, num_workers=1)


def test_a_factory_that_cannot_be_sent_is_named() -> None:
    lock = threading.Lock()

    def make_with_a_lock() -> Any:
        return lock

    with pytest.raises(ValueError, match="make_with_a_lock cannot be sent to a worker"):
        stepherd.open_env_manager(make_with_a_lock, num_workers=1)


def test_an_argument_that_cannot_be_sent_is_named() -> None:
    with pytest.raises(ValueError, match=r"env_kwargs\['lock'\] cannot be sent to a worker"):
        stepherd.open_env_manager("CartPole-v1", num_workers=1, env_kwargs={"fine": 1, "lock": threading.Lock()})


def test_nothing_is_started_before_the_block_is_entered() -> None:
    manager = stepherd.open_env_manager("CartPole-v1", num_workers=4)

    report = manager.close()

    assert [worker.exit for worker in report.workers] == ["never started"] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        f"{FAULTY_ENVS}:CountingEnv",
        CountingEnv,
        lambda **kwargs: CountingEnv(**kwargs),
    ],
    ids=["uri", "class", "lambda"],
)
def test_arguments_reach_every_env(env: str | Callable[..., Any], tmp_path: Path) -> None:
    kwargs = {"length": 1, "counter_path": str(tmp_path / "counter")}
    with stepherd.open_env_manager(env, num_workers=2, env_kwargs=kwargs) as envs:
        envs.reset()

        assert envs.spec.names == ("CountingEnv",)
        assert envs.n_envs == 2


@pytest.mark.slow
def test_a_worker_imports_whatever_its_manager_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_on_my_path.py").write_text(
        "from stepherd.testing.faulty_envs import CountingEnv\n\nclass MyEnv(CountingEnv):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    with stepherd.open_env_manager("python:only_on_my_path:MyEnv", num_workers=1) as envs:
        assert envs.spec.names == ("MyEnv",)


@pytest.mark.slow
def test_a_worker_starts_whatever_the_folder_it_is_started_from_contains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("signal", "fcntl", "selectors", "numpy", "stepherd"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)

    with stepherd.open_env_manager(f"{FAULTY_ENVS}:CountingEnv", num_workers=1) as envs:
        assert envs.n_envs == 1


@pytest.mark.slow
def test_a_folder_that_is_gone_is_no_reason_not_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setattr("sys.path", ["", *os.sys.path])  # type: ignore[attr-defined]  # as `python -c` has it

    with stepherd.open_env_manager(f"{FAULTY_ENVS}:CountingEnv", num_workers=1) as envs:
        assert envs.n_envs == 1


@pytest.mark.slow
def test_logs_go_where_they_are_wanted(tmp_path: Path) -> None:
    def make() -> CountingEnv:
        print("hello from an env")
        return CountingEnv()

    with stepherd.open_env_manager(make, num_workers=2, log_dir=tmp_path / "logs"):
        pass

    assert [path.read_text() for path in sorted((tmp_path / "logs").iterdir())] == ["hello from an env\n"] * 2


@pytest.mark.slow
def test_events_reach_the_hook() -> None:
    happened: list[object] = []
    with stepherd.open_env_manager(f"{FAULTY_ENVS}:CountingEnv", num_workers=1, on_event=happened.append):
        pass

    assert [type(event).__name__ for event in happened] == ["WorkerStarted", "WorkerReady"]


@pytest.mark.slow
def test_a_start_that_takes_too_long_is_told_which_limit_to_raise() -> None:
    timeouts = Timeouts(spawn_s=0.5, grace_s=0.1)
    manager = stepherd.open_env_manager(
        f"{FAULTY_ENVS}:HangingEnv", num_workers=1, env_kwargs={"where": "constructor"}, timeouts=timeouts
    )

    with pytest.raises(stepherd.EnvNeverReady, match=r"spawn_s = 0\.5 s allows"), manager:
        pytest.fail("it opened")
