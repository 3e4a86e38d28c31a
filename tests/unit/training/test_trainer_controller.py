"""A run from a configuration to a closed pool: what is saved when, and what an error or a stop leaves behind."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepherd.core.errors import ConfigError, EnvNeverReady, SpecError, TrainingDiverged, WorkerFailed
from stepherd.training import trainer_controller
from stepherd.training.config import (
    CheckpointSettings,
    Config,
    EnvSettings,
    NetworkSettings,
    PPOHyperparameters,
    TorchSettings,
    TrainerSettings,
)
from stepherd.training.progress import Progress
from stepherd.training.statistics import Summary
from stepherd.training.stop_signals import Stop, StopNow
from stepherd.training.trainer_controller import Outcome, train
from unit.training.fake_envs import FakeEnvs, behavior, one_torch_thread

__all__ = ["one_torch_thread"]  # a fixture
pytestmark = pytest.mark.usefixtures("one_torch_thread")

INTERVAL = 8
N_ENVS = 4


class Listener:
    """A watcher that writes down what it is told."""

    def __init__(self) -> None:
        self.updates: list[Progress] = []
        self.summaries: list[Summary] = []
        self.messages: list[str] = []

    def update(self, progress: Progress) -> None:
        """Write it down."""
        self.updates.append(progress)

    def summary(self, summary: Summary) -> None:
        """Write it down."""
        self.summaries.append(summary)

    def message(self, text: str) -> None:
        """Write it down."""
        self.messages.append(text)


class Runs:
    """Starts runs in one results folder, on fake envs."""

    def __init__(self, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._results, self._monkeypatch = results, monkeypatch
        self.folder = results / "it"
        self.listener = Listener()
        self.stop = Stop(clock=lambda: next(self._clock))
        self._clock = itertools.count()
        self.opened_with: dict[str, Any] = {}

    def start(
        self,
        envs: FakeEnvs,
        *,
        on_open: Callable[[], None] = lambda: None,
        config: Config | None = None,
        resume: bool = False,
        inference: bool = False,
    ) -> Outcome:
        """Train on `envs`; `on_open` is called when the pool is asked for."""

        def opened(env: str, **how: Any) -> FakeEnvs:
            self.opened_with = {"env": env, **how}
            on_open()
            return envs

        self._monkeypatch.setattr(trainer_controller, "open_env_manager", opened)
        config = config or self.config()
        start = CheckpointSettings(run_id="it", results_dir=str(self._results), resume=resume, inference=inference)
        return train(config.model_copy(update={"checkpoint_settings": start}), self.stop, self.listener)

    def config(self, *, seed: int = 7, device: str | None = "cpu", **behaviors: TrainerSettings) -> Config:
        """Return a configuration with `behaviors`, or with settings for any."""
        return Config(
            default_settings=None if behaviors else settings(),
            behaviors=behaviors,
            env_settings=EnvSettings(env_path="python:pretended:env", num_envs=N_ENVS, seed=seed),
            torch_settings=TorchSettings(device=device),
        )

    @property
    def configuration(self) -> Path:
        """The file with the effective configuration."""
        return self.folder / "configuration.yaml"

    @property
    def checkpoints(self) -> list[int]:
        """The numbers of the checkpoints there are."""
        return sorted(int(path.name) for path in (self.folder / "checkpoints").glob("[0-9]*"))

    def checkpoint_bytes(self) -> dict[str, bytes]:
        """Return every file of every checkpoint."""
        folder = self.folder / "checkpoints"
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def saved_steps(self, number: int) -> dict[str, int]:
        """Return how far each behavior is in a checkpoint."""
        state = json.loads((self.folder / "checkpoints" / str(number) / "state.json").read_text())
        return {name: entry["steps"] for name, entry in state["behaviors"].items()}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path / "results", monkeypatch)


def settings(
    max_steps: int = 18, *, hidden_units: int = 4, buffer_size: int = 1000, interval: int = INTERVAL
) -> TrainerSettings:
    return TrainerSettings(
        hyperparameters=PPOHyperparameters(batch_size=4, buffer_size=buffer_size, num_epoch=1),
        network_settings=NetworkSettings(hidden_units=hidden_units, num_layers=1),
        max_steps=max_steps,
        checkpoint_interval=interval,
        summary_freq=8,
    )


def at_recv(n: int, act: Callable[[], None]) -> Callable[[FakeEnvs], None]:
    """Return a hook that acts in the n-th `recv`."""

    def hook(envs: FakeEnvs) -> None:
        if envs.n_recv == n:
            act()

    return hook


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


# A run that goes well.


def test_a_run_ends_at_max_steps_with_the_last_checkpoint_and_a_closed_pool(runs: Runs) -> None:
    envs = FakeEnvs(n_envs=N_ENVS, episode_length=3)

    outcome = runs.start(envs)

    assert outcome.steps == {"Walker": 18}
    assert outcome.mean_rewards == {"Walker": 3.0}
    assert outcome.is_saved
    assert outcome.folder == runs.folder
    assert outcome.report.delivered == 18
    assert envs.closed_with[0] is None  # in peace


def test_checkpoints_are_saved_at_the_interval_and_at_the_end(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS))

    assert runs.checkpoints == [8, 16, 18]


def test_the_watcher_gets_summaries_at_their_steps_and_a_last_update(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS, episode_length=3))

    assert [summary.step for summary in runs.listener.summaries] == [8, 16]
    assert runs.listener.updates[-1].behaviors[0].step == 18


def test_the_configuration_is_written_before_the_envs_are_opened_and_has_their_behaviors_after(runs: Runs) -> None:
    before: list[str] = []

    runs.start(FakeEnvs(n_envs=N_ENVS), on_open=lambda: before.append(runs.configuration.read_text()))

    assert yaml.safe_load(before[0])["env_settings"]["seed"] == 7
    assert "Walker" not in before[0]
    assert "Walker" in yaml.safe_load(runs.configuration.read_text())["behaviors"]


def test_the_pool_is_opened_as_the_configuration_says(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS))

    assert runs.opened_with["env"] == "python:pretended:env"
    assert runs.opened_with["num_workers"] == N_ENVS
    assert runs.opened_with["envs_per_worker"] == 1
    assert runs.opened_with["seed"] == 7
    assert runs.opened_with["log_dir"] == runs.folder / "run_logs"


def test_behaviors_with_different_max_steps_keep_checkpoint_numbers_of_their_own(runs: Runs) -> None:
    envs = FakeEnvs(behavior("Sheep"), behavior("Wolf"), n_envs=N_ENVS)

    outcome = runs.start(envs, config=runs.config(Sheep=settings(8), Wolf=settings(24)))

    assert outcome.steps == {"Sheep": 8, "Wolf": 24}
    assert runs.checkpoints == [16, 24, 32]
    assert [runs.saved_steps(n) for n in runs.checkpoints] == [
        {"Sheep": 8, "Wolf": 8},
        {"Sheep": 8, "Wolf": 16},
        {"Sheep": 8, "Wolf": 24},
    ]


def test_settings_for_behaviors_that_the_env_does_not_have_are_told(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS), config=runs.config(Walker=settings(), Cat=settings()))

    assert any("Cat" in message for message in runs.listener.messages)


# Starting again.


def test_a_resume_goes_on_with_the_count_and_says_the_seed_it_keeps(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS))
    envs = FakeEnvs(n_envs=N_ENVS)

    outcome = runs.start(envs, config=runs.config(seed=99, Walker=settings(30)), resume=True)

    assert "Resumed it at step 18, with its seed 7." in runs.listener.messages
    assert outcome.steps == {"Walker": 30}
    assert envs.n_delivered == 12
    assert runs.checkpoints[-1] == 30
    assert yaml.safe_load(runs.configuration.read_text())["env_settings"]["seed"] == 7
    assert runs.opened_with["seed"] not in (7, 99)  # or the envs would replay what they did before


def test_each_resume_gives_the_envs_another_seed(runs: Runs) -> None:
    seeds = []
    for n_steps in (8, 16, 24):
        runs.start(FakeEnvs(n_envs=N_ENVS), config=runs.config(Walker=settings(n_steps)), resume=n_steps > 8)
        seeds.append(runs.opened_with["seed"])

    assert len(set(seeds)) == 3


def test_a_resume_of_a_finished_run_ends_at_once(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS))
    envs = FakeEnvs(n_envs=N_ENVS)

    outcome = runs.start(envs, resume=True)

    assert outcome.steps == {"Walker": 18}
    assert outcome.is_saved
    assert envs.n_delivered == 0
    assert runs.checkpoints == [8, 16, 18]


def test_a_refused_resume_leaves_the_record_of_the_run_as_it_was(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS))
    before, checkpoints = runs.configuration.read_bytes(), runs.checkpoint_bytes()

    with pytest.raises(SpecError):
        runs.start(FakeEnvs(n_envs=N_ENVS), config=runs.config(Walker=settings(30, hidden_units=8)), resume=True)

    assert runs.configuration.read_bytes() == before
    assert runs.checkpoint_bytes() == checkpoints


def test_inference_leaves_the_record_of_the_run_as_it_was_and_goes_on_until_stopped(runs: Runs) -> None:
    runs.start(FakeEnvs(n_envs=N_ENVS))
    before, checkpoints = runs.configuration.read_bytes(), runs.checkpoint_bytes()
    envs = FakeEnvs(n_envs=N_ENVS, on_recv=at_recv(20, lambda: runs.stop.receive(signal.SIGINT)))

    outcome = runs.start(envs, config=runs.config(Walker=settings(interval=4)), resume=True, inference=True)

    assert envs.n_delivered >= 80
    assert outcome.is_saved  # there is nothing to save
    assert runs.configuration.read_bytes() == before
    assert runs.checkpoint_bytes() == checkpoints


def test_a_run_that_never_began_can_be_started_again_without_force(runs: Runs) -> None:
    typo = FakeEnvs(n_envs=N_ENVS, on_enter=lambda _: raising(EnvNeverReady(0, "no such env"))())
    with pytest.raises(EnvNeverReady):
        runs.start(typo)

    outcome = runs.start(FakeEnvs(n_envs=N_ENVS))

    assert outcome.steps == {"Walker": 18}


def test_a_device_that_torch_does_not_have_is_a_mistake_in_the_configuration(runs: Runs) -> None:
    with pytest.raises(ConfigError, match=r"torch_settings\.device: 'nonsense'"):
        runs.start(FakeEnvs(n_envs=N_ENVS), config=runs.config(device="nonsense"))


@pytest.mark.parametrize(
    "device",
    [
        "nonsense",
        "cuda:99",
        "hpu",
    ],
)
def test_every_device_that_cannot_be_used_is_refused_by_name(device: str) -> None:
    with pytest.raises(ConfigError, match=device):
        trainer_controller._checked_device(device)


# Errors.


def test_when_training_diverges_the_checkpoints_from_before_are_untouched(runs: Runs) -> None:
    saved: dict[str, bytes] = {}
    envs = FakeEnvs(n_envs=N_ENVS, reward=1e30, on_recv=at_recv(4, lambda: saved.update(runs.checkpoint_bytes())))

    with pytest.raises(TrainingDiverged):
        runs.start(envs, config=runs.config(Walker=settings(100, buffer_size=16)))

    assert runs.checkpoints == [8]
    assert saved
    assert runs.checkpoint_bytes() == saved
    assert "Closed 1 worker" in runs.listener.messages[-1]


def test_when_a_worker_has_failed_for_good_what_was_done_is_saved_and_accounted_for(runs: Runs) -> None:
    error = WorkerFailed(0, "its restart budget is spent")
    envs = FakeEnvs(n_envs=N_ENVS, on_recv=at_recv(4, raising(error)))

    with pytest.raises(WorkerFailed) as caught:
        runs.start(envs)

    assert caught.value is error
    assert runs.checkpoints == [8, 12]
    assert "12 steps delivered" in runs.listener.messages[-1]
    assert envs.closed_with


def test_a_worker_that_fails_before_the_first_step_leaves_no_checkpoint(runs: Runs) -> None:
    envs = FakeEnvs(n_envs=N_ENVS, on_recv=at_recv(1, raising(WorkerFailed(0, "spent"))))

    with pytest.raises(WorkerFailed):
        runs.start(envs)

    assert runs.checkpoints == []


# Stops.


def test_a_stop_takes_in_what_is_on_its_way_saves_and_returns(runs: Runs) -> None:
    envs = FakeEnvs(n_envs=N_ENVS, on_recv=at_recv(3, lambda: runs.stop.receive(signal.SIGTERM)))

    outcome = runs.start(envs, config=runs.config(Walker=settings(100)))

    assert outcome.is_saved
    assert outcome.steps == {"Walker": 16}  # three turns, and the one that was on its way
    assert runs.checkpoints[-1] == 16
    assert not envs.in_flight
    assert envs.closed_with[0] is None


def test_a_second_signal_closes_at_once_and_what_came_since_is_not_saved(runs: Runs) -> None:
    envs = FakeEnvs(n_envs=N_ENVS, on_recv=at_recv(4, raising(StopNow("now"))))

    outcome = runs.start(envs)

    assert outcome.steps == {"Walker": 12}
    assert not outcome.is_saved
    assert runs.checkpoints == [8]
    assert envs.closed_with[0] == 0.0


def test_a_second_signal_just_after_a_checkpoint_loses_nothing(runs: Runs) -> None:
    envs = FakeEnvs(n_envs=N_ENVS, on_recv=at_recv(3, raising(StopNow("now"))))

    outcome = runs.start(envs)

    assert outcome.steps == {"Walker": 8}
    assert outcome.is_saved


def test_a_stop_before_the_run_has_begun_raises_and_closes(runs: Runs) -> None:
    envs = FakeEnvs(n_envs=N_ENVS)
    runs.stop.receive(signal.SIGINT)

    with pytest.raises(StopNow):
        runs.start(envs)

    assert envs.closed_with == [0.0]
    assert runs.checkpoints == []


def test_one_signal_while_the_envs_start_is_enough(runs: Runs) -> None:
    envs = FakeEnvs(n_envs=N_ENVS, on_enter=lambda _: runs.stop.receive(signal.SIGINT))

    with pytest.raises(StopNow):
        runs.start(envs)

    assert envs.closed_with == [0.0]
