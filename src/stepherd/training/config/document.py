"""Reads a YAML file into a tree whose every value knows its line, and turns what YAML refuses into advice.

Numbers follow YAML 1.2 (`1e-3` is one, `12:30` and `007` are text); yes/no/on/off stay truth values as in ML-Agents.
Knows no setting.
"""

from __future__ import annotations

import codecs
import difflib
import pathlib
import re
from typing import Any

import yaml

from stepherd.training.config.tree import Items, KeyPath, Place, Problem, Scalar, Section, Tree

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_TRUE = {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"}
_FALSE = {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"}
_NULL = {"", "~", "null", "Null", "NULL"}

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_PLAIN = "plain"  # written without quotes and without a tag
_PLAIN_TAGS = {_PLAIN, _MERGE, *(_TAG + name for name in ("null", "bool", "int", "float"))}
_KNOWN_TAGS = {*_PLAIN_TAGS, *(_TAG + name for name in ("str", "map", "seq"))}

_TOO_DEEP = "the sections are nested too deeply to be settings"
_ADVICE = (  # (words of PyYAML's message, what to tell the person)
    ("'\\t' that cannot start", "a tab; YAML is indented with spaces only"),
    ("mapping values are not allowed", "a ':' that cannot stand here; check the indentation and the line above"),
    ("could not find expected ':'", "a key without its ':'"),
    ("expected <block end>", "this line is not indented like the lines it belongs to"),
    ("found undefined alias", "an alias (*name) whose anchor (&name) is not written above it"),
    ("expected a single document", "a second document ('---'); put everything into one"),
    ("that cannot start any token", "a character that needs quotes around the whole value"),
    ("unknown escape character", "inside double quotes a backslash is special; use single quotes"),
)
_UNCLOSED = (  # here the place to look at is where it began
    ("end of stream", "a quote or bracket opens here and is never closed"),
    ("expected ',' or", "a bracket opens here and is not closed, or misses a ','"),
)


def read_document(path: pathlib.Path) -> tuple[Section | None, list[Problem]]:
    """Read the YAML file `path`; without a tree there is at least one problem that says why."""
    name = str(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None, [_whole(name, f"there is no such file{_similar_file(path)}")]
    except IsADirectoryError:
        return None, [_whole(name, "is a folder; name the YAML file inside it")]
    except (OSError, ValueError) as error:
        return None, [_whole(name, f"cannot be read: {getattr(error, 'strerror', None) or error}")]
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None, [_at(name, 1, "the file is UTF-16, not UTF-8; save it as UTF-8")]
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        shown = f"0x{raw[error.start]:02x}"
        return None, [_at(name, line, f"the byte {shown} is not UTF-8; save the file as UTF-8")]
    return parse_document(text, name)


def parse_document(text: str, name: str) -> tuple[Section | None, list[Problem]]:
    """Read YAML from `text`; `name` stands where a file's name would."""
    try:
        node = yaml.compose(text, Loader=_Loader)  # composes nodes, constructs no objects
    except yaml.MarkedYAMLError as error:
        return None, [_syntax_problem(error, name)]
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return None, [_at(name, line, f"the character {chr(int(error.character))!r} is not allowed in YAML")]
    except RecursionError:
        return None, [_at(name, 1, _TOO_DEEP)]
    if node is None:
        return None, [_at(name, 1, "the file is empty; name your behaviors below a 'behaviors:' line")]
    reader = _Reader(name)
    try:
        tree = reader.tree(node, Place((), f"{name}:1", (1, 0)))
    except RecursionError:
        return None, [_at(name, 1, _TOO_DEEP)]
    if not isinstance(tree, Section):
        kind = "a list" if isinstance(tree, Items) else "a single value"
        reader.problems.append(_at(name, 1, f"expected sections such as 'behaviors:', found {kind}"))
        return None, reader.problems
    return tree, reader.problems


def scalar(written: str, place: Place) -> Scalar:
    """Read a plain word as YAML would."""
    return Scalar(_value(written), written, place)


class _Loader(yaml.SafeLoader):
    """Composes nodes and leaves plain words to `scalar`, so that `!!str 5` differs from `5`."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:
        """Return the tag of a node that has none of its own."""
        if kind is yaml.ScalarNode and implicit[0]:
            return _MERGE if value == "<<" else _PLAIN
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]  # PyYAML's stubs


class _Reader:
    """Turns composed nodes into a tree and collects what is wrong on the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []
        self._done: dict[int, Tree] = {}  # by node: an alias gives the very section of its anchor
        self._open: set[int] = set()

    def tree(self, node: yaml.Node, place: Place) -> Tree:
        if node.tag not in _KNOWN_TAGS:
            self._add(place, f"the tag {node.tag.replace(_TAG, '!!')} is not supported; write a plain value")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        if id(node) in self._open:
            self._add(place, "contains itself through an alias")
            return Section(place)
        if id(node) not in self._done:
            self._open.add(id(node))
            made = self._section(node, place) if isinstance(node, yaml.MappingNode) else self._items(node, place)
            self._open.remove(id(node))
            self._done[id(node)] = made
        return self._done[id(node)]

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Scalar:
        if node.tag in _PLAIN_TAGS:
            return scalar(node.value, place)
        return Scalar(node.value, node.value, place, quoted=True)

    def _items(self, node: yaml.Node, place: Place) -> Items:
        items = Items(place)
        for index, child in enumerate(node.value):
            items.append(self.tree(child, self._at(child, (*place.path, str(index)))))
        return items

    def _section(self, node: yaml.MappingNode, place: Place) -> Section:
        section = Section(place)
        bases: list[Section] = []
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value in ("", "~"):
                self._add(self._at(key_node, place.path), "a key must be a single word")
                continue
            if key_node.tag == _MERGE:
                bases += self._bases(value_node, self._at(key_node, place.path))
                continue
            key = key_node.value
            at = self._at(key_node, (*place.path, key))
            value = self.tree(value_node, at)
            if key in section:
                self._add(at, f"is written twice, here and on line {lines[key]}; keep one")
            else:
                section[key], lines[key] = value, at.order[0]
        for base in bases:  # an explicit key beats a merged one, an earlier base a later
            for key, value in base.items():
                section.setdefault(key, value)
        return section

    def _bases(self, node: yaml.Node, place: Place) -> list[Section]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        trees = [self.tree(each, place) for each in nodes]
        if not all(isinstance(tree, Section) for tree in trees):
            self._add(place, "'<<' merges sections; give it the alias of one (*name) or a list of aliases")
        return [tree for tree in trees if isinstance(tree, Section)]

    def _at(self, node: yaml.Node, path: KeyPath) -> Place:
        mark = node.start_mark
        assert mark is not None, "composed nodes know where they start"
        line = mark.line + 1
        return Place(path, f"{self.name}:{line}", (line, mark.column))

    def _add(self, place: Place, text: str) -> None:
        self.problems.append(place.says(text))


def _value(written: str) -> str | int | float | bool | None:
    if written in _NULL:
        return None
    if written in _TRUE or written in _FALSE:
        return written in _TRUE
    digits = written.replace("_", "")
    try:
        if _INT.fullmatch(written):
            return int(digits, 16 if written.startswith("0x") else 10)
        if _FLOAT.fullmatch(written):
            return float(re.sub(r"\.(inf|nan)", r"\1", digits.lower()))
    except ValueError:  # Python refuses to read a number of thousands of digits
        return written
    return written


def _syntax_problem(error: yaml.MarkedYAMLError, name: str) -> Problem:
    message = " ".join(part for part in (error.context, error.problem) if part)
    unclosed = next((advice for words, advice in _UNCLOSED if words in message), None)
    known = unclosed or next((advice for words, advice in _ADVICE if words in message), message)
    began, stopped = error.context_mark, error.problem_mark
    mark = (began if unclosed else stopped) or stopped or began
    return _at(name, mark.line + 1 if mark else 1, f"not YAML: {known}")


def _at(name: str, line: int, text: str) -> Problem:
    return Place((), f"{name}:{line}", (line, 0)).says(text)


def _whole(name: str, text: str) -> Problem:
    return Place((), name, (0, 0)).says(text)


def _similar_file(path: pathlib.Path) -> str:
    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, 1)
    return f"; did you mean '{path.with_name(close[0])}'?" if close else ""
