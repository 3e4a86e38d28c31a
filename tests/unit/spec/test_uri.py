"""URIs are read as plain data, and a wrong one is told what right ones look like."""

from __future__ import annotations

import pytest

from stepherd.core.errors import SpecError
from stepherd.spec.uri import EnvUri, read_uri


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("gymnasium:CartPole-v1", EnvUri("gymnasium", "", "CartPole-v1")),
        ("CartPole-v1", EnvUri("gymnasium", "", "CartPole-v1")),
        ("gymnasium:ALE/Pong-v5", EnvUri("gymnasium", "", "ALE/Pong-v5")),
        ("ALE/Pong-v5", EnvUri("gymnasium", "", "ALE/Pong-v5")),
        ("gymnasium:pkg.mod:Env-v0", EnvUri("gymnasium", "pkg.mod", "Env-v0")),
        ("pkg.mod:Env-v0", EnvUri("gymnasium", "pkg.mod", "Env-v0")),
        ("gymnasium:pkg:space/Env-v0", EnvUri("gymnasium", "pkg", "space/Env-v0")),
        ("python:pkg.mod:make_env", EnvUri("python", "pkg.mod", "make_env")),
        ("python:mod:Class.make", EnvUri("python", "mod", "Class.make")),
    ],
)
def test_a_uri_is_read(text: str, uri: EnvUri) -> None:
    assert read_uri(text) == uri


@pytest.mark.parametrize("text", ["gymnasium:CartPole-v1", "gymnasium:pkg.mod:Env-v0", "python:pkg.mod:make_env"])
def test_a_uri_is_written_as_it_was_read(text: str) -> None:
    assert str(read_uri(text)) == text


@pytest.mark.parametrize(
    "text", ["", ":", "gymnasium:", "python:mod:", "foo:", "pkg mod:Env-v0", "a..b:Env-v0", "1a:b"]
)
def test_what_is_no_uri_is_shown_the_forms_there_are(text: str) -> None:
    with pytest.raises(SpecError, match="gymnasium:CartPole-v1") as caught:
        read_uri(text)

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["python:make_env", "python::make_env"])
def test_a_callable_without_its_module_is_told_so(text: str) -> None:
    with pytest.raises(SpecError, match=r"python:package\.module:callable"):
        read_uri(text)


@pytest.mark.parametrize("text", ["unity:build/Game.x86_64", "pettingzoo:butterfly/pistonball_v6"])
def test_what_comes_later_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(SpecError, match=r"not built yet; there are gymnasium, python"):
        read_uri(text)
