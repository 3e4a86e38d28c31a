"""The configuration as it was written: every value and section knows its place, so a mistake can be pointed at.

Knows nothing of what the settings mean. Trees are never changed in place: an anchor makes two places share a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

KeyPath = tuple[str, ...]
"""Keys from the top: `("behaviors", "CartPole", "max_steps")`."""

_PLAIN_KEY = re.compile(r"[\w?=:/<> -]+")  # a behavior "Ball?team=0" reads well without quotes


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: a line of a file, or an option of the command line."""

    path: KeyPath
    label: str
    """`"cartpole.yaml:12"` or `"--num-envs"`."""
    order: tuple[int, int]
    """Sorts problems: line and column, or beyond every line for an option."""
    is_option: bool = False

    def below(self, key: str) -> Place:
        """Return the place of `key` inside what is written here, on the same line."""
        return Place((*self.path, key), self.label, self.order, self.is_option)

    def says(self, text: str) -> Problem:
        """Return the problem `text` with this place in front."""
        path = "" if self.is_option or not self.path else f"{dotted(self.path)}: "
        return Problem(self.order, f"{self.label}: {path}{text}")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake in one line. Sorts in file order, the options of the command line last."""

    order: tuple[int, int]
    text: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value and how it was written."""

    value: str | int | float | bool | None
    written: str
    place: Place
    quoted: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether nothing at all was written, as opposed to the word null."""
        return self.value is None and not self.written


class Section(dict[str, "Tree"]):
    """A mapping, in file order. A dict, so that pydantic reads it as one."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


class Items(list["Tree"]):
    """A list."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


Tree = Scalar | Section | Items


def dotted(path: KeyPath) -> str:
    """Return `path` as one word, with quotes around keys that would be misread."""
    return ".".join(key if _PLAIN_KEY.fullmatch(key) else repr(key) for key in path)


def found(tree: Tree, path: KeyPath) -> Iterator[tuple[KeyPath, Tree]]:
    """Yield what is written at `path`, with its real path; `"*"` stands for any key."""
    if not path:
        yield (), tree
    elif isinstance(tree, Section):
        for key in list(tree) if path[0] == "*" else [path[0]]:
            if key in tree:
                for rest, subtree in found(tree[key], path[1:]):
                    yield (key, *rest), subtree


def with_value(section: Section, path: KeyPath, value: Tree) -> Section:
    """Return `section` with `value` at `path`; whatever is in the way and not a section gives way."""
    changed = _copied(section)
    if len(path) == 1:
        changed[path[0]] = value
    else:
        child = section.get(path[0])
        inner = child if isinstance(child, Section) else Section(value.place)
        changed[path[0]] = with_value(inner, path[1:], value)
    return changed


def without(section: Section, path: KeyPath) -> Section:
    """Return `section` without what is at `path`, which must be there."""
    changed = _copied(section)
    if len(path) == 1:
        del changed[path[0]]
    else:
        child = section[path[0]]
        assert isinstance(child, Section), path
        changed[path[0]] = without(child, path[1:])
    return changed


def merged(below: Section, above: Section) -> Section:
    """Return `above` laid over `below`, section by section, as ML-Agents lays a behavior over the defaults."""
    if below is above:
        return above
    result = _copied(below)
    result.place = above.place
    for key, value in above.items():
        lower = below.get(key)
        if isinstance(lower, Section) and isinstance(value, Section):
            value = merged(lower, value)
        result[key] = value
    return result


def _copied(section: Section) -> Section:
    copy = Section(section.place)
    copy.update(section)
    return copy
