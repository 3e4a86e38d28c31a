"""Random specs, and random values that fit them."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from stepherd.spec.batch import AnyArray
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec

DTYPES = ("float16", "float32", "float64", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool")

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def observations(draw: st.DrawFn) -> ObservationSpec:
    """Draw one observation of any kind."""
    name = draw(st.text("abc/", min_size=1, max_size=4))
    kind = draw(st.sampled_from(["box", "category", "categories", "bits"]))
    if kind == "box":
        return ObservationSpec(name, draw(shapes), draw(st.sampled_from(DTYPES)))
    if kind == "bits":
        return ObservationSpec(name, draw(shapes), "int8", "bits")
    if kind == "category":
        return ObservationSpec(name, (), "int64", "category", (draw(st.integers(1, 9)),), (draw(st.integers(-5, 5)),))
    shape = draw(shapes)
    n = math.prod(shape)
    return ObservationSpec(name, shape, "int64", "categories", (3,) * n, (0,) * n)


@st.composite
def action_specs(draw: st.DrawFn) -> ActionSpec:
    """Draw an action with continuous numbers, branches, both or neither."""
    n = draw(st.integers(0, 4))
    branches = tuple(draw(st.lists(st.integers(1, 9), max_size=4)))
    return ActionSpec(n, branches, (-1.0,) * n, (1.0,) * n, draw(st.sampled_from(["float32", "float64"])))


@st.composite
def env_specs(draw: st.DrawFn) -> EnvSpec:
    """Draw an env with one to three behaviors of one to three agents."""
    names = draw(st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=3, unique=True))
    return EnvSpec(
        tuple(
            BehaviorSpec(
                name,
                tuple(draw(st.lists(observations(), max_size=4))),
                draw(action_specs()),
                draw(st.integers(1, 3)),
            )
            for name in names
        )
    )


def fill_randomly(array: AnyArray, random: np.random.Generator) -> AnyArray:
    """Write random bytes, which are valid values of the dtype, into an array; return a copy of what it now holds."""
    if array.dtype == np.bool_:
        array[...] = random.integers(0, 2, array.shape, np.int8).astype(np.bool_)
    else:
        array[...] = random.integers(0, 256, (*array.shape, array.dtype.itemsize), np.uint8).view(array.dtype)[..., 0]
    copy: AnyArray = array.copy()
    return copy
