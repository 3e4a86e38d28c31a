"""Values typed on the command line, laid over what the file says before anything is checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepherd.training.config.document import scalar
from stepherd.training.config.problems import section_expected
from stepherd.training.config.tree import Items, KeyPath, Place, Problem, Scalar, Section, Tree, found, with_value
from stepherd.training.config.unbuilt import BEHAVIOR, DEFAULTS

AFTER_EVERY_LINE = 2**40  # options come last in a list of problems


@dataclass(frozen=True, slots=True)
class Override:
    """An option as the user typed it."""

    option: str
    """How the user knows it: `"--num-envs"`."""
    path: KeyPath
    """What it sets; `("behaviors", "*", …)` sets it for every behavior and in the default settings."""
    value: str | bool | int | float | tuple[str, ...]
    """A text is read as the file would read it; an option without a value is True."""


def lay_over(root: Section, overrides: Iterable[Override], from_file: bool) -> tuple[Section, list[Problem]]:
    """Return `root` with every override in it, and a problem for each section of the file that is none."""
    problems = []
    for index, override in enumerate(overrides):
        for path in _targets(root, override.path, from_file):
            blocked = _in_the_way(root, path)
            if blocked is not None:
                problems.append(blocked.place.says(section_expected(blocked)))
            place = Place(path, override.option, (AFTER_EVERY_LINE, index), is_option=True)
            root = with_value(root, path, _tree(override.value, place))
    return root, problems


def _targets(root: Section, path: KeyPath, from_file: bool) -> list[KeyPath]:
    if path[: len(BEHAVIOR)] != BEHAVIOR:
        return [path]
    rest = path[len(BEHAVIOR) :]
    named = [behavior for behavior, tree in found(root, BEHAVIOR) if isinstance(tree, Section)]
    # In a file without default settings they must not appear: they would let every unnamed behavior pass.
    defaults = [DEFAULTS] if not from_file or isinstance(root.get(DEFAULTS[0]), Section) else []
    return [(*scope, *rest) for scope in [*defaults, *named]]


def _in_the_way(root: Section, path: KeyPath) -> Tree | None:
    for depth in range(1, len(path)):
        for _, tree in found(root, path[:depth]):
            if not isinstance(tree, Section):
                return tree
    return None


def _tree(value: str | bool | int | float | tuple[str, ...], place: Place) -> Tree:
    if isinstance(value, (bool, int, float)):
        return Scalar(value, str(value).lower(), place)
    if isinstance(value, str):
        return scalar(value, place)
    items = Items(place)
    items.extend(scalar(each, place) for each in value)
    return items
