"""The settings of PPO, apart from PPO itself so that reading a configuration does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from stepherd.rl.schedules import ScheduleKind


@dataclass(frozen=True, slots=True)
class PPOSettings:
    """What a user may choose, with ML-Agents' names and defaults."""

    batch_size: int = 1024
    """Rows of one minibatch; the nearest size that splits the rollout evenly is taken."""
    buffer_size: int = 10240
    """Transitions, of all slots together, that make an update due."""
    learning_rate: float = 3e-4
    learning_rate_schedule: ScheduleKind = "linear"
    beta: float = 5e-3
    """Weight of the entropy bonus."""
    beta_schedule: ScheduleKind = "linear"
    epsilon: float = 0.2
    """How far the ratio may move before its gradient is cut off."""
    epsilon_schedule: ScheduleKind = "linear"
    lambd: float = 0.95
    num_epoch: int = 3
    gamma: float = 0.99
    strength: float = 1.0
    """Factor on every reward."""
    time_horizon: int = 64
    """Longest segment over which advantages flow; then the value estimate takes over."""
    max_steps: int = 500_000
    """Where the linear schedules end."""
    hidden_units: int = 128
    num_layers: int = 2
    normalize: bool = False
    """Whether real-valued observations are normalised with their running mean and variance."""
    deterministic: bool = False
    """Whether `act` always takes the most likely action, as ML-Agents' setting of that name."""

    clip_values: bool = False
    """Whether `epsilon` also bounds how far a value estimate moves in one update, as ML-Agents after 4.1.0.

    Off, because `epsilon` is absolute: with returns much larger than 1 the critic cannot keep up. Measured on
    Acrobot-v1 (200,000 steps, returns down to -80): -93 without, -181 with; Pendulum-v1: -247 without, -1,137 with.
    In ML-Agents 1.1.0 a bug clips around the returns, which amounts to not clipping. When on, scale rewards with
    `strength` so that returns are of the order of 1."""

    def __post_init__(self) -> None:
        assert min(self.batch_size, self.buffer_size, self.num_epoch, self.time_horizon) >= 1, self
        assert min(self.max_steps, self.hidden_units, self.num_layers) >= 1, self
        assert min(self.learning_rate, self.beta, self.epsilon) >= 0, self
        assert 0 <= self.lambd <= 1, self
        assert 0 <= self.gamma <= 1, self
