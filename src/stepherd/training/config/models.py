"""The settings themselves: what ML-Agents' trainer YAML holds, with its defaults, as frozen values.

Only what is built has a field here; `unbuilt` knows the rest. Code may build these directly; a file comes in through
`load`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from stepherd.core.deadline import Timeouts
from stepherd.core.errors import RunFolderError, SpecError
from stepherd.spec.uri import read_uri
from stepherd.training.config.fields import Choice, Flag, Real, Text, Whole, reject
from stepherd.training.run_folder import check_run_id

SEED_MAX = 2**31 - 1  # Unity carries the seed as an int32
SECONDS_MAX = 10_000_000  # 115 days; a longer limit is a wait for ever by another name
RESTARTS_UNLIMITED = -1
SCHEDULES = ("linear", "constant")

Bool = Annotated[bool, Flag()]
AtLeastOne = Annotated[int, Whole(low=1)]
Seconds = Annotated[float, Real(above=0, high=SECONDS_MAX)]
Fraction = Annotated[float, Real(low=0, high=1)]
Schedule = Annotated[Literal["linear", "constant"], Choice(SCHEDULES)]


class Settings(BaseModel):
    """A section of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def _fill(self, **values: object) -> None:
        # Part of construction, as in the __post_init__ of a frozen dataclass.
        for name, value in values.items():
            object.__setattr__(self, name, value)


class PPOHyperparameters(Settings):
    """How PPO learns. One update consumes `buffer_size` steps in minibatches of `batch_size`."""

    batch_size: AtLeastOne = 1024
    buffer_size: AtLeastOne = 10240
    learning_rate: Annotated[float, Real(above=0, high=1)] = 3e-4
    learning_rate_schedule: Schedule = "linear"
    beta: Annotated[float, Real(low=0)] = 5e-3
    """Weight of the entropy bonus."""
    beta_schedule: Schedule = "linear"
    """The learning rate's schedule unless written, like `epsilon_schedule`."""
    epsilon: Annotated[float, Real(above=0, high=1)] = 0.2
    """How far one update may move the probability ratio from 1."""
    epsilon_schedule: Schedule = "linear"
    lambd: Fraction = 0.95
    """The lambda of GAE."""
    num_epoch: AtLeastOne = 3
    clip_values: Bool = False
    """Ours: whether one update may also move a value estimate by `epsilon` at most; see docs/design/0003."""

    @model_validator(mode="after")
    def _complete(self) -> PPOHyperparameters:
        if self.buffer_size < self.batch_size:
            reject(
                f"the buffer of one update, {self.buffer_size} steps{self._default('buffer_size')}, is smaller than"
                f" one minibatch, batch_size {self.batch_size}{self._default('batch_size')}",
                "buffer_size",
                "batch_size",
            )
        if "learning_rate_schedule" in self.model_fields_set:
            for name in {"beta_schedule", "epsilon_schedule"} - self.model_fields_set:
                self._fill(**{name: self.learning_rate_schedule})
        return self

    def _default(self, name: str) -> str:
        return "" if name in self.model_fields_set else " (the default)"


class NetworkSettings(Settings):
    """The networks of actor and critic."""

    normalize: Bool = False
    hidden_units: AtLeastOne = 128
    num_layers: AtLeastOne = 2
    deterministic: Bool = False
    """Act by the most likely action instead of a drawn one."""


class ExtrinsicReward(Settings):
    """The reward the env gives."""

    gamma: Fraction = 0.99
    strength: Annotated[float, Real()] = 1.0


class RewardSignals(Settings):
    """Where reward comes from. A file that names signals has those it names and no other."""

    extrinsic: ExtrinsicReward


class TrainerSettings(Settings):
    """Everything that trains one behavior."""

    trainer_type: Annotated[Literal["ppo"], Choice(("ppo",))] = "ppo"
    hyperparameters: PPOHyperparameters = PPOHyperparameters()
    network_settings: NetworkSettings = NetworkSettings()
    reward_signals: RewardSignals = RewardSignals(extrinsic=ExtrinsicReward())
    init_path: Annotated[str | None, Text("the path of a checkpoint", or_none=True)] = None
    checkpoint_interval: AtLeastOne = 500_000
    """Steps between checkpoints; with `even_checkpoints` what spreads `keep_checkpoints` over `max_steps`."""
    keep_checkpoints: Annotated[int, Whole(low=-(2**31))] = 5
    """How many checkpoints stay on disk; 0 or less: all."""
    even_checkpoints: Bool = False
    max_steps: AtLeastOne = 500_000
    """Agent steps after which the behavior has finished training."""
    time_horizon: AtLeastOne = 64
    summary_freq: AtLeastOne = 50_000

    @model_validator(mode="after")
    def _complete(self) -> TrainerSettings:
        if self.even_checkpoints:
            if self.keep_checkpoints < 1:
                reject(
                    f"keep_checkpoints is {self.keep_checkpoints}, so there is no number of checkpoints to spread"
                    " evenly; set it to 1 or more, or even_checkpoints to false",
                    "keep_checkpoints",
                    "even_checkpoints",
                )
            self._fill(checkpoint_interval=max(1, self.max_steps // self.keep_checkpoints))
        return self


class EnvSettings(Settings):
    """Which env, how many of it, and how long it may take."""

    env_path: Annotated[str | None, Text("an env such as gymnasium:CartPole-v1", or_none=True)] = None
    num_envs: AtLeastOne = 1
    """Worker processes, as in ML-Agents."""
    envs_per_worker: AtLeastOne = 1
    seed: Annotated[int, Whole(low=-1, high=SEED_MAX)] = -1
    """The root of all randomness. A loaded configuration has a drawn one instead of -1."""
    timeout_wait: Seconds = 60.0
    """Stands for each of the next three that is not written."""
    spawn_s: Seconds = 60.0
    reset_s: Seconds = 60.0
    step_s: Seconds = 60.0
    grace_s: Seconds = 5.0
    kill_s: Seconds = 5.0
    max_lifetime_restarts: Annotated[int, Whole(low=RESTARTS_UNLIMITED)] = 10
    """Restarts of one worker over its life; -1: no limit."""
    restarts_rate_limit_n: Annotated[int, Whole(low=RESTARTS_UNLIMITED)] = 1
    """Restarts of one worker within `restarts_rate_limit_period_s`; -1: no limit."""
    restarts_rate_limit_period_s: Seconds = 60.0

    @model_validator(mode="after")
    def _complete(self) -> EnvSettings:
        if self.env_path is not None:
            try:
                read_uri(self.env_path)
            except SpecError as error:
                reject(str(error), "env_path")
        for name in {"spawn_s", "reset_s", "step_s"} - self.model_fields_set:
            self._fill(**{name: self.timeout_wait})
        return self

    @property
    def total_envs(self) -> int:
        """Envs of all workers together."""
        return self.num_envs * self.envs_per_worker

    @property
    def timeouts(self) -> Timeouts:
        """The time limits in the words of the env manager."""
        return Timeouts(self.spawn_s, self.reset_s, self.step_s, self.grace_s, self.kill_s)


class EngineSettings(Settings):
    """How Unity renders and how fast it runs. None is built yet, see `unbuilt`."""


class CheckpointSettings(Settings):
    """Which run this is and what it starts from."""

    run_id: Annotated[
        str,
        Text(
            "a folder name without '..', '\\' or a leading '/'",
            # Parts between slashes: no control character, none that is "." or "..", none that looks like an option.
            r"(?!-)(?:(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f]+/)*(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]+",
        ),
    ] = "ppo"
    initialize_from: Annotated[str | None, Text("the id of an earlier run", or_none=True)] = None
    resume: Bool = False
    force: Bool = False
    inference: Bool = False
    results_dir: Annotated[str, Text("a folder")] = "results"

    @model_validator(mode="after")
    def _is_one_folder(self) -> CheckpointSettings:
        try:
            check_run_id(self.run_id)
        except RunFolderError as error:
            reject(str(error), "run_id")
        return self

    @model_validator(mode="after")
    def _differs(self) -> CheckpointSettings:
        if self.initialize_from == self.run_id and not self.resume:
            reject(
                f"a run cannot be initialized from itself, '{self.run_id}'; resume it, or choose another run_id",
                "initialize_from",
                "run_id",
            )
        return self


class TorchSettings(Settings):
    """Where the networks live."""

    device: Annotated[str | None, Text("a device such as cpu, cuda or cuda:0", r"[a-z]+(?::\d+)?", or_none=True)] = None
    """None: cuda when there is one, else cpu."""
