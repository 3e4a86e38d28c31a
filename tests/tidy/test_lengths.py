"""A module fits in a head, a function on a screen."""

from __future__ import annotations

from collections.abc import Iterator

from tidy.source_tree import Finding, Source, check, functions, package_sources, parse

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60


def find_too_long(source: Source) -> Iterator[Finding]:
    """Yield the module if it is too long, and each function that is. A function counts from `def` to its last line."""
    n_lines = len(source.text.splitlines())
    if n_lines > MODULE_LINES_MAX:
        problem = f"{n_lines} lines, {MODULE_LINES_MAX} at most"
        yield Finding(source.path, MODULE_LINES_MAX, problem, "split it by what its parts do, one name for each")
    for function in functions(source):
        n_lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if n_lines > FUNCTION_LINES_MAX:
            problem = f"{function.name} has {n_lines} lines, {FUNCTION_LINES_MAX} at most"
            yield Finding(source.path, function.lineno, problem, "leave the decisions in it, move the plain work below")


def test_no_module_and_no_function_is_too_long() -> None:
    check(finding for source in package_sources() for finding in find_too_long(source))


def test_too_long_is_caught_and_just_short_enough_is_not() -> None:
    short_enough = "def f():\n" + "    pass\n" * (FUNCTION_LINES_MAX - 1)

    assert not list(find_too_long(parse(short_enough)))
    assert len(list(find_too_long(parse(short_enough + "    pass\n")))) == 1
    assert not list(find_too_long(parse("pass\n" * MODULE_LINES_MAX)))
    assert len(list(find_too_long(parse("pass\n" * (MODULE_LINES_MAX + 1))))) == 1
