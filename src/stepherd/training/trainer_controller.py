"""A whole training run, from a configuration to a closed pool: the order of events and who owns what.

    run folder ▸ envs ▸ statistics ▸ trainers           opened in this order, closed in the reverse
    collect ▸ learn ▸ summary ▸ checkpoint              until max_steps or a stop
    drain ▸ last checkpoint ▸ close                     whatever was on its way arrives before anything ends

Prints nothing; a `Watcher` is told what happens.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from stepherd.core.errors import CheckpointError, ConfigError, SpecError, TrainingDiverged
from stepherd.manager.open import open_env_manager
from stepherd.manager.report import CloseReport
from stepherd.manager.restarts import RestartPolicy
from stepherd.manager.subprocess_env_manager import SubprocessEnvManager
from stepherd.training.behavior_trainer import BehaviorTrainer
from stepherd.training.checkpoints import (
    Checkpoints,
    SavedRun,
    find_checkpoint,
    latest_checkpoint,
    load_checkpoint,
    load_state_dict,
)
from stepherd.training.collection import Collector
from stepherd.training.config import AssignedBehaviors, Config, TrainerSettings, effective_yaml
from stepherd.training.progress import BehaviorProgress, Progress, TimeSplit, estimate_left_s
from stepherd.training.run_folder import RunFolder, open_run_folder
from stepherd.training.statistics import Statistics, Summary, boundary_passed, open_statistics
from stepherd.training.stop_signals import Stop, StopNow

log = logging.getLogger(__name__)

LOOK_S = 0.25  # how often the loop looks up from slow envs: for a stop, for the display
SPEED_WINDOW_S = 10.0  # steps/s is over the last moments, not over the whole run


class Watcher(Protocol):
    """Whoever shows a run to a person."""

    def update(self, progress: Progress) -> None:
        """Show a moment of the run; called a few times a second."""
        ...

    def summary(self, summary: Summary) -> None:
        """Show a behavior's interval."""
        ...

    def message(self, text: str) -> None:
        """Show a line that stays."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended that was not broken off by an error."""

    steps: dict[str, int]
    """Agent steps of each behavior, over all starts of the run."""
    mean_rewards: dict[str, float | None]
    """Mean return of the last 100 episodes of each behavior."""
    report: CloseReport
    folder: Path
    is_saved: bool
    """Whether there is a checkpoint of all of it; not after a second signal that came in between."""


def train(config: Config, stop: Stop, watcher: Watcher) -> Outcome:
    """Train until every behavior has its `max_steps`, or until `stop` is requested, and return how it went.

    With `checkpoint_settings.inference` it only acts, until stopped. After an error the work so far is saved and the
    pool closed before the error goes on. Closing is bounded as `EnvManager.close` is.

    Raises:
        ConfigError: the env has a behavior without settings.
        SpecError: a behavior cannot be learned, or a checkpoint does not fit it.
        RunFolderError: the run folder is taken, exists, or cannot be resumed.
        EnvNeverReady: the envs could not be built.
        WorkerFailed: a worker failed and its restart budget is spent.
        TrainingDiverged: the networks are no longer finite; the checkpoints from before are left as they are.
        StopNow: a signal came before training had begun.
    """
    start = config.checkpoint_settings
    with ExitStack() as stack:
        folder = stack.enter_context(
            open_run_folder(Path(start.results_dir), start.run_id, resume=start.resume, force=start.force)
        )
        saved, n_starts = _saved_run(folder)
        config = _with_seed_of(saved, config)
        settings = config.env_settings
        assert settings.env_path is not None, "the command line asks for an env"
        if saved is None and not start.inference:
            folder.write_configuration(effective_yaml(config))  # what the env adds to it is known once it runs
        envs = open_env_manager(
            settings.env_path,
            num_workers=settings.num_envs,
            envs_per_worker=settings.envs_per_worker,
            seed=_derived_seed(settings.seed, n_starts),
            timeouts=settings.timeouts,
            restarts=RestartPolicy(
                settings.max_lifetime_restarts, settings.restarts_rate_limit_n, settings.restarts_rate_limit_period_s
            ),
            log_dir=folder.run_logs,
        )
        begun = None
        try:
            with stop.at_once():  # until the first steps are under way, there is nothing to finish or to save
                stack.enter_context(envs)
                run = _Run(config, folder, envs, watcher, stack)
                run.restore(saved, n_starts)
                run.begin()
            begun = run
            run.go(stop)
        except StopNow:
            report = envs.close(grace_s=0.0)
            if begun is None:
                raise
            return begun.outcome(report)
        except Exception:
            watcher.message(str(envs.close()))  # the account of every step, also of a run that failed
            raise
        return run.outcome(envs.close())


class _Run:
    """The parts of one run, put together."""

    def __init__(
        self, config: Config, folder: RunFolder, envs: SubprocessEnvManager, watcher: Watcher, stack: ExitStack
    ) -> None:
        self._config, self._folder, self._envs, self._watcher = config, folder, envs, watcher
        self._learns = not config.checkpoint_settings.inference
        assigned = config.behavior_settings(envs.spec.names)
        self._tell_unused(assigned)
        self._assigned = assigned.settings
        self._trainers = self._new_trainers(assigned.settings)
        self._checkpoints = Checkpoints(folder, _keep(assigned.settings))
        self._statistics: Statistics
        self._collector: Collector
        self._split = TimeSplit()
        self._stack = stack
        self._begun_at = time.monotonic()
        self._speeds: deque[tuple[float, int]] = deque([(self._begun_at, 0)])
        self._looked_at = 0.0
        self._saved_at: dict[str, int] = {}
        self._n_starts = 0

    def restore(self, saved: SavedRun | None, n_starts: int) -> None:
        """Take up the run where it was saved, or start it from other weights if it is to."""
        self._n_starts = n_starts
        if saved is not None:
            for name, trainer in self._trainers.items():
                if name not in saved.behaviors:
                    raise SpecError(f"the checkpoint has {sorted(saved.behaviors)}, but the env has {name!r} as well")
                trainer.resume(saved.behaviors[name])
        else:
            self._initialize()
        if self._learns:  # and only now: what could not be started must not replace the record of what was
            self._folder.write_configuration(effective_yaml(self._config, self._assigned))
        steps = {name: trainer.n_steps for name, trainer in self._trainers.items()}
        self._saved_at = dict(steps)
        self._statistics = self._stack.enter_context(
            open_statistics(self._folder, list(self._trainers), steps, is_training=self._learns)
        )
        if saved is not None:
            self._statistics.restore(saved.state.get("statistics", {}))
            seed = self._config.env_settings.seed
            self._watcher.message(f"Resumed {self._folder.run_id} at step {sum(steps.values())}, with its seed {seed}.")
        for name, trainer in self._trainers.items():
            self._statistics.write_hyperparameters(name, _flattened(trainer.settings.model_dump()))

    def begin(self) -> None:
        """Reset all envs and send the first actions."""
        self._collector = Collector(self._envs, self._trainers, self._statistics, self._split, limited=self._learns)
        self._collector.start()

    def go(self, stop: Stop) -> None:
        """Collect and learn until done or stopped; save what was done, whatever happens."""
        try:
            while not stop and not all(trainer.finished for trainer in self._trainers.values()):
                before = self._steps()
                self._collector.turn(LOOK_S)
                self._after_turn(before)
            before = self._steps()
            self._collector.drain()
            self._after_turn(before)
        except TrainingDiverged:
            raise  # what could be saved is what diverged; the last checkpoint is from before
        except Exception as error:
            self._save_after(error)
            raise
        self._save()
        self._show(time.monotonic())

    def outcome(self, report: CloseReport) -> Outcome:
        """Return how it went."""
        rewards = {name: self._statistics.mean_of_last(name) for name in self._trainers}
        is_saved = not self._learns or self._steps() == self._saved_at
        return Outcome(self._steps(), rewards, report, self._folder.path, is_saved)

    def _steps(self) -> dict[str, int]:
        return {name: trainer.n_steps for name, trainer in self._trainers.items()}

    def _new_trainers(self, settings: dict[str, TrainerSettings]) -> dict[str, BehaviorTrainer]:
        device = _checked_device(self._config.torch_settings.device)
        seeds = np.random.SeedSequence(self._config.env_settings.seed).generate_state(len(settings))
        return {
            behavior.name: BehaviorTrainer(
                behavior,
                self._envs.n_envs,
                settings[behavior.name],
                seed=int(seed),
                device=device,
                learns=self._learns,
            )
            for behavior, seed in zip(self._envs.spec.behaviors, seeds, strict=True)
        }

    def _initialize(self) -> None:
        start = self._config.checkpoint_settings
        source = None
        if start.initialize_from is not None:
            source = load_checkpoint(find_checkpoint(Path(start.results_dir), start.initialize_from).path)
        for name, trainer in self._trainers.items():
            if trainer.settings.init_path is not None:
                trainer.initialize(load_state_dict(Path(trainer.settings.init_path)))
            elif source is not None and name in source.behaviors:
                trainer.initialize(source.behaviors[name])
            elif source is not None:
                raise SpecError(
                    f"run {start.initialize_from!r} has weights for {sorted(source.behaviors)}, none for {name!r}"
                )

    def _tell_unused(self, assigned: AssignedBehaviors) -> None:
        if assigned.unused:
            names = ", ".join(assigned.unused)
            self._watcher.message(f"The configuration also has settings for {names}, which this env does not have.")

    # After each turn.

    def _after_turn(self, before: dict[str, int]) -> None:
        is_save_due = False
        for name, trainer in self._trainers.items():
            settings = trainer.settings
            due = boundary_passed(before[name], trainer.n_steps, settings.summary_freq)
            if due is not None:
                self._watcher.summary(self._statistics.write(name, due))
            if boundary_passed(before[name], trainer.n_steps, settings.checkpoint_interval) is not None:
                is_save_due = True
        if is_save_due and self._learns:
            try:
                self._save()
            except CheckpointError as error:  # a full disk must not end hours of work; the next one may succeed
                log.error("%s\nTraining goes on; the checkpoints from before are intact.", error)
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._show(now)

    def _save(self) -> None:
        steps = self._steps()
        if not self._learns or steps == self._saved_at:
            return
        self._checkpoints.save(
            sum(steps.values()),  # grows as long as any behavior learns, so each checkpoint has a number of its own
            {name: trainer.state_dict() for name, trainer in self._trainers.items()},
            {
                "seed": self._config.env_settings.seed,
                "n_starts": self._n_starts + 1,
                "statistics": self._statistics.state(),
            },
            steps=steps,
            rewards={name: self._statistics.mean_of_last(name) for name in self._trainers},
        )
        self._saved_at = steps

    def _save_after(self, error: Exception) -> None:
        try:
            self._save()
        except Exception as second:  # noqa: BLE001 - the first error is the one to show
            log.error("After %s, work since the last checkpoint could not be saved: %s", type(error).__name__, second)

    def _show(self, now: float) -> None:
        self._looked_at = now
        self._collector.settle_waits()
        total = sum(self._steps().values())
        self._speeds.append((now, total))
        while len(self._speeds) > 2 and now - self._speeds[1][0] > SPEED_WINDOW_S:
            self._speeds.popleft()
        (then, steps_then) = self._speeds[0]
        steps_per_s = (total - steps_then) / (now - then) if now > then else 0.0
        behaviors = tuple(
            BehaviorProgress(
                name,
                trainer.n_steps,
                trainer.settings.max_steps,
                self._statistics.mean_of_last(name),
                self._statistics.n_episodes(name),
            )
            for name, trainer in self._trainers.items()
        )
        self._watcher.update(
            Progress(
                run_id=self._folder.run_id,
                behaviors=behaviors,
                steps_per_s=steps_per_s,
                elapsed_s=now - self._begun_at,
                eta_s=estimate_left_s(behaviors, steps_per_s) if self._learns else None,
                workers=tuple(self._envs.statuses()),
                time=self._split.shares(),
            )
        )


def _saved_run(folder: RunFolder) -> tuple[SavedRun | None, int]:
    """Return what the run was saved as, and how many times it has been started before."""
    if not folder.is_resumed:
        return None, 0
    checkpoint = latest_checkpoint(folder.checkpoints)
    assert checkpoint is not None, "a resumed folder has a checkpoint"
    saved = load_checkpoint(checkpoint.path)
    return saved, int(saved.state.get("n_starts", 1))


def _with_seed_of(saved: SavedRun | None, config: Config) -> Config:
    """Return `config` with the seed the run was started with: a seed drawn anew would make it another run."""
    if saved is None or "seed" not in saved.state:
        return config
    seeded = config.env_settings.model_copy(update={"seed": int(saved.state["seed"])})
    return config.model_copy(update={"env_settings": seeded})


def _derived_seed(seed: int, n_starts: int) -> int:
    """Return the envs' root seed: the run's own, and for each resume another, or the envs would replay their past."""
    return seed if n_starts == 0 else int(np.random.SeedSequence((seed, n_starts)).generate_state(1)[0] >> 1)


def _checked_device(wanted: str | None) -> str:
    device = wanted or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:  # what torch raises for one it does not know or have
        reason = str(error).splitlines()[0]
        raise ConfigError([f"torch_settings.device: {device!r} cannot be used here: {reason}"]) from error
    return device


def _keep(settings: dict[str, TrainerSettings]) -> int:
    """Return how many checkpoints stay: as many as the behavior that wants most of them."""
    wanted = [each.keep_checkpoints for each in settings.values()]
    return 0 if min(wanted) <= 0 else max(wanted)


def _flattened(values: dict[str, Any], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in values.items():
        flat |= _flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
