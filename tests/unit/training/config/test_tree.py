"""The tree: looking up, changing without touching the original, laying one section over another."""

from __future__ import annotations

import pytest

from stepherd.training.config.document import parse_document
from stepherd.training.config.tree import (
    KeyPath,
    Place,
    Scalar,
    Section,
    Tree,
    dotted,
    found,
    merged,
    with_value,
    without,
)


def read(text: str) -> Section:
    root, problems = parse_document(text, "f.yaml")
    assert not problems
    assert root is not None
    return root


def plain(tree: Tree) -> object:
    if isinstance(tree, Section):
        return {key: plain(value) for key, value in tree.items()}
    return tree.value if isinstance(tree, Scalar) else [plain(each) for each in tree]


VALUE = Scalar(9, "9", Place((), "--option", (0, 0), is_option=True))
TEXT = "a: {x: 1, y: {z: 2}}\nb: {x: 3}\nc: 4\n"


@pytest.mark.parametrize(
    ("path", "paths"),
    [
        (("a", "x"), [("a", "x")]),
        (("*", "x"), [("a", "x"), ("b", "x")]),
        (("a", "y", "z"), [("a", "y", "z")]),
        (("c", "x"), []),
        (("none",), []),
        ((), [()]),
    ],
)
def test_what_is_written_at_a_path_is_found(path: KeyPath, paths: list[KeyPath]) -> None:
    assert [each for each, _ in found(read(TEXT), path)] == paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("a", "x"), {"a": {"x": 9, "y": {"z": 2}}, "b": {"x": 3}, "c": 4}),
        (("c", "new"), {"a": {"x": 1, "y": {"z": 2}}, "b": {"x": 3}, "c": {"new": 9}}),
        (("d", "e", "f"), {"a": {"x": 1, "y": {"z": 2}}, "b": {"x": 3}, "c": 4, "d": {"e": {"f": 9}}}),
    ],
)
def test_a_value_is_set_in_a_copy(path: KeyPath, expected: object) -> None:
    root = read(TEXT)

    changed = with_value(root, path, VALUE)

    assert plain(changed) == expected
    assert plain(root) == plain(read(TEXT))


def test_a_value_is_removed_in_a_copy() -> None:
    root = read(TEXT)

    changed = without(root, ("a", "y", "z"))

    assert plain(changed) == {"a": {"x": 1, "y": {}}, "b": {"x": 3}, "c": 4}
    assert plain(root) == plain(read(TEXT))


def test_a_section_is_laid_over_another_key_by_key() -> None:
    below, above = read("a: {x: 1, y: 2}\nb: 1\nc: {x: 1}\n"), read("a: {x: 9}\nb: {z: 1}\nc: 5\nd: 1\n")

    assert plain(merged(below, above)) == {"a": {"x": 9, "y": 2}, "b": {"z": 1}, "c": 5, "d": 1}


@pytest.mark.parametrize(
    ("path", "word"),
    [
        (("behaviors", "CartPole", "max_steps"), "behaviors.CartPole.max_steps"),
        (("behaviors", "My Agent?team=0"), "behaviors.My Agent?team=0"),
        (("behaviors", "a.b"), "behaviors.'a.b'"),
        (("behaviors", "a\nb"), "behaviors.'a\\nb'"),
        (("behaviors", ""), "behaviors.''"),
    ],
)
def test_a_path_is_one_readable_word(path: KeyPath, word: str) -> None:
    assert dotted(path) == word


def test_a_line_names_its_path_and_an_option_only_itself() -> None:
    line, option = Place(("a", "b"), "f.yaml:3", (3, 0)), VALUE.place

    assert line.says("is wrong").text == "f.yaml:3: a.b: is wrong"
    assert option.says("is wrong").text == "--option: is wrong"
