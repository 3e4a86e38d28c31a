"""Random Gymnasium spaces of every kind that can be carried."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

BOX_DTYPES = ("float32", "float64", "float16", "uint8", "int8", "int16", "int32", "int64")

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, dtypes: tuple[str, ...] = BOX_DTYPES) -> spaces.Box:
    """Draw a box whose bounds fit its dtype."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    low = draw(st.integers(-100, 50)) if dtype.kind != "u" else draw(st.integers(0, 50))
    bounded = dtype.kind != "f" or draw(st.booleans())
    return spaces.Box(low if bounded else -np.inf, low + 60 if bounded else np.inf, draw(shapes), dtype.type)


@st.composite
def discretes(draw: st.DrawFn) -> spaces.Discrete:
    """Draw a choice, starting anywhere."""
    return spaces.Discrete(draw(st.integers(1, 50)), start=draw(st.integers(-(2**40), 2**40)))


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete:
    """Draw several choices, in one axis or two, starting anywhere."""
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    n = int(np.prod(shape))
    counts = draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    starts = draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n))
    return spaces.MultiDiscrete(np.reshape(counts, shape), start=np.reshape(starts, shape))


@st.composite
def multi_binaries(draw: st.DrawFn) -> spaces.MultiBinary:
    """Draw flags."""
    return draw(st.sampled_from([spaces.MultiBinary(1), spaces.MultiBinary(4), spaces.MultiBinary([2, 3])]))


leaves: st.SearchStrategy[spaces.Space[Any]] = st.one_of(boxes(), discretes(), multi_discretes(), multi_binaries())

observation_spaces: st.SearchStrategy[spaces.Space[Any]] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["camera", "left", "speed", "x"]), inner, max_size=3).map(spaces.Dict),
        st.lists(inner, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)

action_spaces: st.SearchStrategy[spaces.Space[Any]] = st.one_of(
    boxes(("float32", "float64")), discretes(), multi_discretes(), multi_binaries()
)
