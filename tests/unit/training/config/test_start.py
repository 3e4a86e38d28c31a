"""What a run starts from: resume, force, initialize_from and inference together."""

from __future__ import annotations

import pytest

from stepherd.training.config import Override, config_from_text


def option(name: str, key: str, value: str | bool = True) -> Override:
    return Override(name, ("checkpoint_settings", key), value)


def start(resume: bool = False, initialize: bool = False, force: bool = False) -> str:
    lines = ["checkpoint_settings:", "  run_id: x"]
    lines += ["  resume: true"] * resume + ["  initialize_from: old"] * initialize + ["  force: true"] * force
    return "\n".join(lines)


RESUME = option("--resume", "resume")
LOAD = option("--load", "load_model")
INITIALIZE = option("--initialize-from", "initialize_from", "typed")


@pytest.mark.parametrize(
    ("text", "typed", "resume", "initialize_from"),
    [
        (start(resume=True), [], True, None),
        (start(initialize=True), [], False, "old"),
        (start(resume=True, initialize=True), [], True, None),
        (start(initialize=True), [RESUME], True, None),
        (start(initialize=True), [LOAD], True, None),
        (start(resume=True), [INITIALIZE], False, "typed"),
        (start(resume=True, initialize=True), [INITIALIZE], False, "typed"),
        (start(resume=True, initialize=True), [RESUME], True, None),
        (start(), [INITIALIZE, RESUME], True, None),
    ],
)
def test_what_was_typed_decides_between_resuming_and_initializing(
    text: str, typed: list[Override], resume: bool, initialize_from: str | None
) -> None:
    config = config_from_text(text, "f.yaml", typed)

    settings = config.checkpoint_settings
    assert (settings.resume, settings.initialize_from) == (resume, initialize_from)
    both = "resume" in text + str(typed) and "initialize" in text + str(typed)
    assert bool(config.warnings) == (both or LOAD in typed)


def test_resuming_beats_force_so_that_nothing_is_replaced() -> None:
    config = config_from_text(start(resume=True, force=True))

    assert config.checkpoint_settings.resume
    assert not config.checkpoint_settings.force
    assert config.warnings == ("the run resumes, so force has no effect and nothing is replaced",)


def test_force_stays_when_the_resume_of_the_file_is_not_followed() -> None:
    assert config_from_text(start(resume=True, force=True), "f", [INITIALIZE]).checkpoint_settings.force


def test_inference_with_untrained_networks_is_warned_about() -> None:
    inference = option("--inference", "inference")

    assert "untrained" in config_from_text(start(), "f", [inference]).warnings[0]
    assert config_from_text(start(resume=True), "f", [inference]).warnings == ()
    assert config_from_text("behaviors: {A: {init_path: a.pt}}", "f", [inference]).warnings == ()
