"""Specs are plain frozen values that cannot contradict themselves."""

from __future__ import annotations

import pickle

import pytest

from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec


def behavior(name: str) -> BehaviorSpec:
    """Return a small behavior."""
    return BehaviorSpec(name, (ObservationSpec("obs", (2,), "float32"),), ActionSpec(branches=(2,)))


@pytest.mark.parametrize(
    ("shape", "dtype", "size", "size_bytes"),
    [((), "float64", 1, 8), ((3, 4), "float32", 12, 48), ((84, 84, 4), "uint8", 28224, 28224), ((0, 5), "int64", 0, 0)],
)
def test_an_observation_knows_its_size(shape: tuple[int, ...], dtype: str, size: int, size_bytes: int) -> None:
    spec = ObservationSpec("obs", shape, dtype)

    assert (spec.size, spec.size_bytes) == (size, size_bytes)


def test_a_dtype_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="float33"):
        ObservationSpec("obs", (2,), "float33")


@pytest.mark.parametrize(
    ("n_categories", "first_category"), [((), ()), ((3,), (0,)), ((3, 3), (0,)), ((3, 3, 3), (0, 0, 0))]
)
def test_categories_have_a_count_and_a_start_for_each_element(
    n_categories: tuple[int, ...], first_category: tuple[int, ...]
) -> None:
    with pytest.raises(AssertionError):
        ObservationSpec("obs", (2,), "int64", "categories", n_categories, first_category)


def test_categories_that_fit_are_fine() -> None:
    spec = ObservationSpec("obs", (2,), "int64", "categories", (3, 4), (0, -1))

    assert spec.first_category == (0, -1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_continuous": 2, "low": (0.0,), "high": (1.0,)},
        {"n_continuous": 1, "low": (0.0,), "high": ()},
        {"low": (0.0,), "high": (1.0,)},
        {"branches": (3, 0)},
        {"branches": (-1,)},
    ],
)
def test_an_action_that_contradicts_itself_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        ActionSpec(**wrong)  # type: ignore[arg-type]  # that is the point


def test_an_env_has_at_least_one_behavior_and_each_name_once() -> None:
    with pytest.raises(AssertionError, match="at least one"):
        EnvSpec(())
    with pytest.raises(AssertionError, match="repeat"):
        EnvSpec((behavior("Walker"), behavior("Walker")))


def test_a_behavior_is_found_by_its_name_and_a_wrong_name_is_told_the_right_ones() -> None:
    spec = EnvSpec((behavior("Walker"), behavior("Crawler")))

    assert spec.names == ("Walker", "Crawler")
    assert spec.behavior("Crawler") is spec.behaviors[1]
    with pytest.raises(KeyError, match="Walker, Crawler"):
        spec.behavior("Runner")


def test_a_spec_is_a_value_that_crosses_processes() -> None:
    spec = EnvSpec((behavior("Walker"), behavior("Crawler")))

    copy = pickle.loads(pickle.dumps(spec))

    assert copy == spec
    assert hash(copy) == hash(spec)
    assert copy != EnvSpec((behavior("Walker"),))
