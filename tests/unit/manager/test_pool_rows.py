"""Batches are gathered from many blocks and actions spread over them, each number to its place, none shared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepherd.manager.env_worker import EnvWorker, Memory
from stepherd.manager.pool_rows import PoolRows
from stepherd.manager.restarts import RestartHistory, RestartPolicy
from stepherd.spec.batch import Actions
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec
from stepherd.transport.control import Control
from stepherd.transport.layout import Layout
from unit.spec.random_specs import env_specs, fill_randomly

SPEC = EnvSpec(
    (
        BehaviorSpec(
            "A", (ObservationSpec("obs", (2,), "float32"),), ActionSpec(2, (3, 4), (-1.0,) * 2, (1.0,) * 2), n_agents=1
        ),
    )
)


@contextlib.contextmanager
def a_pool(spec: EnvSpec, n_workers: int, envs_per_worker: int) -> Iterator[tuple[PoolRows, list[EnvWorker]]]:
    """Give pool rows and workers whose blocks are plain memory."""
    layout = Layout.of(spec)
    workers = []
    for number in range(n_workers):
        ids = range(number * envs_per_worker, (number + 1) * envs_per_worker)
        worker = EnvWorker(number, ids, RestartHistory(RestartPolicy()))
        buffer = memoryview(bytearray(layout.block_bytes(envs_per_worker)))
        worker.memory = Memory(Control(buffer, envs_per_worker), *layout.split(buffer, envs_per_worker))
        workers.append(worker)
    yield PoolRows(spec, n_workers * envs_per_worker, envs_per_worker), workers


def memory_of(worker: EnvWorker) -> Memory:
    """Return the mapped memory of a worker."""
    assert worker.memory is not None
    return worker.memory


@settings(deadline=None, max_examples=60)
@given(spec=env_specs(), n_workers=st.integers(1, 4), k=st.integers(1, 3), data=st.data())
def test_a_batch_has_the_rows_of_the_envs_it_names(spec: EnvSpec, n_workers: int, k: int, data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    with a_pool(spec, n_workers, k) as (rows, workers):
        for worker in workers:
            steps = rows.layout.steps(memory_of(worker).hot, memory_of(worker).cold)
            for behavior in steps.values():
                for array in (*behavior.obs, *behavior.final_obs, behavior.reward, behavior.deciding):
                    fill_randomly(array, random)
                for flags in (behavior.terminated, behavior.interrupted):
                    fill_randomly(flags, random)
        taken_ids = sorted(data.draw(st.sets(st.integers(0, n_workers * k - 1))))

        batch = rows.gather(workers, [(env_id, env_id % 2 == 0) for env_id in taken_ids])

        assert batch.env_ids.tolist() == taken_ids
        assert batch.lost.tolist() == [env_id % 2 == 0 for env_id in taken_ids]
        for row, env_id in enumerate(taken_ids):
            memory, here = memory_of(workers[env_id // k]), slice(env_id % k, env_id % k + 1)
            source = rows.layout.steps(memory.hot[here], memory.cold[here])
            any_ended = any(bool(steps.ended.any()) for steps in source.values())
            for name, expected in source.items():
                mine = batch[name]
                assert mine.reward[row].tobytes() == expected.reward[0].tobytes()
                assert [a[row].tobytes() for a in mine.obs] == [a[0].tobytes() for a in expected.obs]
                if any_ended:
                    assert [a[row].tobytes() for a in mine.final_obs] == [a[0].tobytes() for a in expected.final_obs]


@settings(deadline=None, max_examples=60)
@given(spec=env_specs(), n_workers=st.integers(1, 4), k=st.integers(1, 3), data=st.data())
def test_each_row_of_actions_goes_to_the_env_it_is_for(
    spec: EnvSpec, n_workers: int, k: int, data: st.DataObject
) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    ids = data.draw(st.permutations(range(n_workers * k)))[: data.draw(st.integers(1, n_workers * k))]
    with a_pool(spec, n_workers, k) as (rows, workers):
        actions = {
            behavior.name: Actions(
                random.random((len(ids), behavior.n_agents, behavior.action.n_continuous)),
                random.integers(0, 9, (len(ids), behavior.n_agents, len(behavior.action.branches)), np.int32),
            )
            for behavior in spec.behaviors
        }

        rows.write_actions(actions, ids)
        for env_id in ids:
            rows.hand_over(workers[env_id // k], env_id)

        for row, env_id in enumerate(ids):
            received = rows.layout.actions(memory_of(workers[env_id // k]).actions)
            for name, given_actions in actions.items():
                mine = received[name]
                np.testing.assert_array_equal(mine.discrete[env_id % k], given_actions.discrete[row])
                np.testing.assert_array_equal(
                    mine.continuous[env_id % k], given_actions.continuous[row].astype(mine.continuous.dtype)
                )


def test_a_batch_does_not_change_when_a_block_does() -> None:
    with a_pool(SPEC, 1, 2) as (rows, workers):
        memory = memory_of(workers[0])
        steps = rows.layout.steps(memory.hot, memory.cold)["A"]
        steps.obs[0][...] = 1.0

        batch = rows.gather(workers, [(0, False), (1, False)])
        steps.obs[0][...] = 2.0

        assert (batch["A"].obs[0] == 1.0).all()


def test_an_env_that_did_not_get_an_action_keeps_its_last_one_out_of_sight() -> None:
    with a_pool(SPEC, 1, 2) as (rows, workers):
        rows.write_actions({"A": Actions(np.ones((1, 1, 2)), np.ones((1, 1, 2), np.int32))}, [1])
        rows.hand_over(workers[0], 1)

        assert rows.layout.actions(memory_of(workers[0]).actions)["A"].discrete[0].tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("continuous", "discrete", "words"),
    [
        ((2, 1, 3), (2, 1, 2), r"A: continuous actions have shape \(2, 1, 3\), expected \(2, 1, 2\)"),
        ((2, 1, 2), (2, 1, 1), r"A: discrete actions have shape \(2, 1, 1\), expected \(2, 1, 2\)"),
        ((1, 1, 2), (1, 1, 2), "expected"),
        ((0,), (0,), "expected"),
    ],
)
def test_actions_of_the_wrong_shape_are_told_the_right_one(
    continuous: tuple[int, ...], discrete: tuple[int, ...], words: str
) -> None:
    with a_pool(SPEC, 1, 2) as (rows, _), pytest.raises(ValueError, match=words):
        rows.write_actions({"A": Actions(np.zeros(continuous), np.zeros(discrete, np.int32))}, [0, 1])


def test_actions_for_other_behaviors_are_told_which_there_are() -> None:
    with a_pool(SPEC, 1, 1) as (rows, _), pytest.raises(ValueError, match=r"\['B'\], but the envs have \['A'\]"):
        rows.write_actions({"B": Actions(np.zeros((1, 1, 2)), np.zeros((1, 1, 2), np.int32))}, [0])
