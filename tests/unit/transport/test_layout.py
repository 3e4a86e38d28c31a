"""Fields lie apart and aligned, and whatever is written through the views of one side is read through the other's."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd.spec.batch import AnyArray, BehaviorSteps
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec
from stepherd.transport.block import Block
from stepherd.transport.control import control_bytes
from stepherd.transport.layout import ROW_ALIGN, BehaviorLayout, Field, Layout
from unit.spec.random_specs import env_specs, fill_randomly


def hot_fields(behavior: BehaviorLayout) -> Iterator[Field]:
    """Yield the fields of the hot row."""
    yield from behavior.obs
    yield from (behavior.reward, behavior.deciding, behavior.terminated, behavior.interrupted)


def check_apart_and_aligned(fields: Iterable[Field], row_bytes: int) -> None:
    """Check that no two fields overlap, none reaches out of the row, and each is aligned to its dtype."""
    end = 0
    for field in sorted(fields, key=lambda field: (field.offset, math.prod(field.shape))):
        item = np.dtype(field.dtype).itemsize
        assert field.offset >= end
        assert field.offset % item == 0
        end = field.offset + math.prod(field.shape) * item
    assert end <= row_bytes


def arrays_of(steps: BehaviorSteps) -> list[AnyArray]:
    """Return every array of some steps."""
    return [*steps.obs, *steps.final_obs, steps.reward, steps.deciding, steps.terminated, steps.interrupted]


@settings(deadline=None, max_examples=100)
@given(spec=env_specs())
def test_fields_never_overlap_and_are_aligned(spec: EnvSpec) -> None:
    layout = Layout.of(spec)
    behaviors = layout.behaviors.values()

    assert tuple(layout.behaviors) == spec.names
    check_apart_and_aligned((field for b in behaviors for field in hot_fields(b)), layout.hot_bytes)
    check_apart_and_aligned((field for b in behaviors for field in b.final_obs), layout.cold_bytes)
    check_apart_and_aligned((field for b in behaviors for field in (b.continuous, b.discrete)), layout.action_bytes)
    for row_bytes in (layout.hot_bytes, layout.cold_bytes, layout.action_bytes):
        assert row_bytes >= ROW_ALIGN
        assert row_bytes % ROW_ALIGN == 0


@settings(deadline=None, max_examples=50)
@given(spec=env_specs(), n_envs=st.integers(1, 4))
def test_the_three_kinds_of_rows_and_the_control_lines_lie_apart(spec: EnvSpec, n_envs: int) -> None:
    layout = Layout.of(spec)
    with contextlib.closing(Block.create(layout.block_bytes(n_envs))) as block:
        regions = [np.frombuffer(block.buffer, np.uint8)[: control_bytes(n_envs)], *layout.split(block.buffer, n_envs)]

        for number, region in enumerate(regions):
            region[...] = number
        sizes = [int((np.frombuffer(block.buffer, np.uint8) == number).sum()) for number in range(4)]

        assert sizes == [region.size for region in regions]
        assert sum(sizes) == layout.block_bytes(n_envs)


@settings(deadline=None, max_examples=60)
@given(spec=env_specs(), n_envs=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_what_each_env_writes_is_what_the_manager_reads(spec: EnvSpec, n_envs: int, seed: int) -> None:
    layout, random = Layout.of(spec), np.random.default_rng(seed)
    with contextlib.closing(Block.create(layout.block_bytes(n_envs))) as block:
        written = [
            {name: [fill_randomly(array, random) for array in arrays_of(steps[name])] for name in spec.names}
            for steps, _ in layout.per_env(block.buffer, n_envs)
        ]

        hot, cold, _ = layout.split(block.buffer, n_envs)
        read = layout.steps(hot, cold)

        for index in range(n_envs):
            for name in spec.names:
                for array, expected in zip(arrays_of(read[name]), written[index][name], strict=True):
                    assert array[index].tobytes() == expected.tobytes()


@settings(deadline=None, max_examples=60)
@given(spec=env_specs(), n_envs=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_what_the_manager_writes_is_what_each_env_reads(spec: EnvSpec, n_envs: int, seed: int) -> None:
    layout, random = Layout.of(spec), np.random.default_rng(seed)
    with contextlib.closing(Block.create(layout.block_bytes(n_envs))) as block:
        _, _, rows = layout.split(block.buffer, n_envs)
        actions = layout.actions(rows)
        written = {
            n: (fill_randomly(a.continuous, random), fill_randomly(a.discrete, random)) for n, a in actions.items()
        }

        for index, (_, mine) in enumerate(layout.per_env(block.buffer, n_envs)):
            for name in spec.names:
                assert mine[name].continuous.tobytes() == written[name][0][index].tobytes()
                assert mine[name].discrete.tobytes() == written[name][1][index].tobytes()


@settings(deadline=None, max_examples=60)
@given(spec=env_specs())
def test_shapes_and_dtypes_are_those_of_the_spec(spec: EnvSpec) -> None:
    layout = Layout.of(spec)
    with contextlib.closing(Block.create(layout.block_bytes(3))) as block:
        hot, cold, rows = layout.split(block.buffer, 3)
        steps, actions = layout.steps(hot, cold), layout.actions(rows)

        for behavior in spec.behaviors:
            places = (3, behavior.n_agents)
            mine = steps[behavior.name]
            expected = [((*places, *o.shape), np.dtype(o.dtype)) for o in behavior.observations]
            assert [(array.shape, array.dtype) for array in mine.obs] == expected
            assert [(array.shape, array.dtype) for array in mine.final_obs] == expected
            assert mine.reward.shape == mine.deciding.shape == mine.ended.shape == places
            assert mine.reward.dtype == np.float64
            assert actions[behavior.name].continuous.shape == (*places, behavior.action.n_continuous)
            assert actions[behavior.name].continuous.dtype == behavior.action.continuous_dtype
            assert actions[behavior.name].discrete.shape == (*places, len(behavior.action.branches))
            assert actions[behavior.name].discrete.dtype == np.int32


def test_envs_never_share_a_cache_line() -> None:
    spec = EnvSpec((BehaviorSpec("A", (ObservationSpec("obs", (3,), "uint8"),), ActionSpec(branches=(2,))),))
    layout = Layout.of(spec)
    with contextlib.closing(Block.create(layout.block_bytes(4))) as block:
        base = np.frombuffer(block.buffer, np.uint8).__array_interface__["data"][0]
        addresses = [
            (steps["A"].reward.__array_interface__["data"][0] - base) // ROW_ALIGN
            for steps, _ in layout.per_env(block.buffer, 4)
        ]

    assert len(set(addresses)) == 4


@pytest.mark.parametrize("shape", [(), (1,), (84, 84, 4), (0,), (3, 0, 2)])
def test_views_of_rows_share_their_memory(shape: tuple[int, ...]) -> None:
    spec = EnvSpec((BehaviorSpec("A", (ObservationSpec("obs", shape, "float32"),), ActionSpec()),))
    layout = Layout.of(spec)
    rows = np.zeros((2, layout.hot_bytes), np.uint8)

    view = layout.behaviors["A"].obs[0].view(rows)
    view[...] = 1.0

    assert view.shape == (2, 1, *shape)
    assert int((rows != 0).sum()) == 2 * view.size  # a float32 of 1.0 has two bytes that are not zero
