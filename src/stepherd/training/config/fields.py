"""The kinds of single values: each says what it expects and what it found, in the words of the file.

They read both a `Scalar` from a file or option and the plain Python value that code passes.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from stepherd.training.config.tree import Items, Scalar, Section

PROBLEM = "stepherd"
"""The type of every pydantic error that carries our words, in `ctx["text"]`."""

_SHOWN_MAX = 60  # characters of a value that are repeated in a message
_COMMA = re.compile(r"[-+]?\d+(?:,\d+)+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_TRUTH = {"true", "false", "yes", "no", "on", "off"}


def reject(text: str, *keys: str) -> NoReturn:
    """Raise what pydantic collects: one mistake, said in `text` and found at the first written of `keys`."""
    raise PydanticCustomError(PROBLEM, "{text}", {"text": text, "keys": keys})


def shown(given: object) -> str:
    """Return what was found, on one line and as it was written, with a hint when that explains the mistake."""
    if isinstance(given, Section):
        return "a section"
    if isinstance(given, Items):
        return "a list"
    if not isinstance(given, Scalar):
        return _short(repr(given))
    if given.is_blank:
        return "nothing"
    text = _short(repr(given.written))
    if given.quoted:
        unquote = given.written.lower() in _TRUTH or re.fullmatch(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", given.written)
        return f"the text {text}" + (" (remove the quotes)" if unquote else "")
    if given.place.is_option or isinstance(given.value, str):
        return text + (" (a number has no comma; write 0.99, 1000)" if _COMMA.fullmatch(given.written) else "")
    if isinstance(given.value, bool) and given.written.lower() not in ("true", "false"):
        return f"{given.written}, which YAML reads as {str(given.value).lower()}"
    return _short(given.written)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; `5.0e5` is one."""

    low: int
    high: int = 2**63 - 1  # what an array and a checkpoint can hold

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return _reader(self.read)

    def read(self, given: object) -> int:
        """Return `given` as an int."""
        value = _plain(given)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < self.low:
            _reject_value(f"a whole number, {self.low} or more", given)
        if value > self.high:
            _reject_value(f"a whole number, {self.high} or less", given)
        return value


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number, above `above` or from `low`, to `high`."""

    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return _reader(self.read)

    def read(self, given: object) -> float:
        """Return `given` as a float."""
        value = _plain(given)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not self._has(value):
            _reject_value(self._words(), given)
        return float(value)

    def _has(self, value: float) -> bool:
        is_finite = abs(value) <= sys.float_info.max  # an int may be larger; not a number compares as False
        return is_finite and self.low <= value <= self.high and value > self.above

    def _words(self) -> str:
        if self.above > -math.inf:
            return f"a number above {self.above:g}" + (f", at most {self.high:.10g}" if self.high < math.inf else "")
        if self.low == -math.inf:
            return "a number"
        if self.high == math.inf:
            return f"a number, {self.low:g} or more"
        return f"a number from {self.low:g} to {self.high:.10g}"


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return _reader(self.read)

    def read(self, given: object) -> bool:
        """Return `given` as a bool."""
        value = _plain(given)
        if not isinstance(value, bool):
            _reject_value("true or false", given)
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return _reader(self.read)

    def read(self, given: object) -> str:
        """Return `given` if it is one of the words."""
        value = _plain(given)
        if not isinstance(value, str) or value not in self.words:
            expected = self.words[0] if len(self.words) == 1 else f"one of {', '.join(self.words)}"
            close = difflib.get_close_matches(value.lower(), self.words, 1) if isinstance(value, str) else []
            _reject_value(expected, given, f"; did you mean '{close[0]}'?" if close else "")
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is not empty; a number is taken as it was written. `None` too when `or_none`."""

    words: str
    """What it is, for the message: "a folder"."""
    pattern: str = r"[\s\S]+"
    or_none: bool = False

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return _reader(self.read)

    def read(self, given: object) -> str | None:
        """Return `given` as a str, or None."""
        value = _plain(given)
        if self.or_none and value is None:
            return None
        if isinstance(given, Scalar) and (given.place.is_option or type(value) in (int, float)):
            value = given.written
        if isinstance(value, bool):
            _reject_value(self.words, given, "; put it in quotes if you mean the text")
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            _reject_value(self.words, given)
        return value


def _reader(read: Callable[[Any], object]) -> CoreSchema:
    return core_schema.no_info_plain_validator_function(read)


def _plain(given: object) -> object:
    return given.value if isinstance(given, Scalar) else given


def _reject_value(expected: str, given: object, hint: str = "") -> NoReturn:
    reject(f"expected {expected}, found {shown(given)}{hint}")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"
