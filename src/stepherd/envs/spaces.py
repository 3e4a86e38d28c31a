"""Gymnasium spaces as specs, and values of those spaces into and out of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from stepherd.core.errors import SpecError
from stepherd.spec.batch import Actions, AnyArray
from stepherd.spec.specs import ActionSpec, ObservationSpec

Path = tuple[Any, ...]
"""The keys and indices that lead from an observation to one of its leaves."""

CARRIED = "Box, Discrete, MultiDiscrete, MultiBinary"


def observation_leaves(space: Any, path: Path = ()) -> Iterator[tuple[Path, ObservationSpec]]:
    """Yield each array inside an observation space, with the way to it, in the space's own order.

    Raises:
        SpecError: a space in it cannot be carried; the message names the space and where it is.
    """
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield from observation_leaves(inner, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from observation_leaves(inner, (*path, index))
    else:
        yield path, _leaf_spec(space, path)


def write_leaf(value: Any, array: AnyArray, path: Path) -> None:
    """Copy one leaf of an observation into its array.

    Raises:
        SpecError: its shape or kind of number is not what the space declared.
    """
    source = np.asarray(value)
    if source.shape != array.shape:
        raise SpecError(
            f"observation {path_name(path)!r} has shape {source.shape}, "
            f"but the observation space declares {array.shape}"
        )
    if source.dtype == array.dtype:
        array[...] = source
        return
    if source.dtype.kind in "iub" and array.dtype.kind in "iu":
        array[...] = source  # numpy lets a count wrap around in a smaller type: exact or wrong
        carried = np.array_equal(array, source)
    else:
        carried = np.can_cast(source.dtype, array.dtype, "same_kind")
        if carried:
            array[...] = source
    if not carried:
        raise SpecError(
            f"observation {path_name(path)!r} is {source.dtype}, but the observation space declares {array.dtype}; "
            "carrying it would change its values"
        )


def path_name(path: Path) -> str:
    """Return `camera/left` for a path inside Dict and Tuple spaces, and `obs` for no path."""
    return "/".join(str(part) for part in path) or "obs"


def action_spec(space: Any) -> ActionSpec:
    """Return the spec of an action space.

    Raises:
        SpecError: the space cannot be carried; the message names it.
    """
    if isinstance(space, spaces.Box) and space.dtype.kind == "f":
        low, high = (tuple(float(x) for x in np.ravel(bound)) for bound in (space.low, space.high))
        return ActionSpec(int(np.prod(space.shape)), low=low, high=high, continuous_dtype=str(space.dtype))
    if isinstance(space, spaces.Discrete):
        return ActionSpec(branches=(int(space.n),))
    if isinstance(space, spaces.MultiDiscrete):
        return ActionSpec(branches=tuple(int(n) for n in np.ravel(space.nvec)))
    if isinstance(space, spaces.MultiBinary):
        return ActionSpec(branches=(2,) * int(np.prod(space.shape)))
    raise SpecError(
        f"the action space {space} cannot be carried: Stepherd carries float Box, Discrete, MultiDiscrete and "
        "MultiBinary actions. Wrap the env so that its actions are one of these, for example with "
        "gymnasium.wrappers.TransformAction"
    )


def action_reader(space: Any) -> Callable[[Actions], Any]:
    """Return the function that turns one agent's arrays, (1, n), into a fresh value of `space`."""
    if isinstance(space, spaces.Box):
        box_shape = space.shape
        return lambda actions: actions.continuous[0].reshape(box_shape).copy()
    dtype: Any = space.dtype
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return lambda actions: dtype.type(int(actions.discrete[0, 0]) + first)
    shape = space.shape
    start = space.start if isinstance(space, spaces.MultiDiscrete) else np.zeros(shape, dtype)
    return lambda actions: (actions.discrete[0].reshape(shape) + start).astype(dtype)


def _leaf_spec(space: Any, path: Path) -> ObservationSpec:
    name = path_name(path)
    if isinstance(space, spaces.Box):
        return ObservationSpec(name, tuple(space.shape), str(space.dtype))
    if isinstance(space, spaces.Discrete):
        return ObservationSpec(name, (), str(space.dtype), "category", (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        counts = tuple(int(n) for n in np.ravel(space.nvec))
        starts = tuple(int(n) for n in np.ravel(space.start))
        return ObservationSpec(name, tuple(space.shape), str(space.dtype), "categories", counts, starts)
    if isinstance(space, spaces.MultiBinary):
        return ObservationSpec(name, tuple(space.shape), str(space.dtype), "bits")
    where = f" at {name!r}" if path else ""
    raise SpecError(
        f"the observation space {space}{where} cannot be carried: Stepherd carries {CARRIED}, "
        "also inside Dict and Tuple. Leave it out with gymnasium.wrappers.FilterObservation, or turn it into numbers "
        "with gymnasium.wrappers.TransformObservation"
    )
