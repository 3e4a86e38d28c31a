"""Whatever a supported space can hold is carried exactly; anything else is refused by name."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd.core.errors import SpecError
from stepherd.envs.spaces import action_reader, action_spec, observation_leaves, path_name, write_leaf
from stepherd.spec.batch import Actions
from unit.envs.random_spaces import action_spaces, observation_spaces


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """Return what lies at `path` inside an observation."""
    for key in path:
        value = value[key]
    return value


@settings(deadline=None, max_examples=150)
@given(space=observation_spaces, seed=st.integers(0, 2**31 - 1))
def test_every_observation_is_read_back_as_it_was_written(space: gymnasium.Space[Any], seed: int) -> None:
    space.seed(seed)
    value = space.sample()

    for path, spec in observation_leaves(space):
        array = np.full(spec.shape, 111, spec.dtype)
        write_leaf(at(value, path), array[...], path)

        np.testing.assert_array_equal(array, at(value, path))
        assert array.dtype == np.asarray(at(value, path)).dtype
        assert spec.name == path_name(path)


@settings(deadline=None, max_examples=150)
@given(space=action_spaces, seed=st.integers(0, 2**31 - 1))
def test_every_action_comes_out_as_a_value_of_its_space(space: gymnasium.Space[Any], seed: int) -> None:
    space.seed(seed)
    wanted = space.sample()
    spec = action_spec(space)

    action = action_reader(space)(encoded(space, wanted))

    assert space.contains(action)
    np.testing.assert_array_equal(action, wanted)
    assert len(spec.branches) + spec.n_continuous == np.size(wanted)


@settings(deadline=None, max_examples=50)
@given(space=action_spaces, seed=st.integers(0, 2**31 - 1))
def test_an_action_does_not_change_when_its_arrays_do(space: gymnasium.Space[Any], seed: int) -> None:
    space.seed(seed)
    wanted = space.sample()
    actions = encoded(space, wanted)

    action = action_reader(space)(actions)
    actions.continuous[...] = 0
    actions.discrete[...] = 0

    np.testing.assert_array_equal(action, wanted)


def encoded(space: gymnasium.Space[Any], value: Any) -> Actions:
    """Return the arrays, (1, n), that stand for one value of an action space."""
    flat = np.ravel(value)
    if isinstance(space, spaces.Box):
        return Actions(flat[None].copy(), np.zeros((1, 0), np.int32))
    start = 0 if isinstance(space, spaces.MultiBinary) else np.ravel(space.start)  # type: ignore[attr-defined]  # the others have one
    return Actions(np.zeros((1, 0), np.float32), (flat - start).astype(np.int32)[None])


def test_bounds_and_counts_are_in_the_spec() -> None:
    box = action_spec(spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, np.inf]), dtype=np.float64))
    multi = action_spec(spaces.MultiDiscrete([3, 4]))

    assert (box.low, box.high, box.continuous_dtype) == ((-1.0, 0.0), (1.0, np.inf), "float64")
    assert multi.branches == (3, 4)
    assert action_spec(spaces.MultiBinary([2, 2])).branches == (2, 2, 2, 2)
    assert action_spec(spaces.Discrete(5, start=2)).branches == (5,)


def test_leaves_come_in_the_spaces_own_order_with_their_places_as_names() -> None:
    space = spaces.Dict(
        camera=spaces.Dict(left=spaces.Box(0, 255, (2, 2), np.uint8), depth=spaces.Box(0.0, 1.0, ())),
        goal=spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
    )

    leaves = dict(observation_leaves(space))

    assert [spec.name for spec in leaves.values()] == ["camera/depth", "camera/left", "goal/0", "goal/1"] or [
        spec.name for spec in leaves.values()
    ] == ["camera/left", "camera/depth", "goal/0", "goal/1"]
    goal = leaves["goal", 0]
    assert (goal.kind, goal.n_categories, goal.first_category) == ("category", (3,), (5,))
    assert leaves["goal", 1].kind == "bits"


def test_a_plain_space_is_called_obs() -> None:
    assert [spec.name for _, spec in observation_leaves(spaces.Box(0.0, 1.0, (2,)))] == ["obs"]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0.0, 1.0, (2,)), None),
        spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_an_observation_space_that_cannot_be_carried_is_named_with_its_place(space: gymnasium.Space[Any]) -> None:
    whole = spaces.Dict(sensors=spaces.Tuple([spaces.Discrete(2), space]))

    with pytest.raises(SpecError) as caught:
        list(observation_leaves(whole))

    assert str(space) in str(caught.value)
    assert "at 'sensors/1'" in str(caught.value)
    assert "FilterObservation" in str(caught.value)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict(a=spaces.Discrete(2)),
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Box(0, 255, (2,), np.uint8),
    ],
    ids=lambda space: type(space).__name__,
)
def test_an_action_space_that_cannot_be_carried_is_named(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(SpecError) as caught:
        action_spec(space)

    assert str(space) in str(caught.value)
    assert "TransformAction" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "dtype", "carried"),
    [
        (np.array([0.5, 1.5], np.float64), "float32", True),  # the usual slip; float32 was declared, so float32 it is
        (np.array([1, 2], np.int64), "float32", True),
        (np.array([True, False]), "float32", True),
        ([1, 0], "int8", True),
        (np.array([True, False]), "int8", True),
        (np.array([5, 200], np.int64), "uint8", True),
        (np.array([5, 300], np.int64), "uint8", False),
        (np.array([5, -1], np.int64), "uint8", False),
        (np.array([5, 127], np.int64), "int8", True),
        (np.array([5, 300], np.int64), "int8", False),
        (np.array([5, 200], np.uint8), "int8", False),
        (np.array([5, 300], np.uint16), "uint8", False),
        (np.array([5, 2**63 + 1], np.uint64), "int64", False),
        (np.array([1.0, 2.0], np.float64), "int64", False),
        (np.array([1.0, 2.0], np.complex128), "float32", False),
        (np.array(["1", "2"]), "float32", False),
        (np.array([1.0, None]), "float32", False),
    ],
    ids=str,
)
def test_another_kind_of_number_is_carried_if_its_values_survive(value: Any, dtype: str, carried: bool) -> None:
    array = np.full(2, 99, dtype)

    if carried:
        write_leaf(value, array, ("camera",))

        np.testing.assert_array_equal(array, np.asarray(value, dtype))
    else:
        with pytest.raises(SpecError, match=f"'camera'.*{dtype}"):
            write_leaf(value, array, ("camera",))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 2), (2, 1)])
def test_another_shape_is_refused_even_if_it_could_be_broadcast(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match=r"'obs' has shape .*declares \(2,\)"):
        write_leaf(np.zeros(shape), np.zeros(2), ())


def test_values_that_are_no_numbers_at_all_are_refused() -> None:
    for value in (None, "text", {"a": 1}):
        with pytest.raises(SpecError, match="'obs'"):
            write_leaf(value, np.zeros(2), ())
