"""`stepherd learn` as a person uses it: a real process, real signals, and afterwards nothing is left."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runs.counted_envs import COUNT_DIR, counted_steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

TESTS = Path(__file__).parent.parent
BOUND_S = 120.0  # generous: a run below takes a few seconds, on a machine that has time for it
CONFIG = """
default_settings:
  trainer_type: ppo
  hyperparameters: {batch_size: 64, buffer_size: 256, num_epoch: 2, learning_rate: 1.0e-3}
  network_settings: {hidden_units: 32, num_layers: 1}
  max_steps: %(max_steps)d
  summary_freq: 500
  checkpoint_interval: 500
env_settings: {env_path: "%(env)s", num_envs: %(num_envs)d, seed: 7}
checkpoint_settings: {run_id: it}
"""


class Run:
    """A folder to run `stepherd learn` in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts = folder / "counts"
        self.counts.mkdir()

    def configure(self, env: str = "make_cartpole", *, max_steps: int = 3000, num_envs: int = 3) -> None:
        """Write the configuration."""
        env = env if ":" in env else f"python:runs.counted_envs:{env}"
        text = CONFIG % {"env": env, "max_steps": max_steps, "num_envs": num_envs}
        (self.folder / "config.yaml").write_text(text)

    @contextmanager
    def start(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        """Start the command; it is killed if the test ends first."""
        process = subprocess.Popen(
            [sys.executable, "-m", "stepherd", "learn", "config.yaml", *options],
            cwd=self.folder,
            env=os.environ | {COUNT_DIR: str(self.counts), "PYTHONPATH": str(TESTS)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=10)

    def finish(self, *options: str) -> tuple[int, str]:
        """Run the command to its end; return its exit code and what it printed."""
        with self.start(*options) as process:
            output, _ = process.communicate(timeout=BOUND_S)
            return process.returncode, output

    @property
    def checkpoints(self) -> list[int]:
        """The steps of the checkpoints there are."""
        folder = self.folder / "results" / "it" / "checkpoints"
        return sorted(int(path.name) for path in folder.glob("[0-9]*")) if folder.exists() else []

    def workers(self) -> list[int]:
        """The process ids of workers whose parent is this run or which belong to its folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if path.resolve() == self.folder and "stepherd.worker" in (path.parent / "cmdline").read_text():
                    found.append(int(path.parent.name))
            except OSError:
                continue  # it ended while we looked
        return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def wait_until(condition: Callable[[], bool], what: str, within_s: float = BOUND_S) -> None:
    """Wait for a condition; fail the test if it does not come true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.02)


def steps_reported(output: str) -> tuple[int, int]:
    """The delivered and the discarded steps of the close report."""
    found = re.search(r"Closed \d+ workers in [\d.]+ s: (\d+) steps delivered, (\d+) discarded", output)
    assert found, output
    return int(found[1]), int(found[2])


def test_a_run_ends_at_exactly_max_steps_and_every_step_of_the_envs_is_accounted_for(run: Run) -> None:
    run.configure(max_steps=2999, num_envs=3)  # not a multiple of the number of envs

    code, output = run.finish()

    assert code == 0, output
    delivered, discarded = steps_reported(output)
    assert delivered == 2999
    assert delivered + discarded == counted_steps(run.counts)
    assert run.checkpoints[-1] == 2999
    assert not run.workers()


def test_the_run_folder_has_what_a_person_looks_for(run: Run) -> None:
    run.configure(max_steps=1000)

    run.finish()

    folder = run.folder / "results" / "it"
    assert "seed: 7" in (folder / "configuration.yaml").read_text()
    status = json.loads((folder / "run_logs" / "training_status.json").read_text())
    assert status["CartPole"]["final_checkpoint"]["steps"] == 1000
    assert list((folder / "CartPole").glob("events.out.tfevents.*"))
    assert (folder / "run_logs" / "worker-0.log").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_closes_and_resume_ends_at_the_same_step(
    run: Run, number: signal.Signals, code: int
) -> None:
    run.configure("make_slow_cartpole", max_steps=3000)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    moment = random.Random(seed).randrange(100, 1500)
    with run.start() as process:
        wait_until(lambda: counted_steps(run.counts) > moment, "some steps")
        process.send_signal(number)
        output, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == code, output
    assert not run.workers()
    saved = run.checkpoints[-1]
    delivered, discarded = steps_reported(output)
    assert (delivered, discarded) == (saved, 0)
    assert counted_steps(run.counts) == saved

    resumed_code, output = run.finish("--resume")

    assert resumed_code == 0, output
    assert run.checkpoints[-1] == 3000
    assert counted_steps(run.counts) == 3000


def test_a_second_signal_closes_at_once_though_the_envs_hang(run: Run) -> None:
    run.configure("HangsInStep")
    with run.start() as process:
        wait_until(lambda: len(list(run.counts.glob("hangs-*"))) == 3, "all envs to hang")
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # a person's second Ctrl-C; within 0.1 s it counts as the same
        begun_at = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, output
    assert time.monotonic() - begun_at < 15.0  # the envs hang for an hour, and each grace is 5 s
    assert not run.workers()


def test_after_a_kill_of_the_trainer_no_worker_lives_and_the_run_can_be_resumed(run: Run) -> None:
    run.configure("make_slow_cartpole", max_steps=2500)
    with run.start() as process:
        wait_until(lambda: len(run.checkpoints) >= 2, "two checkpoints")
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)

        wait_until(lambda: not run.workers(), "the workers to be gone", within_s=2.0)

    code, output = run.finish("--resume")
    assert code == 0, output
    assert run.checkpoints[-1] == 2500


def test_a_worker_that_is_killed_is_named_and_replaced_and_the_step_count_stays_exact(run: Run) -> None:
    run.configure("make_slow_cartpole", max_steps=3000)
    with run.start() as process:
        wait_until(lambda: counted_steps(run.counts) > 300, "some steps")
        victim = run.workers()[0]
        os.kill(victim, signal.SIGKILL)
        output, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == 0, output
    assert f"pid {victim}" in output
    assert "SIGKILL" in output
    delivered, discarded = steps_reported(output)
    assert delivered == 3000
    assert delivered + discarded == counted_steps(run.counts)


def test_an_env_that_cannot_be_built_ends_the_run_with_its_own_traceback_and_code_3(run: Run) -> None:
    run.configure("Broken")

    code, output = run.finish()

    assert code == 3, output
    assert "FileNotFoundError: the level file maze.json is missing" in output
    assert "counted_envs.py" in output


def test_a_worker_that_keeps_dying_ends_the_run_with_code_4(run: Run) -> None:
    run.configure("DiesEachEpisode")

    code, output = run.finish()

    assert code == 4, output
    assert "restarts_rate_limit_n" in output
    assert not run.workers()


def test_mistakes_in_the_configuration_are_listed_with_their_lines_and_code_2(run: Run) -> None:
    run.configure()
    path = run.folder / "config.yaml"
    path.write_text(path.read_text().replace("batch_size", "batch_sise").replace("num_layers: 1", "num_layers: 0"))

    code, output = run.finish("--num-envs", "none")

    assert code == 2
    assert "config.yaml:4" in output
    assert "did you mean 'batch_size'?" in output
    assert "num_layers" in output
    assert "--num-envs" in output


def test_a_run_that_exists_is_refused_without_resume_or_force(run: Run) -> None:
    run.configure(max_steps=500)
    assert run.finish()[0] == 0

    refused, output = run.finish()
    forced, _ = run.finish("--force")

    assert refused == 2
    assert "--resume" in output
    assert "--force" in output
    assert forced == 0


def test_two_runs_on_one_folder_are_refused(run: Run) -> None:
    run.configure("make_slow_cartpole", max_steps=100_000)
    with run.start() as process:
        wait_until(lambda: counted_steps(run.counts) > 10, "the first run's steps")

        code, output = run.finish("--resume")

        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=BOUND_S)
    assert code == 2, output
    assert str(process.pid) in output


def test_inference_acts_with_the_saved_weights_and_saves_nothing(run: Run) -> None:
    run.configure(max_steps=1000)
    assert run.finish()[0] == 0
    before = counted_steps(run.counts)
    with run.start("--inference", "--resume") as process:
        wait_until(lambda: counted_steps(run.counts) > before + 1500, "more steps than max_steps")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == 130, output
    assert run.checkpoints[-1] == 1000
