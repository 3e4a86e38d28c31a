"""The books of a soak notice every row that is missing, doubled, swapped, torn, or the answer to something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from stepherd.spec.batch import StepBatch
from stepherd.testing.soak_books import Books
from stepherd.testing.soak_env import ACTION, PID, STEP
from unit.testing.soak_fixtures import NAME, SteppedHere, actions_for, batch_of


class Pool:
    """Two envs, each in a worker of its own as far as the books know, and the books."""

    def __init__(self, folder: Path) -> None:
        self.envs = [SteppedHere(folder / "0"), SteppedHere(folder / "1")]
        self.problems: list[str] = []
        self.books = Books(self.envs[0].env.spec, 2, 1, self.problems.append)

    def reset(self) -> StepBatch:
        """Reset both and book it."""
        for env in self.envs:
            env.reset()
        batch = batch_of(self.envs)
        self.books.take_reset(batch)
        return batch

    def step(self, *actions: int) -> StepBatch:
        """Send the actions, step both, and return what came; it is not booked yet."""
        self.books.send(actions_for(*actions), [0, 1])
        for env, action in zip(self.envs, actions, strict=True):
            env.step(action)
        return batch_of(self.envs)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    made = Pool(tmp_path)
    made.reset()
    yield made
    for env in made.envs:
        env.close()


def test_whole_episodes_that_come_in_order_are_fine(pool: Pool) -> None:
    for n in range(10):
        pool.books.take(pool.step(n, n + 1))
    pool.reset()
    pool.books.take(pool.step(1, 2))

    assert pool.problems == []
    assert pool.books.sent == pool.books.delivered == 22
    assert pool.books.in_flight == pool.books.awaited == []


def test_what_is_on_its_way_is_known(pool: Pool) -> None:
    pool.step(1, 2)

    assert pool.books.in_flight == [0, 1]


def test_a_step_that_never_came_is_noticed_by_the_next_one(pool: Pool) -> None:
    pool.step(1, 2)

    pool.books.take(pool.step(1, 2))

    assert pool.problems == [f"env {i} delivered step 2 after step 0" for i in (0, 1)]


def test_a_step_that_comes_twice_is_noticed(pool: Pool) -> None:
    batch = pool.step(1, 2)
    pool.books.take(batch)

    pool.books.take(batch)

    assert "env 0 answered, though nothing was on its way" in pool.problems
    assert "env 0 delivered step 1 after step 1" in pool.problems


def test_two_rows_that_were_swapped_are_noticed(pool: Pool) -> None:
    pool.step(1, 2)

    pool.books.take(batch_of(list(reversed(pool.envs))))

    assert any("executed another action" in problem for problem in pool.problems)


@pytest.mark.parametrize(
    "change",
    [
        lambda steps: steps.obs[0].__setitem__((1, 0, 2), 99.0),
        lambda steps: steps.reward.__setitem__((1, 0), -1.0),
        lambda steps: steps.interrupted.__setitem__((1, 0), True),
    ],
    ids=["observation", "reward", "end"],
)
def test_a_row_that_changed_on_the_way_is_noticed(pool: Pool, change: Callable[[object], None]) -> None:
    batch = pool.step(1, 2)
    change(batch[NAME])

    pool.books.take(batch)

    assert any("a row of env 1 was changed on the way" in problem for problem in pool.problems)
    assert not any("row of env 0" in problem for problem in pool.problems)


def test_a_last_observation_that_changed_on_the_way_is_noticed(pool: Pool) -> None:
    for _ in range(2):
        pool.books.take(pool.step(1, 2))
    batch = pool.step(1, 2)  # the third step of three
    assert batch[NAME].ended.all()
    batch[NAME].final_obs[0][0, 0, 0] += 1

    pool.books.take(batch)

    assert pool.problems == ["env 0, step 3: its last observation was changed on the way"]


def test_an_answer_to_another_action_is_noticed(pool: Pool) -> None:
    pool.books.send(actions_for(7, 2), [0, 1])
    for env in pool.envs:
        env.step(2)

    pool.books.take(batch_of(pool.envs))

    assert pool.problems == ["env 0 executed another action in step 1 than the one sent to it"]


def test_an_env_that_comes_back_lost_from_a_new_process_is_fine(pool: Pool) -> None:
    pool.step(1, 2)
    pool.books.lose(1)
    assert pool.books.awaited == [1]
    batch = batch_of(pool.envs, lost=[1])
    make_first_row(batch, 1, pid=4321)

    pool.books.take(batch)

    assert pool.books.awaited == pool.books.in_flight == []
    assert pool.books.delivered == 1
    assert [problem for problem in pool.problems if "changed on the way" not in problem] == []


def test_a_row_from_another_process_that_is_not_marked_lost_is_noticed(pool: Pool) -> None:
    batch = pool.step(1, 2)
    batch[NAME].obs[-1][1, 0, PID] = 4321

    pool.books.take(batch)

    assert any("answered from process 4321" in problem for problem in pool.problems)


def test_a_row_that_is_marked_lost_though_its_process_lives_is_noticed(pool: Pool) -> None:
    batch = batch_of(pool.envs, lost=[0])
    pool.step(1, 2)

    pool.books.take(batch)

    assert any("marked lost, but comes from the process it was in" in problem for problem in pool.problems)


def test_rows_out_of_order_are_noticed(pool: Pool) -> None:
    batch = pool.step(1, 2)

    pool.books.take(StepBatch(batch.env_ids[::-1], batch.lost, batch.behaviors))

    assert any("not each once, in ascending order" in problem for problem in pool.problems)


def test_a_reset_takes_in_what_was_in_flight(pool: Pool) -> None:
    pool.step(1, 2)  # executed, and never taken

    pool.reset()

    assert pool.problems == []
    assert pool.books.in_flight == []


def test_a_reset_that_comes_before_a_sent_step_was_executed_is_noticed(pool: Pool) -> None:
    pool.books.send(actions_for(1, 2), [0, 1])

    pool.reset()

    assert pool.problems == [f"after a reset, env {i} had executed 0 steps of the 1 sent to it" for i in (0, 1)]


def test_a_reset_without_all_envs_is_noticed(pool: Pool) -> None:
    pool.books.take_reset(batch_of(pool.envs[:1]))

    assert "a reset returned envs [0] instead of all 2 in order" in pool.problems[0].replace("np.int64(0)", "0")


def make_first_row(batch: StepBatch, row: int, pid: int) -> None:
    """Make a row look like the first of a new process; its checksum no longer fits."""
    steps = batch[NAME]
    stamp = steps.obs[-1][row, 0]
    stamp[[PID, STEP, ACTION]] = (pid, 0, 0)
    stamp[2] = 1
    steps.reward[row] = np.zeros(1)
    steps.terminated[row] = steps.interrupted[row] = False
