"""Writes a configuration back as YAML that loads to the same: the record of what a run really used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from stepherd._version import __version__
from stepherd.training.config.configuration import Config
from stepherd.training.config.models import TrainerSettings

_NUMBER_IN_YAML_1_2 = re.compile(r"[-+.]?[0-9][-+0-9_.]*(?:[eE][-+]?[0-9]+)?")


def effective_yaml(config: Config, behaviors: Mapping[str, TrainerSettings] | None = None) -> str:
    """Return `config` as YAML, complete with defaults, the drawn seed and the env's `behaviors` by name.

    `behaviors` are those that `behavior_settings` assigned; None: the ones the configuration names. How the run was
    started (resume, force, inference) is not written as true: whoever uses the file again must not repeat it unasked.
    """
    assert config.env_settings.seed >= 0, "a record has the seed that was drawn; see Config.with_drawn_seed"
    named = config.behaviors if behaviors is None else behaviors
    unnamed = config.unnamed_settings
    content: dict[str, Any] = {} if unnamed is None else {"default_settings": unnamed.model_dump()}
    content["behaviors"] = {name: settings.model_dump() for name, settings in named.items()}
    content |= config.model_dump(exclude={"default_settings", "behaviors", "engine_settings"})
    content["checkpoint_settings"] |= {"resume": False, "force": False, "inference": False}
    header = f"# The effective configuration of a run, written by Stepherd {__version__}. It can be loaded again.\n"
    return header + yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Repeats values instead of aliasing them, and quotes text that some reader of YAML takes for a number."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # PyYAML passes it by name
        """Return that nothing is shared."""
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER_IN_YAML_1_2, list("-+.0123456789"))
