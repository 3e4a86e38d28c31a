"""Where everything lies in a block: pure arithmetic from a spec to offsets, and the numpy views over them.

    control  one line of counters per worker, one per env        (transport/control.py)
    hot      a row per env: what every step writes               copied whole by the manager, one copy per worker
    cold     a row per env: last observations of ended episodes  copied only for envs whose episode ended
    actions  a row per env: what the manager writes

Rows keep all fields of one env together, so that the manager moves a worker's envs with a single copy; the fields of
many envs are then strided views over the copied rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepherd.spec.batch import Actions, AnyArray, BehaviorSteps
from stepherd.spec.specs import BehaviorSpec, EnvSpec
from stepherd.transport.control import control_bytes

ROW_ALIGN = 64  # a cache line: two envs of a worker never share one, and every dtype is aligned

Rows = npt.NDArray[np.uint8]
"""(envs, bytes per row), contiguous."""


@dataclass(frozen=True, slots=True)
class Field:
    """One array of one env inside a row."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    def view(self, rows: Rows) -> AnyArray:
        """Return the field of all rows: (rows, *shape), sharing their memory."""
        dtype = np.dtype(self.dtype)
        strides = [dtype.itemsize] * len(self.shape)
        for axis in range(len(self.shape) - 2, -1, -1):
            strides[axis] = strides[axis + 1] * self.shape[axis + 1]
        view: AnyArray = np.ndarray((len(rows), *self.shape), dtype, rows, self.offset, (rows.strides[0], *strides))
        return view


@dataclass(frozen=True, slots=True)
class BehaviorLayout:
    """The fields of one behavior; `final_obs` are in the cold row, `continuous` and `discrete` in the action row."""

    obs: tuple[Field, ...]
    final_obs: tuple[Field, ...]
    reward: Field
    deciding: Field
    terminated: Field
    interrupted: Field
    continuous: Field
    discrete: Field


class _Packer:
    """Hands out aligned places in a row."""

    def __init__(self) -> None:
        self.size = 0

    def place(self, shape: tuple[int, ...], dtype: str) -> Field:
        item = np.dtype(dtype).itemsize
        offset = math.ceil(self.size / item) * item
        self.size = offset + math.prod(shape) * item
        return Field(offset, shape, dtype)

    @property
    def stride(self) -> int:
        return max(ROW_ALIGN, math.ceil(self.size / ROW_ALIGN) * ROW_ALIGN)


@dataclass(frozen=True, slots=True)
class Layout:
    """The rows of one kind of env: sizes, and the fields of each behavior."""

    hot_bytes: int
    cold_bytes: int
    action_bytes: int
    behaviors: Mapping[str, BehaviorLayout]

    @classmethod
    def of(cls, spec: EnvSpec) -> Layout:
        """Lay out the rows of an env with this spec."""
        hot, cold, actions = _Packer(), _Packer(), _Packer()
        behaviors = {b.name: _place_behavior(b, hot, cold, actions) for b in spec.behaviors}
        return cls(hot.stride, cold.stride, actions.stride, behaviors)

    def block_bytes(self, n_envs: int) -> int:
        """Bytes of a whole block for `n_envs` envs."""
        return control_bytes(n_envs) + n_envs * (self.hot_bytes + self.cold_bytes + self.action_bytes)

    def split(self, buffer: memoryview, n_envs: int) -> tuple[Rows, Rows, Rows]:
        """Return the hot, cold and action rows inside a block's memory."""
        memory = np.frombuffer(buffer, np.uint8)
        rows, start = [], control_bytes(n_envs)
        for width in (self.hot_bytes, self.cold_bytes, self.action_bytes):
            rows.append(memory[start : start + n_envs * width].reshape(n_envs, width))
            start += n_envs * width
        hot, cold, actions = rows
        return hot, cold, actions

    def steps(self, hot: Rows, cold: Rows) -> dict[str, BehaviorSteps]:
        """Return the steps in some rows, by behavior; leading axes (rows, agent places)."""
        return {
            name: BehaviorSteps(
                obs=tuple(field.view(hot) for field in fields.obs),
                final_obs=tuple(field.view(cold) for field in fields.final_obs),
                reward=fields.reward.view(hot),
                deciding=fields.deciding.view(hot),
                terminated=fields.terminated.view(hot),
                interrupted=fields.interrupted.view(hot),
            )
            for name, fields in self.behaviors.items()
        }

    def actions(self, rows: Rows) -> dict[str, Actions]:
        """Return the actions in some rows, by behavior; leading axes (rows, agent places)."""
        return {
            name: Actions(fields.continuous.view(rows), fields.discrete.view(rows))
            for name, fields in self.behaviors.items()
        }

    def per_env(self, buffer: memoryview, n_envs: int) -> Iterator[tuple[dict[str, BehaviorSteps], dict[str, Actions]]]:
        """Yield the steps and the actions of each env of a block; leading axis: agent places."""
        hot, cold, action_rows = self.split(buffer, n_envs)
        steps, actions = self.steps(hot, cold), self.actions(action_rows)
        for index in range(n_envs):
            yield (
                {name: _steps_of_row(of_all, index) for name, of_all in steps.items()},
                {name: Actions(a.continuous[index], a.discrete[index]) for name, a in actions.items()},
            )


def _place_behavior(spec: BehaviorSpec, hot: _Packer, cold: _Packer, actions: _Packer) -> BehaviorLayout:
    places = (spec.n_agents,)
    return BehaviorLayout(
        obs=tuple(hot.place((*places, *o.shape), o.dtype) for o in spec.observations),
        final_obs=tuple(cold.place((*places, *o.shape), o.dtype) for o in spec.observations),
        reward=hot.place(places, "float64"),
        deciding=hot.place(places, "bool"),
        terminated=hot.place(places, "bool"),
        interrupted=hot.place(places, "bool"),
        continuous=actions.place((*places, spec.action.n_continuous), spec.action.continuous_dtype),
        discrete=actions.place((*places, len(spec.action.branches)), "int32"),
    )


def _steps_of_row(steps: BehaviorSteps, row: int) -> BehaviorSteps:
    return BehaviorSteps(
        obs=tuple(array[row] for array in steps.obs),
        final_obs=tuple(array[row] for array in steps.final_obs),
        reward=steps.reward[row],
        deciding=steps.deciding[row],
        terminated=steps.terminated[row],
        interrupted=steps.interrupted[row],
    )
