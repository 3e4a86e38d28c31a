"""The project's source as the tidy tests read it: parsed once, with a way to report what is found in it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "stepherd"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file."""

    path: str
    """From the project's root, with forward slashes: `src/stepherd/core/deadline.py`."""
    text: str
    tree: ast.Module

    @property
    def in_package(self) -> str:
        """From the package's folder, as the allow-lists name it: `core/deadline.py`."""
        return self.path.removeprefix(f"src/{PACKAGE}/")

    @property
    def module(self) -> str:
        """The dotted name: `stepherd.core.deadline`; that of the package for an `__init__.py`."""
        parts = self.path.removeprefix("src/").removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Something that breaks a rule: where, what, and what to do about it."""

    path: str
    line: int
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Call:
    """A call, with the function it is written in and whether a `while` repeats it."""

    node: ast.Call
    function: str
    """Qualified, `Bell.hear`; `<module>` outside any function."""
    repeated: bool

    @property
    def name(self) -> str:
        """The last part of what is called: `recv` for `self.bell.recv(…)`."""
        match self.node.func:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                return name
        return ""

    @property
    def text(self) -> str:
        """What is called, as written: `self.bell.recv`."""
        return ast.unparse(self.node.func)

    @property
    def arguments(self) -> list[str]:
        """The arguments, as written: `timeout=5`."""
        return [ast.unparse(argument) for argument in (*self.node.args, *self.node.keywords)]


def parse(text: str, path: str = "src/stepherd/core/snippet.py") -> Source:
    """Return `text` as if it were the file `path`; that is how a rule is shown something bad."""
    return Source(path, text, ast.parse(text, path))


@functools.cache
def sources(*folders: str) -> tuple[Source, ...]:
    """Return every Python file below `folders` (from the project's root), in order of their paths."""
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return tuple(_parsed(file) for file in files if "__pycache__" not in file.parts)


def package_sources() -> tuple[Source, ...]:
    """Return every file of the package."""
    return sources(f"src/{PACKAGE}")


def all_sources() -> tuple[Source, ...]:
    """Return every Python file of the project."""
    return sources("src", "tests", "bench", "examples")


@functools.cache
def calls(source: Source) -> tuple[Call, ...]:
    """Return every call of a file."""
    return tuple(_calls_below(source.tree, (), repeated=False))


def functions(source: Source) -> Iterator[Function]:
    """Yield every function and method of a file, nested ones too."""
    return (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def unused(allowed: Mapping[tuple[str, str], str], met: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Yield the entries of an allow-list that allow nothing any more."""
    for path, what in sorted(set(allowed) - set(met)):
        yield Finding(f"src/{PACKAGE}/{path}", 1, f"{what!r} is allowed but not there", "remove it from the allow-list")


def check(findings: Iterable[Finding]) -> None:
    """Check that nothing was found.

    Raises:
        AssertionError: something was; one line for each.
    """
    lines = [str(finding) for finding in sorted(findings)]
    assert not lines, "\n".join(["", *lines])


@functools.cache
def _parsed(file: Path) -> Source:
    return parse(file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix())


def _calls_below(node: ast.AST, function: tuple[str, ...], *, repeated: bool) -> Iterator[Call]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield from _calls_below(child, (*function, name), repeated=False)
                continue
            case ast.Call():
                yield Call(child, ".".join(function) or "<module>", repeated)
        yield from _calls_below(child, function, repeated=repeated or isinstance(child, ast.While))
