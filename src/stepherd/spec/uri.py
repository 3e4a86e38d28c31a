"""Env URIs: one string that says which simulator to build, read as plain data before anything is imported.

gymnasium:CartPole-v1            a registered Gymnasium id
gymnasium:pkg.mod:Env-v0         the same, after importing pkg.mod, which registers it
python:pkg.mod:make_env          a callable that returns an env
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from stepherd.core.errors import SpecError

Scheme = Literal["gymnasium", "python"]
SCHEMES: tuple[str, ...] = get_args(Scheme)
_LATER = ("pettingzoo", "unity")
_BUILDS = (".exe", ".app", ".x86_64", ".x86")


@dataclass(frozen=True, slots=True)
class EnvUri:
    """A parsed URI. `module` is imported first and may be empty for `gymnasium`; `name` is the id or the callable."""

    scheme: Scheme
    module: str
    name: str

    def __str__(self) -> str:
        return ":".join(part for part in (self.scheme, self.module, self.name) if part)


def read_uri(text: str) -> EnvUri:
    """Return what `text` stands for. A text without a scheme is a Gymnasium id.

    Raises:
        SpecError: it is no URI of an env; the message shows the forms there are.
    """
    scheme, colon, rest = text.partition(":")
    if (scheme in _LATER and colon) or text.endswith(_BUILDS):
        kind = "Unity builds" if text.endswith(_BUILDS) else f"envs of the kind {scheme!r}"
        raise SpecError(f"{text!r}: {kind} are not built yet; there are {', '.join(SCHEMES)}")
    if not colon or scheme not in SCHEMES:
        # `CartPole-v1` and `pkg.mod:Env-v0` are how Gymnasium itself writes ids.
        scheme, rest = "gymnasium", text
    module, _, name = rest.rpartition(":")
    if scheme == "python" and not module:
        raise SpecError(f"{text!r} names no module: write python:package.module:callable")
    if not name or (module and not all(part.isidentifier() for part in module.split("."))):
        raise SpecError(
            f"{text!r} is no env: write gymnasium:CartPole-v1, gymnasium:package.module:Env-v0 "
            "or python:package.module:make_env"
        )
    return EnvUri("python" if scheme == "python" else "gymnasium", module, name)
