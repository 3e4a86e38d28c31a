"""From a job's words to a running simulator."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from stepherd.core.errors import SpecError
from stepherd.envs.env import Env
from stepherd.spec.specs import EnvSpec
from stepherd.spec.uri import EnvUri, read_uri


def build_env(source: str | Callable[..., Any], kwargs: Mapping[str, Any]) -> Env:
    """Return a running simulator from a URI or a factory.

    Raises:
        SpecError: the URI is none, what it names does not exist, or what came out is no env Stepherd knows.
    """
    factory = _resolve(read_uri(source)) if isinstance(source, str) else source
    return _as_env(factory(**kwargs), source)


def _resolve(uri: EnvUri) -> Callable[..., Any]:
    if uri.module:
        module = _import(uri)
    if uri.scheme == "python":
        found: Any = module
        for name in uri.name.split("."):
            if not hasattr(found, name):
                raise SpecError(f"{uri}: module {uri.module!r} has no {uri.name!r}")
            found = getattr(found, name)
        return _checked(found, uri)
    return lambda **kwargs: _make_gymnasium(uri, kwargs)


def _import(uri: EnvUri) -> Any:
    try:
        return importlib.import_module(uri.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{uri.module}.".startswith(f"{error.name}."):
            raise  # the module is there; something it needs is not
        raise SpecError(
            f"{uri}: there is no module {uri.module!r}; it must be installed, or lie in the folder you start from"
        ) from error


def _checked(found: Any, uri: EnvUri) -> Callable[..., Any]:
    if not callable(found):
        raise SpecError(f"{uri}: {uri.name!r} is {found!r}, not something to call")
    factory: Callable[..., Any] = found
    return factory


def _make_gymnasium(uri: EnvUri, kwargs: Mapping[str, Any]) -> Any:
    try:
        import gymnasium  # an extra
    except ModuleNotFoundError as error:
        raise SpecError(f"{uri} needs Gymnasium: pip install 'stepherd[gymnasium]'") from error
    try:
        return gymnasium.make(uri.name, **kwargs)
    except gymnasium.error.UnregisteredEnv as error:
        raise SpecError(
            f"{uri}: {error} If a package of yours registers it, name the module that does: "
            f"gymnasium:package.module:{uri.name}"
        ) from error
    except gymnasium.error.Error as error:  # a missing extra, a bad argument: Gymnasium says it well
        raise SpecError(f"{uri}: {error}") from error


def _as_env(made: Any, source: str | Callable[..., Any]) -> Env:
    if isinstance(getattr(made, "spec", None), EnvSpec):
        env: Env = made
        return env
    try:
        import gymnasium
    except ModuleNotFoundError:
        gymnasium = None  # type: ignore[assignment]  # then it cannot be a Gymnasium env either
    if gymnasium is not None and isinstance(made, gymnasium.Env):
        from stepherd.envs.gymnasium_env import GymnasiumEnv  # needs gymnasium

        return GymnasiumEnv(made)
    raise SpecError(
        f"{source} made a {type(made).__module__}.{type(made).__qualname__}, which is neither a gymnasium.Env nor "
        "an object with Stepherd's Env protocol (stepherd.envs.env.Env)"
    )
