"""Layer 5, public: tools to test envs, runners and whatever is built on Stepherd.

`check_env` and `soak` try out an env, `faulty_envs` has envs that misbehave on purpose, `leaves_nothing` and the
pytest fixture in `stepherd.testing.no_leftovers` catch what a test leaves behind. Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepherd.testing.check_run import CheckReport, check_env
    from stepherd.testing.leftovers import Leftovers, leaves_nothing, watch_leftovers
    from stepherd.testing.soak_report import SoakReport
    from stepherd.testing.soak_run import Soak, soak

__all__ = [
    "check_env",
    "CheckReport",
    "soak",
    "Soak",
    "SoakReport",
    "leaves_nothing",
    "watch_leftovers",
    "Leftovers",
]

_HOME = {
    "check_env": "check_run",
    "CheckReport": "check_run",
    "soak": "soak_run",
    "Soak": "soak_run",
    "SoakReport": "soak_report",
    "leaves_nothing": "leftovers",
    "watch_leftovers": "leftovers",
    "Leftovers": "leftovers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'stepherd.testing' has no attribute {name!r}")
    return getattr(import_module(f"stepherd.testing.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
