"""Stepherd runs many simulators in parallel, trains agents on them, and always comes home.

    with stepherd.open_env_manager("gymnasium:CartPole-v1", num_workers=8) as envs:
        batch = envs.reset(seed=1)
        while training:
            envs.send(policy(batch))
            batch = envs.recv()

Names are imported when first used: a worker process imports this package too, and must put on its leash before
anything that takes time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stepherd._version import __version__

if TYPE_CHECKING:
    from stepherd.core.deadline import Timeouts
    from stepherd.core.errors import (
        CheckpointError,
        ConfigError,
        EnvBusy,
        EnvNeverReady,
        ManagerClosed,
        RunFolderError,
        SpecError,
        StepherdError,
        TooFewReady,
        TrainingDiverged,
        UnsupportedPlatform,
        WorkerError,
        WorkerFailed,
        WrongValue,
    )
    from stepherd.manager.env_manager import EnvManager, WorkerStatus
    from stepherd.manager.open import open_env_manager
    from stepherd.manager.recycling import RecyclePolicy
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
    "RecyclePolicy",
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
    "WrongValue",
    "TrainingDiverged",
    "UnsupportedPlatform",
    "RunFolderError",
    "CheckpointError",
    "ManagerClosed",
    "EnvBusy",
    "TooFewReady",
    "WorkerError",
    "EnvNeverReady",
    "WorkerFailed",
]

_HOME = {
    "stepherd.core.deadline": ("Timeouts",),
    "stepherd.core.errors": tuple(__all__[__all__.index("StepherdError") :]),
    "stepherd.manager.env_manager": ("EnvManager", "WorkerStatus"),
    "stepherd.manager.open": ("open_env_manager",),
    "stepherd.manager.recycling": ("RecyclePolicy",),
    "stepherd.manager.report": ("CloseReport", "WorkerReport"),
    "stepherd.manager.restarts": ("RestartPolicy",),
    "stepherd.spec.batch": ("Actions", "BehaviorSteps", "StepBatch"),
    "stepherd.spec.specs": ("ActionSpec", "BehaviorSpec", "EnvSpec", "ObservationSpec"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'stepherd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
