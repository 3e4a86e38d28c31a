"""Three modules ask which platform they are on; everything else runs the same everywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tidy.source_tree import Finding, Source, check, package_sources, parse, unused

MAY_ASK = {"process/leash.py", "transport/bell.py", "transport/block.py"}

ALLOWED: dict[tuple[str, str], str] = {}
"""(file, question) to the reason why it cannot be asked by one of the three."""

QUESTIONS = {"sys.platform", "os.name", "os.uname"}


def find_platform_questions(source: Source) -> Iterator[tuple[str, Finding]]:
    """Yield each place that asks which platform it runs on."""
    for node in ast.walk(source.tree):
        question = ""
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if f"{module}.{name}" in QUESTIONS:
                question = f"{module}.{name}"
            case ast.Import(names=names) if any(alias.name in ("platform", "sysconfig") for alias in names):
                question = "platform"
            case ast.ImportFrom(module="platform" | "sysconfig"):
                question = "platform"
            case ast.ImportFrom(module="sys" | "os" as module, names=names):
                asked = [f"{module}.{alias.name}" for alias in names if f"{module}.{alias.name}" in QUESTIONS]
                question = asked[0] if asked else ""
        if question:
            problem = f"asks {question}"
            remedy = f"put what differs behind one of {', '.join(sorted(MAY_ASK))}"
            yield question, Finding(source.path, getattr(node, "lineno", 1), problem, remedy)


def test_only_three_modules_ask_which_platform_it_is() -> None:
    met: set[tuple[str, str]] = set()
    findings: list[Finding] = []
    for source in package_sources():
        for question, finding in find_platform_questions(source):
            met.add((source.in_package, question))
            if source.in_package not in MAY_ASK and (source.in_package, question) not in ALLOWED:
                findings.append(finding)

    check([*findings, *unused(ALLOWED, met)])


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nif sys.platform == 'win32': pass",
        "import os\nos.name",
        "import platform\nplatform.system()",
        "from platform import system",
        "from sys import platform",
    ],
)
def test_a_platform_question_is_caught(text: str) -> None:
    assert list(find_platform_questions(parse(text)))


def test_other_questions_are_fine() -> None:
    assert not list(find_platform_questions(parse("import os, sys\nsys.version_info\nos.environ\nenv.platform")))
