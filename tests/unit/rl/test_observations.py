from __future__ import annotations

import numpy as np
import pytest

from stepherd.core.errors import SpecError
from stepherd.rl.observations import ObservationEncoder
from stepherd.spec.specs import ActionSpec, BehaviorSpec, ObservationSpec


def encoder_of(*observations: ObservationSpec) -> ObservationEncoder:
    return ObservationEncoder(BehaviorSpec("Walker", observations, ActionSpec(branches=(2,))))


def test_every_kind_of_observation_lands_in_its_own_columns() -> None:
    encoder = encoder_of(
        ObservationSpec("grid", (2, 2), "float64"),
        ObservationSpec("gear", (), "int64", "category", (3,), (-1,)),
        ObservationSpec("dice", (2,), "int64", "categories", (2, 3), (0, 5)),
        ObservationSpec("lamps", (2,), "int8", "bits"),
    )

    vector = encoder.encode(
        (
            np.array([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]),
            np.array([-1, 1]),
            np.array([[0, 7], [1, 5]]),
            np.array([[0, 1], [1, 1]], dtype=np.int8),
        ),
        np.array([4, 9]),
    )

    assert encoder.width == 4 + 3 + 5 + 2
    assert vector.dtype == np.float32
    assert vector.tolist() == [
        [1, 2, 3, 4, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1],
        [5, 6, 7, 8, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1],
    ]
    assert encoder.is_box.tolist() == [True] * 4 + [False] * 10


def test_the_vector_outlives_the_array_it_came_from() -> None:
    encoder = encoder_of(ObservationSpec("obs", (2,), "float32"))
    block = np.array([[1.0, 2.0]], dtype=np.float32)
    block.setflags(write=False)

    vector = encoder.encode((block,), np.array([0]))

    assert not np.shares_memory(vector, block)
    assert vector.flags.writeable


def test_an_image_is_refused_by_name() -> None:
    with pytest.raises(SpecError, match=r"'camera' .*visual observations are not built yet"):
        encoder_of(ObservationSpec("camera", (84, 84, 3), "uint8"))


def test_a_behavior_that_observes_nothing_is_refused() -> None:
    with pytest.raises(SpecError, match="'Walker' observes nothing"):
        encoder_of()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_number_that_is_not_finite_as_float32_is_refused_with_observation_slot_and_element(bad: float) -> None:
    encoder = encoder_of(ObservationSpec("speed", (1,), "float64"), ObservationSpec("lidar", (3,), "float64"))
    lidar = np.zeros((2, 3))
    lidar[1, 2] = bad

    with pytest.raises(SpecError, match=r"observation 'lidar' of behavior 'Walker' .* in slot 7 \(element 2\)"):
        encoder.encode((np.zeros((2, 1)), lidar), np.array([3, 7]))


def test_a_category_outside_its_space_is_refused() -> None:
    encoder = encoder_of(ObservationSpec("gear", (), "int64", "category", (3,), (1,)))

    with pytest.raises(SpecError, match=r"'gear' .* is 4 in slot 2 .* has 1 to 3"):
        encoder.encode((np.array([1, 4]),), np.array([0, 2]))
