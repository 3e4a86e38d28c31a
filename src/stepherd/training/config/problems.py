"""Turns what pydantic found wrong into one line per mistake, each with its place."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stepherd.training.config.fields import PROBLEM, shown
from stepherd.training.config.known import is_section, unknown_key
from stepherd.training.config.tree import Items, KeyPath, Place, Problem, Scalar, Section, Tree


def problems_of(error: ValidationError) -> list[Problem]:
    """Return every mistake that pydantic collected from a tree."""
    return [_problem(detail) for detail in error.errors(include_url=False)]


def section_expected(tree: Tree) -> str:
    """Return what to say where a section should be and `tree` is."""
    if isinstance(tree, Scalar) and tree.is_blank:
        return "is empty; write its settings below it, indented, or {} for the defaults"
    return f"expected a section (settings below it, indented), found {shown(tree)}"


def _problem(detail: ErrorDetails) -> Problem:
    tree = detail["input"]
    assert isinstance(tree, (Scalar, Section, Items)), detail
    kind = detail["type"]
    if kind == PROBLEM:
        return _decisive(tree, detail["ctx"]["keys"]).says(detail["ctx"]["text"])
    if kind == "extra_forbidden":
        return tree.place.says(unknown_key(_key_path(detail, tree), tree))
    if kind == "missing":
        return tree.place.says(f"must name '{detail['loc'][-1]}', the only reward signal that is built")
    assert kind in ("model_type", "dict_type"), detail
    return tree.place.says(section_expected(tree))


def _key_path(detail: ErrorDetails, tree: Tree) -> KeyPath:
    """Return where an unknown key stands: as it was written, unless an anchor brought it from no section at all."""
    written = tree.place.path
    return written if is_section(written[:-1]) else tuple(str(key) for key in detail["loc"])


def _decisive(tree: Tree, keys: tuple[str, ...]) -> Place:
    """Return the place of the written value a rule between several is about, rather a behavior's than a default's."""
    written = [tree[key].place for key in keys if key in tree] if isinstance(tree, Section) else []
    own = [place for place in written if place.path[:1] == tree.place.path[:1]]
    return next(iter([*own, *written]), tree.place)
