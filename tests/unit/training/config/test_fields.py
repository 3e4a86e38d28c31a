"""Single values: what is said about one that does not fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pydantic_core import PydanticCustomError

from stepherd.training.config.document import parse_document
from stepherd.training.config.fields import Choice, Flag, Real, Text, Whole

WHOLE = Whole(low=1, high=100).read
REAL = Real(above=0, high=1).read
FLAG = Flag().read
CHOICE = Choice(("linear", "constant")).read
TEXT = Text("a folder").read

Read = Callable[[object], object]


def value(written: str) -> object:
    root, problems = parse_document(f"key: {written}\n", "f.yaml")
    assert not problems
    assert root is not None
    return root["key"]


@pytest.mark.parametrize(
    ("read", "written", "result"),
    [
        (WHOLE, "7", 7),
        (WHOLE, "1e2", 100),
        (WHOLE, "5.0", 5),
        (REAL, "1", 1.0),
        (REAL, "1e-320", 1e-320),
        (FLAG, "off", False),
        (CHOICE, "'linear'", "linear"),
        (TEXT, "12", "12"),
        (TEXT, "1e3", "1e3"),
        (TEXT, "'off'", "off"),
        (TEXT, "a b", "a b"),
        (Text("", or_none=True).read, "null", None),
        (Text("", or_none=True).read, "", None),
    ],
)
def test_a_value_that_fits_is_taken(read: Read, written: str, result: object) -> None:
    taken = read(value(written))

    assert taken == result
    assert type(taken) is type(result)


@pytest.mark.parametrize(
    ("read", "written", "said"),
    [
        (WHOLE, "two", "expected a whole number, 1 or more, found 'two'"),
        (WHOLE, "'7'", "expected a whole number, 1 or more, found the text '7' (remove the quotes)"),
        (WHOLE, "'x'", "expected a whole number, 1 or more, found the text 'x'"),
        (WHOLE, "1024.9", "expected a whole number, 1 or more, found 1024.9"),
        (WHOLE, "1e-3", "expected a whole number, 1 or more, found 1e-3"),
        (WHOLE, "0", "expected a whole number, 1 or more, found 0"),
        (WHOLE, "101", "expected a whole number, 100 or less, found 101"),
        (WHOLE, "true", "expected a whole number, 1 or more, found true"),
        (WHOLE, "on", "expected a whole number, 1 or more, found on, which YAML reads as true"),
        (WHOLE, "", "expected a whole number, 1 or more, found nothing"),
        (WHOLE, "null", "expected a whole number, 1 or more, found null"),
        (WHOLE, "[1]", "expected a whole number, 1 or more, found a list"),
        (WHOLE, "{a: 1}", "expected a whole number, 1 or more, found a section"),
        (WHOLE, ".inf", "expected a whole number, 1 or more, found .inf"),
        (WHOLE, "1,000", "expected a whole number, 1 or more, found '1,000' (a number has no comma; write 0.99, 1000)"),
        (WHOLE, "x" * 100, f"expected a whole number, 1 or more, found '{'x' * 58}…"),
        (REAL, "0", "expected a number above 0, at most 1, found 0"),
        (REAL, "1.5", "expected a number above 0, at most 1, found 1.5"),
        (REAL, ".nan", "expected a number above 0, at most 1, found .nan"),
        (REAL, "no", "expected a number above 0, at most 1, found no, which YAML reads as false"),
        (Real().read, "-.inf", "expected a number, found -.inf"),
        (Real(low=0).read, "-1", "expected a number, 0 or more, found -1"),
        (Real(low=0, high=1).read, "2", "expected a number from 0 to 1, found 2"),
        (Real(above=0).read, "0", "expected a number above 0, found 0"),
        (FLAG, "'false'", "expected true or false, found the text 'false' (remove the quotes)"),
        (FLAG, "0", "expected true or false, found 0"),
        (FLAG, "ture", "expected true or false, found 'ture'"),
        (CHOICE, "Linear", "expected one of linear, constant, found 'Linear'; did you mean 'linear'?"),
        (CHOICE, "cosine", "expected one of linear, constant, found 'cosine'"),
        (CHOICE, "3", "expected one of linear, constant, found 3"),
        (TEXT, "", "expected a folder, found nothing"),
        (TEXT, "''", "expected a folder, found the text ''"),
        (TEXT, "yes", "expected a folder, found yes, which YAML reads as true; put it in quotes if you mean the text"),
        (TEXT, "[a]", "expected a folder, found a list"),
    ],
)
def test_a_value_that_does_not_fit_is_told_from_what_was_expected(read: Read, written: str, said: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        read(value(written))

    assert caught.value.message() == said


def test_the_ends_of_open_and_closed_ranges_are_told_apart() -> None:
    assert Real(low=0, high=1).read(0) == 0
    assert Real(low=0, high=1).read(1) == 1
    assert Real(above=0).read(5e-324) == 5e-324
    with pytest.raises(PydanticCustomError):
        Real(above=0).read(0.0)


def test_a_value_that_code_passes_is_shown_as_code() -> None:
    with pytest.raises(PydanticCustomError, match=r"found \{'a': 1\}"):
        WHOLE({"a": 1})
