"""Every key a configuration may have, and the nearest one to a key it may not."""

from __future__ import annotations

import difflib
import functools
import types
from collections.abc import Iterator
from typing import Union, get_args, get_origin

from stepherd.training.config.configuration import Config
from stepherd.training.config.models import Settings
from stepherd.training.config.tree import KeyPath, Section, Tree, dotted
from stepherd.training.config.unbuilt import BEHAVIOR, DEFAULTS, ROWS, keys_below

_LIST_MAX = 12  # more known keys than this are no help in a message


def unknown_key(path: KeyPath, value: Tree) -> str:
    """Return what to say about the unknown key at `path`: what was meant, where it belongs, or what there is."""
    above, key = _pattern(path[:-1]), path[-1]
    here = known_keys()[above]
    plain = key.strip().lower().replace("-", "_")
    close = [plain] if plain in here else difflib.get_close_matches(plain, here, 1)
    if (home := _home_of(key, above)) is not None:
        return f"unknown key here; it belongs {_named(home, path)}"
    if close:
        return f"unknown key; did you mean '{close[0]}'?"
    if not above and isinstance(value, Section) and set(value) & {*known_keys()[BEHAVIOR]}:
        return "unknown key; if it is a behavior, write it below 'behaviors:', indented"
    built = [name for name in here if (*above, name) not in {row.path for row in ROWS}]
    return f"unknown key; known are {', '.join(built)}" if 0 < len(built) <= _LIST_MAX else "unknown key"


def is_section(path: KeyPath) -> bool:
    """Return whether settings may stand directly below `path`."""
    return _pattern(path) in known_keys()


@functools.cache
def known_keys() -> dict[KeyPath, tuple[str, ...]]:
    """Return the keys below each section, by its path; `"*"` is the name of a behavior."""
    sections = dict(_sections(Config, ()))
    for row in ROWS:
        sections.setdefault(row.path[:-1], ())
    return {path: (*keys, *(k for k in keys_below(path) if k not in keys)) for path, keys in sections.items()}


def _sections(model: type[Settings], path: KeyPath) -> Iterator[tuple[KeyPath, tuple[str, ...]]]:
    yield path, tuple(model.model_fields)
    for name, field in model.model_fields.items():
        inner, below = field.annotation, (*path, name)
        if get_origin(inner) is dict:
            inner, below = get_args(inner)[1], (*below, "*")
        if get_origin(inner) in (Union, types.UnionType):
            inner = next(part for part in get_args(inner) if part is not type(None))
        if isinstance(inner, type) and issubclass(inner, Settings):
            yield from _sections(inner, below)


def _pattern(path: KeyPath) -> KeyPath:
    return (*BEHAVIOR, *path[2:]) if path[:1] == BEHAVIOR[:1] and len(path) > 1 else path


def _home_of(key: str, above: KeyPath) -> KeyPath | None:
    """Return the section that knows `key`: in the same behavior, else of the run, else in any behavior."""
    homes = [path for path, keys in known_keys().items() if key in keys and path != above]
    inside = next((scope for scope in (BEHAVIOR, DEFAULTS) if above[: len(scope)] == scope), None)
    near = [path for path in homes if inside is not None and path[: len(inside)] == inside]
    of_the_run = [path for path in homes if path[:1] not in (BEHAVIOR[:1], DEFAULTS)]
    of_a_behavior = [path for path in homes if inside is None and path[:1] == BEHAVIOR[:1]]
    best = next(filter(None, (near, of_the_run, of_a_behavior)), None)
    return min(best, key=len) if best else None


def _named(home: KeyPath, path: KeyPath) -> str:
    """Return `home` in words, with the name of the behavior that `path` is in."""
    name = path[1] if path[:1] == BEHAVIOR[:1] and len(path) > 1 else "<name>"
    return f"below '{dotted(tuple(name if key == '*' else key for key in home))}'" if home else "at the top level"
