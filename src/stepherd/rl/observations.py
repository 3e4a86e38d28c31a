"""Turns one behavior's observations into one flat vector of numbers per agent.

    box, bits               float, flattened
    category, categories    one-hot, counted from `first_category`

This is also the boundary where a bad number is caught: whatever leaves `encode` is finite (K11).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepherd.core.errors import SpecError, WrongValue
from stepherd.spec.batch import AnyArray, Bools, Ints
from stepherd.spec.specs import BehaviorSpec, ObservationSpec

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where one observation lies in the vector."""

    spec: ObservationSpec
    start: int
    stop: int
    one_hot: bool
    first: Ints
    """(size,): the lowest category of each element; empty unless one-hot."""
    n_categories: Ints
    offsets: Ints
    """(size,): the column of each element's lowest category."""


class ObservationEncoder:
    """Knows the layout of the vector and fills it.

    Raises:
        SpecError: an observation cannot be flattened into a vector, or there is none at all.
    """

    def __init__(self, behavior: BehaviorSpec) -> None:
        self.behavior = behavior
        self._parts: list[_Columns] = []
        start = 0
        for spec in behavior.observations:
            part = _columns_of(behavior, spec, start)
            self._parts.append(part)
            start = part.stop
        self.width = start
        """Length of the vector."""
        if self.width == 0:
            raise SpecError(f"behavior {behavior.name!r} observes nothing, so there is nothing to learn from")
        self.is_box: Bools = np.zeros(self.width, dtype=np.bool_)
        """(width,): the columns that hold real numbers, the only ones worth normalising."""
        for part in self._parts:
            self.is_box[part.start : part.stop] = part.spec.kind == "box"

    def encode(self, obs: tuple[AnyArray, ...], slots: Ints) -> FloatArray:
        """Return a new (n, width) array for `obs`, each (n, *shape); `slots` (n,) is only for the error message.

        Raises:
            SpecError: a number is not finite as a float32, or a category does not exist; names observation and slot.
        """
        assert len(obs) == len(self._parts), (len(obs), self.behavior)
        n = len(slots)
        vector = np.empty((n, self.width), dtype=np.float32)
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is caught below by name
            for part, array in zip(self._parts, obs, strict=True):
                flat = array.reshape(n, part.spec.size)
                if part.one_hot:
                    self._write_one_hot(vector, part, flat, slots)
                else:
                    vector[:, part.start : part.stop] = flat
        if not np.isfinite(vector).all():
            self._raise_not_finite(vector, slots)
        return vector

    def _write_one_hot(self, vector: FloatArray, part: _Columns, flat: AnyArray, slots: Ints) -> None:
        choice = flat.astype(np.int64) - part.first
        valid = (choice >= 0) & (choice < part.n_categories)
        if not valid.all():
            row, element = (int(i) for i in np.argwhere(~valid)[0])
            first, n = int(part.first[element]), int(part.n_categories[element])
            raise WrongValue(
                f"observation {part.spec.name!r} of behavior {self.behavior.name!r} is {flat[row, element]} "
                f"in slot {int(slots[row])} (element {element}), but its space has {first} to {first + n - 1}"
            )
        vector[:, part.start : part.stop] = 0.0
        vector[np.arange(len(flat))[:, None], part.offsets + choice] = 1.0

    def _raise_not_finite(self, vector: FloatArray, slots: Ints) -> None:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(vector))[0])
        part = next(part for part in self._parts if part.start <= column < part.stop)
        raise WrongValue(
            f"observation {part.spec.name!r} of behavior {self.behavior.name!r} is {vector[row, column]} as a float32 "
            f"in slot {int(slots[row])} (element {column - part.start}): nothing was learned from it. "
            "Look for a division by zero or an unbounded value in the env"
        )


def _columns_of(behavior: BehaviorSpec, spec: ObservationSpec, start: int) -> _Columns:
    if len(spec.shape) >= 3:
        raise SpecError(
            f"observation {spec.name!r} of behavior {behavior.name!r} has shape {spec.shape}, an image: "
            "visual observations are not built yet"
        )
    one_hot = spec.kind in ("category", "categories")
    n_categories = np.array(spec.n_categories if one_hot else (), dtype=np.int64)
    width = int(n_categories.sum()) if one_hot else spec.size
    return _Columns(
        spec=spec,
        start=start,
        stop=start + width,
        one_hot=one_hot,
        first=np.array(spec.first_category if one_hot else (), dtype=np.int64),
        n_categories=n_categories,
        offsets=start + np.cumsum(n_categories) - n_categories,
    )
