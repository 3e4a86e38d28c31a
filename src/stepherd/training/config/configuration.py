"""The whole configuration, and what it says about the behaviors that an env turns out to have."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Field, PrivateAttr

from stepherd.core.errors import ConfigError
from stepherd.training.config.models import (
    Bool,
    CheckpointSettings,
    EngineSettings,
    EnvSettings,
    Settings,
    TorchSettings,
    TrainerSettings,
)

SEEDS_DRAWN = 10_000  # -1 draws one of 0 … 9999, as in ML-Agents: short enough to type again


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a configuration came from."""

    file: str | None = None
    """The file's name as it was given; None without one."""
    behaviors_at: str = "configuration"
    """Where its behaviors are written: `"cartpole.yaml:3"`."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignedBehaviors:
    """What each behavior of an env is trained with."""

    settings: dict[str, TrainerSettings]
    """By behavior, in the env's order."""
    unused: tuple[str, ...]
    """Behaviors that the configuration names and the env does not have: a file may serve several envs."""


class Config(Settings):
    """A trainer configuration with every default filled in. `load_config` makes one from a file and options."""

    default_settings: TrainerSettings | None = None
    """For behaviors that are not named. Those that are have it merged in already."""
    behaviors: dict[str, TrainerSettings] = Field(default_factory=dict)
    env_settings: EnvSettings = EnvSettings()
    engine_settings: EngineSettings = EngineSettings()
    checkpoint_settings: CheckpointSettings = CheckpointSettings()
    torch_settings: TorchSettings = TorchSettings()
    debug: Bool = False

    _origin: Origin = PrivateAttr(default=Origin())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What loading had to settle or found odd, one line each; nobody has shown them yet."""
        return self._origin.warnings

    @property
    def unnamed_settings(self) -> TrainerSettings | None:
        """What a behavior that is not named is trained with; None: it must be named."""
        if self.default_settings is not None:
            return self.default_settings
        is_bare = self._origin.file is None and not self.behaviors
        return TrainerSettings() if is_bare else None

    def behavior_settings(self, env_behaviors: Iterable[str]) -> AssignedBehaviors:
        """Assign settings to every behavior of an env, by name.

        Raises:
            ConfigError: a behavior is not named and there are no default settings; lists both sides' names.
        """
        names = list(env_behaviors)
        fallback = self.unnamed_settings
        settings = {name: found for name in names if (found := self.behaviors.get(name, fallback)) is not None}
        if missing := [name for name in names if name not in settings]:
            raise ConfigError([self._not_named(name, names) for name in missing])
        return AssignedBehaviors(settings, tuple(name for name in self.behaviors if name not in settings))

    def with_drawn_seed(self) -> Config:
        """Return this configuration with a seed drawn in place of -1."""
        if self.env_settings.seed != -1:
            return self
        seeded = self.env_settings.model_copy(update={"seed": secrets.randbelow(SEEDS_DRAWN)})
        return self.model_copy(update={"env_settings": seeded})

    def with_origin(self, origin: Origin) -> Config:
        """Return this configuration as one that came from `origin`."""
        copy = self.model_copy()
        copy._origin = origin  # noqa: SLF001  # its own copy
        return copy

    def _not_named(self, name: str, env_names: list[str]) -> str:
        spare = [each for each in self.behaviors if each not in env_names]
        folded = {each.casefold(): each for each in spare}
        close = difflib.get_close_matches(name.casefold(), folded, 1)
        rename = f"rename {folded[close[0]]!r} to {name!r}" if close else f"name {name!r} below behaviors"
        return (
            f"{self._origin.behaviors_at}: behaviors: the env's behavior {name!r} has no settings"
            f" (the env has {_listed(env_names)}; the configuration has {_listed(self.behaviors)});"
            f" {rename}, or add default_settings"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{name!r}" for name in names) or "none"
