"""What users may call is documented, all of it, and nothing that isn't there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import pytest

import stepherd
from tidy.source_tree import ROOT, Finding, Function, Source, check, package_sources, parse

REFERENCE = ROOT / "docs" / "reference.md"
CELL = re.compile(r"^\|\s*((?:[^|`\\]|\\.|`[^`]*`)*)")  # a | inside backticks or behind a backslash is text
NAME = re.compile(r"`(?:stepherd\.)?([A-Za-z_]\w*)(?:\([^`]*\))?`")


def documented_names(page: str) -> list[str]:
    """Return the names in backticks in the first column of each table whose first heading is "Name".

    A leading `stepherd.` and arguments in brackets don't count; members (`CloseReport.workers`) are not names.
    """
    names: list[str] = []
    in_table = False
    for line in page.splitlines():
        cell = CELL.match(line)
        if cell is None:
            in_table = False
        elif cell[1].strip().lower() == "name":
            in_table = True
        elif in_table:
            names += NAME.findall(cell[1])
    return names


def find_undocumented(source: Source) -> Iterator[Finding]:
    """Yield the module and each public class, function and method that has no docstring.

    Public is what no underscore hides, nor that of the class around it; functions inside functions are not.
    """
    if not ast.get_docstring(source.tree):
        yield Finding(source.path, 1, "no docstring", "open with what this module is for, in one sentence")
    yield from _undocumented_in(source.path, source.tree.body)


def _undocumented_in(path: str, body: Sequence[ast.stmt]) -> Iterator[Finding]:
    definitions = list(_definitions(body))
    documented = {node.name for node in definitions if ast.get_docstring(node)}
    for node in definitions:
        if node.name.startswith("_"):
            continue
        if node.name not in documented:  # its twin in another branch of an `if` may say it for both
            remedy = "say in one sentence what it gives, beginning with a verb (a noun for a class or property)"
            yield Finding(path, node.lineno, f"{node.name} has no docstring", remedy)
        if isinstance(node, ast.ClassDef):
            yield from _undocumented_in(path, node.body)


def _definitions(body: Sequence[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If):
            yield from _definitions([*node.body, *node.orelse])


def test_the_reference_lists_exactly_the_public_names() -> None:
    documented = documented_names(REFERENCE.read_text(encoding="utf-8"))

    assert len(set(documented)) == len(documented), "docs/reference.md lists a name twice"
    missing = sorted(set(stepherd.__all__) - set(documented))
    gone = sorted(set(documented) - set(stepherd.__all__))
    assert not missing, f"docs/reference.md: add a row for {', '.join(missing)}"
    assert not gone, f"docs/reference.md: {', '.join(gone)} is not in stepherd.__all__; remove its row or export it"


def test_every_public_name_is_there() -> None:
    assert len(set(stepherd.__all__)) == len(stepherd.__all__)
    assert [name for name in stepherd.__all__ if not hasattr(stepherd, name)] == []


def test_everything_public_has_a_docstring() -> None:
    check(finding for source in package_sources() for finding in find_undocumented(source))


def test_names_are_read_from_the_first_column_of_name_tables_only() -> None:
    page = """
| Name | What |
| --- | --- |
| `open_env_manager(env, *, num_workers=1, within_s: float | None)` | opens `this` |
| `stepherd.Timeouts`, `RestartPolicy` | both |
| `CloseReport.workers` | a member |

| Option | What |
| --- | --- |
| `seed` | not a name |
"""

    assert documented_names(page) == ["open_env_manager", "Timeouts", "RestartPolicy"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "'''.'''\nclass A:\n    pass",
        "'''.'''\ndef f():\n    pass",
        "'''.'''\nclass A:\n    '''.'''\n    def f(self):\n        pass",
        "'''.'''\nif x:\n    pass\nelse:\n    async def f():\n        pass",
    ],
)
def test_a_missing_docstring_is_caught(text: str) -> None:
    assert len(list(find_undocumented(parse(text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "'''.'''\nclass _A:\n    def f(self):\n        pass",
        "'''.'''\ndef f():\n    '''.'''\n    def g():\n        pass",
        "'''.'''\nclass A:\n    '''.'''\n    def __len__(self):\n        return 0",
        "'''.'''\nclass A:\n '''.'''\n @property\n def x(self):\n  '''.'''\n @x.setter\n def x(self, y): pass",
        "'''.'''\nif x:\n    def f():\n        '''.'''\nelse:\n    def f():\n        pass",
    ],
)
def test_what_is_private_needs_no_docstring(text: str) -> None:
    assert not list(find_undocumented(parse(text)))
