"""Envs are built from URIs and from factories; what cannot be built is said in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepherd.core.errors import SpecError
from stepherd.envs.build import build_env
from stepherd.envs.gymnasium_env import GymnasiumEnv
from stepherd.testing.faulty_envs import CountingEnv

FAULTY_ENVS = "python:stepherd.testing.faulty_envs"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("gymnasium:CartPole-v1", "CartPole"),
        ("CartPole-v1", "CartPole"),
        (f"{FAULTY_ENVS}:CountingEnv", "CountingEnv"),
        (CountingEnv, "CountingEnv"),
        (lambda: CountingEnv(), "CountingEnv"),
    ],
)
def test_an_env_is_built_from_a_uri_or_a_factory(source: str | Callable[..., Any], name: str) -> None:
    env = build_env(source, {})

    assert env.spec.names == (name,)
    env.close()


def test_arguments_reach_the_factory() -> None:
    seen: dict[str, Any] = {}

    def make(**kwargs: Any) -> CountingEnv:
        seen.update(kwargs)
        return CountingEnv()

    build_env(make, {"a": 1, "b": [2]})

    assert seen == {"a": 1, "b": [2]}


def test_arguments_reach_a_registered_env() -> None:
    with pytest.raises(TypeError, match="no_such_argument"):
        build_env("gymnasium:CartPole-v1", {"no_such_argument": 1})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("gymnasium:NoSuchEnv-v0", "NoSuchEnv.*gymnasium:package.module:NoSuchEnv-v0"),
        ("gymnasium:no_such_package.mod:Env-v0", "no module 'no_such_package.mod'.*installed"),
        ("python:no_such_package:make", "no module 'no_such_package'.*installed"),
        ("python:stepherd.no_such_module:make", "no module 'stepherd.no_such_module'"),
        (f"{FAULTY_ENVS}:NoSuchEnv", "has no 'NoSuchEnv'"),
        (f"{FAULTY_ENVS}:CountingEnv.nothing", "has no 'CountingEnv.nothing'"),
        (f"{FAULTY_ENVS}:FOR_EVER_S", "not something to call"),
        ("python:pathlib:Path", "made a pathlib.*neither a gymnasium.Env nor"),
    ],
)
def test_what_cannot_be_built_is_said_in_one_sentence(source: str, words: str) -> None:
    with pytest.raises(SpecError, match=f"(?s){words}"):
        build_env(source, {})


def test_a_factory_that_forgets_to_return_is_told_what_it_made() -> None:
    with pytest.raises(SpecError, match="NoneType"):
        build_env(lambda: None, {})


def test_an_env_of_our_own_protocol_is_taken_as_it_is() -> None:
    ours = GymnasiumEnv(CountingEnv())

    assert build_env(lambda: ours, {}) is ours


def test_a_module_that_needs_what_is_not_there_says_that_and_not_that_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_of_mine.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        build_env("python:module_of_mine:make", {})


def test_an_env_that_a_module_registers_is_found_after_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registers_mine.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v3', 'stepherd.testing.faulty_envs:CountingEnv', disable_env_checker=True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    env = build_env("gymnasium:registers_mine:Mine-v3", {"length": 3})

    assert env.spec.names == ("Mine",)
    sys.modules.pop("registers_mine")


def test_what_a_constructor_raises_comes_through_as_it_is() -> None:
    with pytest.raises(ValueError, match="deliberate"):
        build_env(f"{FAULTY_ENVS}:RaisingEnv", {"where": "constructor"})
