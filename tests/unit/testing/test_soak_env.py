"""A soaked env counts, stamps every row, and fails when told to, once, and where it was told."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from stepherd.testing.counting_env import CountingEnv
from stepherd.testing.soak_env import (
    ACTION,
    CHECKSUM,
    EPISODE,
    ORDERS_MAX,
    PID,
    STAMP,
    STEP,
    Page,
    SoakFactory,
    SoakFault,
    action_checksum,
    page_path,
    row_checksum,
)
from stepherd.testing.soak_plan import Fault, Where
from unit.testing.soak_fixtures import NAME, SteppedHere, actions_of


@pytest.fixture
def soaked(tmp_path: Path) -> Iterator[SteppedHere]:
    env = SteppedHere(tmp_path / "page")
    yield env
    env.close()


def fault(kind: str, where: Where = "step", fault_id: int = 1) -> Fault:
    return Fault(fault_id, kind, where, worker_id=0, env_index=0, at_round=0, after=0.0)


def stamp_of(env: SteppedHere) -> list[int]:
    stamp: list[int] = env.steps[NAME].obs[-1][0].tolist()
    return stamp


def test_it_observes_what_the_env_does_and_a_stamp(soaked: SteppedHere) -> None:
    own, stamp = soaked.env.spec.behavior(NAME).observations

    soaked.reset()
    soaked.step(action=5)

    assert (own.name, stamp.name, stamp.dtype) == ("obs", STAMP, "int64")
    assert soaked.steps[NAME].obs[0][0].tolist() == [-1, 1, 1, 5]
    assert soaked.steps[NAME].reward[0] == 101


def test_a_stamp_says_which_step_of_which_process_it_is_and_of_which_action(soaked: SteppedHere) -> None:
    soaked.reset()
    assert stamp_of(soaked)[:3] == [os.getpid(), 0, 1]
    assert stamp_of(soaked)[ACTION] == 0

    soaked.step(action=5)

    stamp = stamp_of(soaked)
    assert (stamp[PID], stamp[STEP], stamp[EPISODE]) == (os.getpid(), 1, 1)
    assert stamp[ACTION] == action_checksum(actions_of(5)) != action_checksum(actions_of(6))


def test_the_last_observation_of_an_episode_has_a_stamp_of_its_own(soaked: SteppedHere) -> None:
    soaked.reset()
    for _ in range(3):
        soaked.step()

    steps = soaked.steps[NAME]
    final = steps.final_obs[-1][0].tolist()
    assert steps.terminated[0]
    assert (final[STEP], final[EPISODE]) == (3, 1)
    assert (stamp_of(soaked)[STEP], stamp_of(soaked)[EPISODE]) == (3, 2)
    assert final[CHECKSUM] == row_checksum(steps.final_obs[:-1], 0, None)


def test_the_checksum_notices_a_changed_observation_reward_or_end(soaked: SteppedHere) -> None:
    soaked.reset()
    soaked.step()
    steps = soaked.steps[NAME]
    right = stamp_of(soaked)[CHECKSUM]
    assert right == row_checksum(steps.obs[:-1], 0, steps)

    for array in (steps.obs[0], steps.reward, steps.terminated, steps.interrupted):
        before = array.copy()
        array[...] = 1 - array
        assert row_checksum(steps.obs[:-1], 0, steps) != right
        array[...] = before


def test_steps_are_counted_on_a_page_that_others_can_read(soaked: SteppedHere, tmp_path: Path) -> None:
    soaked.reset()
    soaked.step()
    soaked.step()

    page = Page(tmp_path / "page", makes_it=False)
    assert (page.begun, page.finished) == (2, 2)
    page.close()


@pytest.mark.parametrize("where", ["reset", "step", "close"])
def test_it_fails_where_it_was_told_to_and_only_once(soaked: SteppedHere, where: Where) -> None:
    calls = {"reset": soaked.reset, "step": soaked.step, "close": soaked.env.close}
    soaked.reset()
    soaked.page.order(fault("raise", where, fault_id=7), 0)

    for name, call in calls.items():
        if name == where:
            with pytest.raises(SoakFault, match="soak fault number 7, on purpose"):
                call()
        call()

    assert soaked.page.obeyed() == [7]


def test_a_step_that_fails_was_begun_and_not_finished(soaked: SteppedHere) -> None:
    soaked.reset()
    soaked.page.order(fault("raise"), 0)

    with pytest.raises(SoakFault):
        soaked.step()

    assert (soaked.page.begun, soaked.page.finished) == (1, 0)


def test_a_slow_step_takes_its_time_and_goes_well(soaked: SteppedHere) -> None:
    soaked.reset()
    soaked.page.order(fault("slow"), 20_000)

    soaked.step()

    assert soaked.page.finished == 1
    assert soaked.page.obeyed() == [1]


def test_a_page_has_room_for_many_orders_and_says_when_it_is_full(soaked: SteppedHere) -> None:
    orders = [soaked.page.order(fault("raise", fault_id=n + 1), 0) for n in range(ORDERS_MAX + 1)]

    assert orders == [True] * ORDERS_MAX + [False]
    assert len(soaked.page.orders(0)) == ORDERS_MAX
    assert soaked.page.orders(ORDERS_MAX - 1)[0].fault_id == ORDERS_MAX


def test_a_page_is_made_once(soaked: SteppedHere, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        Page(tmp_path / "page", makes_it=True)


def test_a_factory_crosses_to_a_worker_and_gives_each_env_a_page(tmp_path: Path) -> None:
    made = SoakFactory(cloudpickle.dumps(CountingEnv), pickle.dumps({"length": 2}), str(tmp_path), "the env's name")
    factory = pickle.loads(cloudpickle.dumps(made))

    envs = [factory(), factory()]

    assert factory.__qualname__ == "the env's name"
    assert [page_path(tmp_path, os.getpid(), index).exists() for index in range(3)] == [True, True, False]
    assert envs[0].spec == envs[1].spec
    np.testing.assert_equal(len(envs[0].spec.behavior(NAME).observations), 2)
