"""Imports go down only, as the architecture draws it, and three pairs never meet at all."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tidy.source_tree import PACKAGE, Finding, Source, check, package_sources, parse

MAY_IMPORT = {
    "core": set(),
    "spec": {"core"},
    "process": {"core"},
    "transport": {"spec", "core"},
    "envs": {"spec", "core"},
    "rl": {"spec", "core"},
    "worker": {"transport", "envs", "process", "spec", "core"},
    "manager": {"transport", "process", "spec", "core"},
    "adapters": {"manager", "spec", "core"},
    "training": {"manager", "rl", "spec", "core"},
    "testing": {"manager", "envs", "spec", "core"},
    "cli": {"training", "testing", "adapters", "core"},  # core: docs/design/0002
}
"""Every room, and the rooms it may import besides itself. A change here is a change of the architecture."""

TOP_MODULES = {"_version", "__main__"}
"""Modules outside all rooms that every room may import. `stepherd/__init__.py` itself may import any room."""

NEVER_MEET = [
    ("manager", "stepherd.worker", "what they agree on belongs in transport"),
    ("worker", "stepherd.manager", "what they agree on belongs in transport"),
    ("manager", "stepherd.envs", "what to build is data; the worker builds it"),
    ("worker", "torch", "it costs each worker 280 MiB and 2.5 s; tensors belong in rl and training"),
    ("envs", "torch", "a worker imports it, where torch costs 280 MiB and 2.5 s"),
]

ONLY_STDLIB = {"core", "process"}
ONLY_NUMPY = {"spec", "transport"}


@dataclass(frozen=True, slots=True)
class Import:
    """One name that a module imports."""

    target: str
    """Dotted: `stepherd.core.deadline`, also for `from stepherd.core import deadline`."""
    line: int
    at_once: bool
    """Whether importing the module runs it: not inside a function, not for the type checker only."""


def imports(source: Source) -> list[Import]:
    """Return all that a module imports, wherever in the file, with `import_module("…")` of a fixed name."""
    return list(_imports_below(source.tree, at_once=True))


def _imports_below(node: ast.AST, *, at_once: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(alias.name, child.lineno, at_once) for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (Import(f"{module}.{alias.name}", child.lineno, at_once) for alias in names)
            case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
                yield Import(name, child.lineno, at_once)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield Import(name, child.lineno, at_once)
        skipped = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        )
        yield from _imports_below(child, at_once=at_once and not skipped)


def room_of(dotted: str) -> str:
    """Return the room of a module of ours: `core` for `stepherd.core.deadline`; empty for `stepherd` itself."""
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else ""


def find_layer_faults(source: Source) -> Iterator[Finding]:
    """Yield each import that goes up, sideways, or past what its layer may know."""
    room = room_of(source.module)
    if not room or room in TOP_MODULES:
        return
    if room not in MAY_IMPORT:
        yield Finding(
            source.path, 1, f"{room!r} is not a room of the architecture", f"put it in one of {sorted(MAY_IMPORT)}"
        )
        return
    for found in imports(source):
        if found.target.split(".")[0] == PACKAGE:
            target = room_of(found.target)
            if target != room and target not in MAY_IMPORT[room] and target not in TOP_MODULES:
                allowed = ", ".join(sorted(MAY_IMPORT[room])) or "no other room"
                problem = f"{room} imports {found.target}"
                yield Finding(
                    source.path, found.line, problem, f"{room} may import {allowed}; pass the thing in instead"
                )
            continue
        library = found.target.split(".")[0]
        if library in sys.stdlib_module_names:
            continue
        if room in ONLY_STDLIB or (room in ONLY_NUMPY and library != "numpy"):
            problem = f"{room} imports {library}"
            yield Finding(source.path, found.line, problem, "this layer knows only what the architecture names (§2)")


def find_meetings(tree: Mapping[str, Source], room: str, target: str, why: str) -> Iterator[Finding]:
    """Yield each module from which a module of `room` reaches `target`, with the way there.

    Imports inside functions count; of a package that is imported only because something below it is, those that run
    at once.
    """
    todo: list[tuple[str, tuple[str, ...], bool]] = [(name, (name,), True) for name in tree if room_of(name) == room]
    done: set[tuple[str, bool]] = set()
    while todo:
        name, way, whole = todo.pop()
        if (name, whole) in done:
            continue
        done.add((name, whole))
        source = tree[name]
        for found in imports(source):
            if not (whole or found.at_once):
                continue
            if f"{found.target}.".startswith(f"{target}."):
                yield Finding(source.path, found.line, f"{' → '.join((*way, target))}", f"never: {why}")
                continue
            here = (found.target, found.target.rpartition(".")[0])  # a module, or a name in one
            todo += [(module, (*way, module), whole) for module in here if module in tree]
        if target == "torch":  # Python itself imports the packages above
            todo += [(above, (*way, above), False) for above in _packages_above(name) if above in tree]


def _packages_above(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def package_tree() -> dict[str, Source]:
    """Return every module of the package by its dotted name."""
    return {source.module: source for source in package_sources()}


def test_imports_go_down_only() -> None:
    check(finding for source in package_sources() for finding in find_layer_faults(source))


@pytest.mark.parametrize(("room", "target", "why"), NEVER_MEET)
def test_two_that_must_not_know_of_each_other_never_meet(room: str, target: str, why: str) -> None:
    check(find_meetings(package_tree(), room, target, why))


def test_importing_stepherd_brings_no_heavy_library() -> None:
    assert imported_with([PACKAGE]) & {"torch", "tensorboard", "gymnasium", "grpc", "pydantic", "yaml", "rich"} == set()


def test_importing_all_of_a_worker_brings_no_torch_and_no_manager() -> None:
    worker = [name for name in package_tree() if room_of(name) == "worker"]

    assert worker, "there is no worker to look at"
    assert imported_with(worker) & {"torch", "tensorboard", "pydantic", "rich", "stepherd.manager"} == set()


@pytest.mark.parametrize(
    "text",
    [
        "import stepherd.manager",
        "from stepherd.manager import env_worker",
        "from stepherd import manager",
        "def later():\n    from stepherd.manager.env_worker import EnvWorker",
        "if TYPE_CHECKING:\n    from stepherd.manager import env_worker",
        "import importlib\nimportlib.import_module('stepherd.manager')",
        "import stepherd",
        "import numpy",
    ],
)
def test_an_import_that_goes_up_is_caught(text: str) -> None:
    assert list(find_layer_faults(parse(text, "src/stepherd/process/snippet.py")))


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "from stepherd.core.deadline import Deadline",
        "from stepherd.process import leash",
        "from stepherd import core",
    ],
)
def test_an_import_that_goes_down_is_fine(text: str) -> None:
    assert not list(find_layer_faults(parse(text, "src/stepherd/process/snippet.py")))


def test_a_folder_that_is_no_room_is_caught() -> None:
    assert list(find_layer_faults(parse("", "src/stepherd/plumbing/snippet.py")))


def test_torch_is_found_behind_two_imports_one_of_them_in_a_function() -> None:
    tree = tree_of(
        ("worker/serve.py", "from stepherd.envs import uri"),
        ("envs/uri.py", "def build():\n    import stepherd.envs.learned"),
        ("envs/learned.py", "import torch.nn"),
    )

    found = list(find_meetings(tree, "worker", "torch", "because"))

    assert [finding.path for finding in found] == ["src/stepherd/envs/learned.py"]
    assert "stepherd.worker.serve → stepherd.envs.uri → stepherd.envs.learned → torch" in found[0].problem


def test_torch_is_found_in_the_package_above_only_when_it_is_imported_at_once() -> None:
    serve = ("worker/serve.py", "")

    assert list(find_meetings(tree_of(serve, ("__init__.py", "import torch")), "worker", "torch", "because"))
    assert not list(find_meetings(tree_of(serve, ("__init__.py", "def f():\n    import torch")), "worker", "torch", ""))


def tree_of(*files: tuple[str, str]) -> dict[str, Source]:
    """Return a small package made of (path, text)."""
    return {source.module: source for source in (parse(text, f"src/stepherd/{path}") for path, text in files)}


def imported_with(modules: list[str]) -> set[str]:
    """Return the names of everything that a fresh Python has imported after `modules`."""
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())
