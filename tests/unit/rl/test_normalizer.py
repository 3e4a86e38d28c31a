from __future__ import annotations

import numpy as np
import pytest

from stepherd.rl.normalizer import CLIP, Normalizer


def test_statistics_of_many_batches_are_those_of_all_rows_at_once() -> None:
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(1000, 3)) * [1.0, 50.0, 0.1] + [0.0, 1e5, -3.0]).astype(np.float32)
    normalizer = Normalizer(np.ones(3, dtype=np.bool_))

    for part in np.array_split(rows, [1, 9, 10, 500]):
        normalizer.update(part)

    assert normalizer.count == 1000
    assert normalizer.mean == pytest.approx(rows.mean(axis=0, dtype=np.float64))
    assert normalizer.variance == pytest.approx(rows.var(axis=0, dtype=np.float64), rel=1e-6)


def test_normalised_rows_have_mean_0_and_deviation_1_and_stay_within_the_clip() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(3.0, 7.0, size=(5000, 2)).astype(np.float32)
    rows[0] = 1e6
    normalizer = Normalizer(np.ones(2, dtype=np.bool_))
    normalizer.update(rows[1:])

    normalized = normalizer.normalize(rows)

    assert normalized[1:].mean() == pytest.approx(0.0, abs=0.01)
    assert normalized[1:].std() == pytest.approx(1.0, abs=0.01)
    assert normalized[0].tolist() == [CLIP, CLIP]


def test_columns_that_are_no_real_numbers_pass_unchanged() -> None:
    normalizer = Normalizer(np.array([True, False]))
    normalizer.update(np.array([[10.0, 1.0], [30.0, 0.0]], dtype=np.float32))

    normalized = normalizer.normalize(np.array([[20.0, 1.0], [30.0, 9.0]], dtype=np.float32))

    assert normalized[:, 1].tolist() == [1.0, 9.0]
    assert normalized[:, 0].tolist() == [0.0, 1.0]


def test_before_the_first_row_nothing_changes_and_a_constant_becomes_0() -> None:
    normalizer = Normalizer(np.ones(1, dtype=np.bool_))
    row = np.array([[4.0]], dtype=np.float32)

    before = normalizer.normalize(row)
    normalizer.update(np.zeros((0, 1), dtype=np.float32))
    normalizer.update(np.repeat(row, 10, axis=0))
    after = normalizer.normalize(row)

    assert before.tolist() == [[4.0]]
    assert after.tolist() == [[0.0]]
