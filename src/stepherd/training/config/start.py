"""Decides what a run starts from when the configuration says two things, as ML-Agents does: what was typed wins."""

from __future__ import annotations

from stepherd.training.config.configuration import Config
from stepherd.training.config.retired import LOAD_MODEL, RESUME
from stepherd.training.config.tree import KeyPath

INITIALIZE_FROM: KeyPath = ("checkpoint_settings", "initialize_from")


def settle_start(config: Config, typed: set[KeyPath]) -> tuple[Config, list[str]]:
    """Return `config` saying one thing, and a warning for each that was given up; `typed` are the paths of options."""
    start = config.checkpoint_settings
    changes: dict[str, object] = {}
    warnings = []
    if start.resume and start.initialize_from is not None:
        if INITIALIZE_FROM in typed and not typed & {RESUME, LOAD_MODEL}:
            changes["resume"] = False
            warnings.append("--initialize-from was typed, so the file's checkpoint_settings.resume is not followed")
        else:
            changes["initialize_from"] = None
            warnings.append(f"the run resumes, so it is not initialized from {start.initialize_from!r}")
    resumes = start.resume and "resume" not in changes
    if resumes and start.force:
        changes["force"] = False
        warnings.append("the run resumes, so force has no effect and nothing is replaced")
    starts_from_weights = resumes or start.initialize_from is not None or _has_init_path(config)
    if start.inference and not starts_from_weights:
        warnings.append("inference without --resume or --initialize-from acts with untrained networks")
    if changes:
        config = config.model_copy(update={"checkpoint_settings": start.model_copy(update=changes)})
    return config, warnings


def _has_init_path(config: Config) -> bool:
    named = [*config.behaviors.values(), *filter(None, [config.default_settings])]
    return any(settings.init_path is not None for settings in named)
