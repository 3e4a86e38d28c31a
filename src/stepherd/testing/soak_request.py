"""From what a user asks of a soak to what is sent to its processes, and back to a command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepherd.core.deadline import Timeouts
from stepherd.spec.uri import read_uri
from stepherd.testing.soak_record import SoakSettings

LIMIT_OF_SLOWEST = 10.0  # limits that were not given: so many times the slowest seen in the trial …
LIMITS_S = {"spawn_s": (10.0, 60.0), "reset_s": (3.0, 60.0), "step_s": (2.0, 60.0)}  # … within these


@dataclass(frozen=True, slots=True)
class SoakLimits:
    """Time limits of the workers. Those left out are taken from a trial: ten times the slowest seen."""

    spawn_s: float | None = None
    reset_s: float | None = None
    step_s: float | None = None
    grace_s: float = 2.0
    kill_s: float = 5.0

    def timeouts(self, open_s: float = 0.0, reset_s: float = 0.0, step_s: float = 0.0) -> Timeouts:
        """Return all limits; with measurements, those left out come from them, else they are as wide as they get."""
        found = {}
        for name, measured in (("spawn_s", open_s), ("reset_s", reset_s), ("step_s", step_s)):
            low, high = LIMITS_S[name]
            given = getattr(self, name)
            guess = min(high, max(low, LIMIT_OF_SLOWEST * measured)) if measured else high
            found[name] = guess if given is None else given
        return Timeouts(grace_s=self.grace_s, kill_s=self.kill_s, **found)


def as_source(env: str | Callable[..., Any]) -> str | bytes:
    """Return an env as what a worker builds it from: its URI, or the callable pickled.

    Raises:
        SpecError: it is a string, and not a URI.
        ValueError: it is neither, or cannot be pickled.
    """
    if isinstance(env, str):
        return str(read_uri(env))
    if not callable(env):
        raise ValueError(f"env must be a URI or a callable that returns an env, not {type(env).__name__}")
    return pickled(env)


def pickled(value: Any) -> bytes:
    """Return `value` as bytes that a worker can load, also when it is a lambda or of the main script.

    Raises:
        ValueError: it cannot be pickled.
    """
    import cloudpickle  # not needed by those who only read a report

    try:
        data: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise ValueError(f"{value!r} cannot be sent to a worker: {error}") from error
    return data


def command_of(
    settings: SoakSettings,
    kwargs: Mapping[str, Any] | None,
    cycles: int | None,
    minutes: float | None,
    limits: SoakLimits,
) -> str:
    """Return the command line that soaks in the same way again."""
    words: Sequence[object] = ["stepherd", "soak", settings.env_name, "--num-envs", settings.num_envs]
    options = {
        "--envs-per-worker": settings.envs_per_worker if settings.envs_per_worker > 1 else None,
        "--cycles": cycles,
        "--minutes": minutes,
        "--steps-per-cycle": settings.steps_per_cycle,
        "--faults": ",".join(settings.faults) or None,
        "--env-kwargs": json.dumps(kwargs, default=repr) if kwargs else None,
        "--seed": settings.seed,
        **{f"--{name}-s": getattr(limits, f"{name}_s") for name in ("spawn", "reset", "step")},
    }
    given = [word for name, value in options.items() if value is not None for word in (name, value)]
    return shlex.join(map(str, [*words, *given]))
