"""Stepherd runs many simulators in parallel, trains agents on them, and always comes home.

    with stepherd.open_env_manager("gymnasium:CartPole-v1", num_workers=8) as envs:
        batch = envs.reset(seed=1)
        while training:
            envs.send(policy(batch))
            batch = envs.recv()

Importing this takes numpy and nothing heavier.
"""

from stepherd._version import __version__
from stepherd.core.deadline import Timeouts
from stepherd.core.errors import (
    ConfigError,
    EnvBusy,
    EnvNeverReady,
    ManagerClosed,
    RunFolderError,
    SpecError,
    StepherdError,
    TooFewReady,
    WorkerError,
    WorkerFailed,
)
from stepherd.manager.env_manager import EnvManager, WorkerStatus
from stepherd.manager.open import open_env_manager
from stepherd.manager.report import CloseReport, WorkerReport
from stepherd.manager.restarts import RestartPolicy
from stepherd.spec.batch import Actions, BehaviorSteps, StepBatch
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec

__all__ = [
    "__version__",
    "open_env_manager",
    "EnvManager",
    "Timeouts",
    "RestartPolicy",
    "StepBatch",
    "BehaviorSteps",
    "Actions",
    "EnvSpec",
    "BehaviorSpec",
    "ObservationSpec",
    "ActionSpec",
    "CloseReport",
    "WorkerReport",
    "WorkerStatus",
    "StepherdError",
    "ConfigError",
    "SpecError",
    "RunFolderError",
    "ManagerClosed",
    "EnvBusy",
    "TooFewReady",
    "WorkerError",
    "EnvNeverReady",
    "WorkerFailed",
]
