"""Reads a configuration: file, then options over it, then defaults under it; says everything that is wrong at once."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from stepherd.core.errors import ConfigError
from stepherd.training.config.configuration import Config, Origin
from stepherd.training.config.document import parse_document, read_document
from stepherd.training.config.overrides import AFTER_EVERY_LINE, Override, lay_over
from stepherd.training.config.problems import problems_of
from stepherd.training.config.retired import settle_retired
from stepherd.training.config.start import settle_start
from stepherd.training.config.tree import Place, Problem, Scalar, Section, found, merged, with_value, without
from stepherd.training.config.unbuilt import BEHAVIOR, DEFAULTS, refuse_unbuilt

_NO_ENV = (
    "names no env; set env_settings.env_path, or give --env, for example gymnasium:CartPole-v1"
    " (waiting for the Unity Editor is not built yet)"
)


def load_config(
    path: str | os.PathLike[str] | None = None, overrides: Sequence[Override] = (), *, need_env: bool = False
) -> Config:
    """Read the configuration file `path` (None: all defaults) with the typed `overrides` over it.

    Its seed is drawn when it was -1. `need_env` makes a missing `env_path` a mistake.

    Raises:
        ConfigError: something is wrong; lists every mistake, each with its line or option.
    """
    if path is None:
        return _build(_Draft(Section(Place((), "configuration", (0, 0))), None), overrides, need_env)
    root, problems = read_document(pathlib.Path(path))
    return _build(_Draft(root, str(path), problems), overrides, need_env)


def config_from_text(text: str, name: str = "configuration", overrides: Sequence[Override] = ()) -> Config:
    """Read a configuration from YAML `text`; messages call it `name`.

    Raises:
        ConfigError: as `load_config`.
    """
    root, problems = parse_document(text, name)
    return _build(_Draft(root, name, problems), overrides, need_env=False)


@dataclass(slots=True)
class _Draft:
    """A configuration that is being put together."""

    root: Section | None
    """None: the file could not be read. The options are checked all the same."""
    file: str | None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _build(draft: _Draft, overrides: Sequence[Override], need_env: bool) -> Config:
    root = draft.root if draft.root is not None else Section(Place((), draft.file or "", (0, 0)))
    behaviors_at = root["behaviors"].place.label if "behaviors" in root else draft.file or "configuration"
    root, more = lay_over(_without_null_sections(root), overrides, draft.file is not None)
    draft.problems += more
    root, more, draft.warnings = settle_retired(root)
    draft.problems += more
    root, more = refuse_unbuilt(root)
    draft.problems += more
    root = _with_defaults_below(root)
    draft.problems += _trainerless(root)
    if need_env and draft.root is not None and not _names_env(root):
        draft.problems.append(Place((), draft.file or "the command line", (AFTER_EVERY_LINE, -1)).says(_NO_ENV))
    try:
        config = Config.model_validate(root)
    except ValidationError as error:
        draft.problems += problems_of(error)
    if draft.problems:
        raise ConfigError(list(dict.fromkeys(problem.text for problem in sorted(draft.problems))))
    config, warnings = settle_start(config, {override.path for override in overrides})
    config = config.with_drawn_seed()
    return config.with_origin(Origin(draft.file, behaviors_at, tuple(dict.fromkeys([*draft.warnings, *warnings]))))


def _without_null_sections(root: Section) -> Section:
    """Return `root` without `default_settings: null`, as ML-Agents writes it; left blank it stays, as a mistake."""
    tree = root.get(DEFAULTS[0])
    is_null = isinstance(tree, Scalar) and tree.value is None and not tree.is_blank
    return without(root, DEFAULTS) if is_null else root


def _with_defaults_below(root: Section) -> Section:
    defaults = root.get(DEFAULTS[0])
    if isinstance(defaults, Section):
        for path, behavior in list(found(root, BEHAVIOR)):
            if isinstance(behavior, Section):
                root = with_value(root, path, merged(defaults, behavior))
    return root


def _trainerless(root: Section) -> list[Problem]:
    return [
        behavior["hyperparameters"].place.says("needs a trainer_type beside it; write 'trainer_type: ppo'")
        for scope in (DEFAULTS, BEHAVIOR)
        for _, behavior in found(root, scope)
        if isinstance(behavior, Section) and "hyperparameters" in behavior and "trainer_type" not in behavior
    ]


def _names_env(root: Section) -> bool:
    trees = [tree for _, tree in found(root, ("env_settings", "env_path"))]
    return any(not isinstance(tree, Scalar) or tree.value is not None for tree in trees)
