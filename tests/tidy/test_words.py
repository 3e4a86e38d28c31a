"""Names say what a thing is; comments that switch a check off, or put something off, say why; only the CLI prints."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tidy.source_tree import Finding, Source, all_sources, calls, check, package_sources, parse, unused

SAY_NOTHING = {"utils", "util", "common", "helpers", "helper", "misc", "base"}
TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<code>\[[\w\-, ]+\])?\s*(?P<reason>.*)")
PUT_OFF = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?P<issue>\s*\(?#\d+\)?)?")

MAY_PRINT = {("worker/__main__.py", "main"): "said to a person who started it by hand; there is no log yet"}
"""(file, function) to the reason why it prints. `cli/` is for printing."""


def find_empty_names(source: Source) -> Iterator[Finding]:
    """Yield the module if its name, or that of a folder it lies in, says nothing about what is in it."""
    for part in source.path.removesuffix(".py").split("/"):
        if part.strip("_") in SAY_NOTHING:
            yield Finding(source.path, 1, f"{part!r} says nothing", "name it after the one thing it does")


def find_comments_without_a_reason(source: Source) -> Iterator[Finding]:
    """Yield each `type: ignore` without a code and a reason, and each note to oneself without an issue."""
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type != tokenize.COMMENT:
            continue
        ignore = TYPE_IGNORE.match(token.string)
        if ignore and not (ignore["code"] and ignore["reason"].strip(" #")):
            remedy = "write `# type: ignore[code]  # why`"
            yield Finding(source.path, token.start[0], f"{token.string!r} lacks its code or its reason", remedy)
        put_off = PUT_OFF.search(token.string)
        if put_off and (put_off[1] != "TODO" or not put_off["issue"]):
            remedy = "do it, or file an issue and write `# TODO #12: …`"
            yield Finding(source.path, token.start[0], f"{put_off[1]} without an issue", remedy)


def find_prints(source: Source) -> Iterator[tuple[str, Finding]]:
    """Yield each `print` outside the command line."""
    if source.in_package.startswith("cli/"):
        return
    for call in calls(source):
        if call.text == "print":
            remedy = "log it, or give it to the caller; cli/ speaks to people"
            yield call.function, Finding(source.path, call.node.lineno, f"{call.function} prints", remedy)


def test_every_module_is_named_after_what_it_does() -> None:
    check(finding for source in all_sources() for finding in find_empty_names(source))


def test_every_exception_to_a_rule_says_why() -> None:
    check(finding for source in all_sources() for finding in find_comments_without_a_reason(source))


def test_only_the_command_line_prints() -> None:
    met: set[tuple[str, str]] = set()
    findings: list[Finding] = []
    for source in package_sources():
        for function, finding in find_prints(source):
            met.add((source.in_package, function))
            if (source.in_package, function) not in MAY_PRINT:
                findings.append(finding)

    check([*findings, *unused(MAY_PRINT, met)])


@pytest.mark.parametrize("path", ["core/utils.py", "envs/common/reset.py", "rl/_base.py"])
def test_a_name_that_says_nothing_is_caught(path: str) -> None:
    assert list(find_empty_names(parse("", f"src/stepherd/{path}")))


@pytest.mark.parametrize(
    "comment",
    [
        "# type: ignore",
        "# type: ignore[arg-type]",
        "#type:ignore[arg-type] #",
        "# type: ignore  # because",
        "# TODO: later",
        "# FIXME #12",
        "# hack: see XXX",
    ],
)
def test_a_comment_without_its_reason_is_caught(comment: str) -> None:
    assert list(find_comments_without_a_reason(parse(f"x = 1  {comment}\n")))


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # type: ignore[arg-type]  # the stub is wrong",
        "x = 1  # type: ignore[arg-type, misc]  # the stub is wrong",
        "x = 1  # TODO #12: two at once",
        "x = 1  # TODO(#12): two at once",
        "x = '# TODO'",
    ],
)
def test_a_comment_with_its_reason_is_fine(line: str) -> None:
    assert not list(find_comments_without_a_reason(parse(line + "\n")))


def test_a_print_is_caught_outside_the_command_line_only() -> None:
    assert list(find_prints(parse("def f():\n    print()")))
    assert not list(find_prints(parse("print()", "src/stepherd/cli/learn.py")))
