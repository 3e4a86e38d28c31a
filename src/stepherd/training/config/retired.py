"""Keys that ML-Agents itself has given up and still takes with a warning."""

from __future__ import annotations

from pydantic_core import PydanticCustomError

from stepherd.training.config.fields import Flag
from stepherd.training.config.tree import KeyPath, Problem, Section, found, with_value, without
from stepherd.training.config.unbuilt import BEHAVIOR, DEFAULTS

LOAD_MODEL: KeyPath = ("checkpoint_settings", "load_model")
TRAIN_MODEL: KeyPath = ("checkpoint_settings", "train_model")
RESUME: KeyPath = ("checkpoint_settings", "resume")
FRAMEWORKS: tuple[KeyPath, ...] = ((*DEFAULTS, "framework"), (*BEHAVIOR, "framework"))


def settle_retired(root: Section) -> tuple[Section, list[Problem], list[str]]:
    """Return `root` without the retired keys, the mistakes in their values, and a warning for each that counts."""
    problems, warnings = [], []
    for path, tree in [each for pattern in FRAMEWORKS for each in found(root, pattern)]:
        warnings.append(tree.place.says("has no effect: the networks are PyTorch's").text)
        root = without(root, path)
    for path, said in (
        (LOAD_MODEL, "is the old name of resume"),
        (TRAIN_MODEL, "has no effect: learning is the default"),
    ):
        for _, tree in list(found(root, path)):
            root = without(root, path)
            try:
                is_set = Flag().read(tree)
            except PydanticCustomError as error:
                problems.append(tree.place.says(error.message()))
                continue
            if is_set:
                warnings.append(tree.place.says(said).text)
                root = with_value(root, RESUME, tree) if path == LOAD_MODEL else root
    return root, problems, warnings
