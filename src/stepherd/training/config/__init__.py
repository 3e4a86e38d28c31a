"""The configuration: ML-Agents' trainer YAML, typed, strict, and with the line of every mistake.

file ──document──► tree ──overrides──► ──retired, unbuilt──► ──defaults──► models ──► Config
                    every value knows its place                            │
                                                 problems: one ConfigError ◄┘
"""

from stepherd.training.config.configuration import AssignedBehaviors, Config
from stepherd.training.config.effective import effective_yaml
from stepherd.training.config.load import config_from_text, load_config
from stepherd.training.config.models import (
    CheckpointSettings,
    EnvSettings,
    ExtrinsicReward,
    NetworkSettings,
    PPOHyperparameters,
    RewardSignals,
    Schedule,
    TorchSettings,
    TrainerSettings,
)
from stepherd.training.config.overrides import Override

__all__ = [
    "load_config",
    "config_from_text",
    "effective_yaml",
    "Override",
    "Config",
    "AssignedBehaviors",
    "TrainerSettings",
    "PPOHyperparameters",
    "NetworkSettings",
    "RewardSignals",
    "ExtrinsicReward",
    "EnvSettings",
    "CheckpointSettings",
    "TorchSettings",
    "Schedule",
]
