"""The exception tree is the one its docstring draws, and errors carry what a handler needs."""

from __future__ import annotations

import pickle
import re

import pytest

import stepherd
from stepherd.core import errors


def error_classes() -> dict[str, type]:
    """Return the classes that the module defines, by name."""
    return {name: value for name, value in vars(errors).items() if getattr(value, "__module__", "") == errors.__name__}


def drawn_parents() -> dict[str, str]:
    """Return each name in the tree of the module's docstring with the one it hangs from."""
    parents: dict[str, str] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if (found := re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line)) is not None:
            depth, name = len(found[1]) // 4, found[2]
            above[depth] = name
            parents[name] = above[depth - 1] if depth else "Exception"
    return parents


def test_the_tree_is_the_one_that_is_drawn() -> None:
    real = {name: error.__bases__[0].__name__ for name, error in error_classes().items()}

    assert drawn_parents() == real


def test_every_error_is_public() -> None:
    assert {name for name in error_classes() if name not in stepherd.__all__} == set()


def test_a_configuration_error_says_every_problem_on_a_line_of_its_own() -> None:
    error = errors.ConfigError(["first", "second"])

    assert str(error) == "first\nsecond"
    assert error.problems == ["first", "second"]


def test_a_configuration_error_without_a_problem_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        errors.ConfigError([])


@pytest.mark.parametrize("kind", [errors.EnvNeverReady, errors.WorkerFailed])
def test_an_error_of_a_worker_says_which(kind: type[errors.WorkerError]) -> None:
    error = kind(3, "it is gone")

    assert error.worker_id == 3
    assert str(error) == "it is gone"


@pytest.mark.parametrize(
    "error",
    [errors.WorkerFailed(3, "it is gone"), errors.EnvNeverReady(0, "no such file"), errors.ConfigError(["a", "b"])],
    ids=lambda error: type(error).__name__,
)
def test_every_error_survives_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
