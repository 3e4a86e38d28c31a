"""Batches are arrays that can be kept by copying, and say where an episode ended."""

from __future__ import annotations

import numpy as np

from stepherd.spec.batch import BehaviorSteps, StepBatch


def some_steps(n: int) -> BehaviorSteps:
    """Return steps of `n` envs with one agent place, in arrays of their own."""
    return BehaviorSteps(
        obs=(np.arange(n * 3, dtype=np.float32).reshape(n, 1, 3), np.zeros((n, 1), np.int64)),
        final_obs=(np.ones((n, 1, 3), np.float32), np.ones((n, 1), np.int64)),
        reward=np.arange(n, dtype=np.float64).reshape(n, 1),
        deciding=np.ones((n, 1), np.bool_),
        terminated=np.array([[i % 4 in (1, 3)] for i in range(n)]),
        interrupted=np.array([[i % 4 in (2, 3)] for i in range(n)]),
    )


def arrays_of(steps: BehaviorSteps) -> list[np.ndarray]:
    """Return every array of some steps."""
    return [*steps.obs, *steps.final_obs, steps.reward, steps.deciding, steps.terminated, steps.interrupted]


def test_an_episode_has_ended_when_it_terminated_or_was_interrupted() -> None:
    steps = some_steps(4)

    assert steps.ended.tolist() == [[False], [True], [True], [True]]


def test_a_copy_shares_nothing_with_what_it_was_made_from() -> None:
    batch = StepBatch(np.arange(4), np.zeros(4, np.bool_), {"Walker": some_steps(4)})
    originals = [batch.env_ids, batch.lost, *arrays_of(batch["Walker"])]
    before = [array.copy() for array in originals]

    copy = batch.copy()
    for array in originals:
        array[...] = 7

    copies = [copy.env_ids, copy.lost, *arrays_of(copy["Walker"])]
    for kept, expected, original in zip(copies, before, originals, strict=True):
        np.testing.assert_array_equal(kept, expected)
        assert kept.dtype == original.dtype
        assert not np.shares_memory(kept, original)


def test_a_batch_has_as_many_rows_as_envs() -> None:
    batch = StepBatch(np.arange(3), np.zeros(3, np.bool_), {"Walker": some_steps(3)})

    assert len(batch) == 3
    assert batch["Walker"] is batch.behaviors["Walker"]
