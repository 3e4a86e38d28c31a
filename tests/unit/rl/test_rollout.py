"""Advantages against a slow reference that keeps each slot's story as a list, and the life of a transition."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pytest

from stepherd.rl.rollout import Rollout, RolloutRows
from stepherd.spec.batch import Ints

GAMMA, LAMBD, HORIZON = 0.9, 0.8, 5


@dataclass
class Transition:
    value: float
    reward: float = 0.0
    next_value: float = 0.0
    cut: bool = False


@dataclass
class Story:
    """What happened in one slot, written down by hand."""

    finished: list[Transition] = field(default_factory=list)
    pending: Transition | None = None
    open_end: bool = False
    length: int = 0


def rollout_of(n_slots: int, n_steps: int = 2, time_horizon: int = HORIZON) -> Rollout:
    return Rollout(width=1, n_continuous=0, n_branches=1, n_slots=n_slots, n_steps=n_steps, time_horizon=time_horizon)


def f4(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array(numbers, dtype=np.float32)


def begin(rollout: Rollout, slots: list[int], values: list[float]) -> None:
    numbers = np.array(slots)
    rollout.make_room(numbers)
    column = f4(*values)[:, None]
    rollout.begin(
        numbers, column, np.zeros((len(slots), 0), np.float32), column.astype(np.int64), f4(*values), f4(*values)
    )


def finish(rollout: Rollout, slot: int, reward: float, *, ended: bool = False, next_value: float = 0.0) -> None:
    slots: Ints = np.array([slot])
    rollout.earn(slots, f4(reward))
    rollout.finish(slots, np.array([ended]), f4(next_value), np.zeros((1, 1), np.float32))


def slow_advantages(story: Story) -> list[float]:
    """Each transition's sum of discounted temporal differences up to the end of its segment."""
    advantages = []
    for first in range(len(story.finished)):
        total, weight = 0.0, 1.0
        for step in story.finished[first:]:
            total += weight * (step.reward + GAMMA * step.next_value - step.value)
            weight *= GAMMA * LAMBD
            if step.cut:
                break
        advantages.append(total)
    return advantages


def act(rng: random.Random, rollout: Rollout, stories: list[Story], slots: list[int]) -> None:
    values = [rng.uniform(-2, 2) for _ in slots]
    begin(rollout, slots, values)
    for slot, value in zip(slots, values, strict=True):
        story = stories[slot]
        story.pending = Transition(value)
        if story.open_end:
            story.finished[-1].next_value = value
            story.open_end = False


def answer(rng: random.Random, rollout: Rollout, story: Story, slot: int) -> None:
    assert story.pending is not None
    step, story.pending = story.pending, None
    kind = rng.choices(["goes on", "terminated", "truncated", "lost"], [70, 10, 10, 10])[0]
    if kind == "lost":
        rollout.abandon(np.array([slot]))
        if story.finished:
            story.finished[-1].cut = True
        story.length = 0
        return
    step.reward = rng.uniform(-1, 1)
    if kind == "truncated":
        step.next_value = rng.uniform(-2, 2)
    finish(rollout, slot, step.reward, ended=kind != "goes on", next_value=step.next_value)
    story.length += 1
    step.cut = kind != "goes on" or story.length == HORIZON
    story.length = 0 if step.cut else story.length
    story.open_end = kind == "goes on"
    story.finished.append(step)


def end_open_segments(rng: random.Random, rollout: Rollout, stories: list[Story]) -> None:
    for slot, story in enumerate(stories):
        if story.open_end:
            story.finished[-1].next_value = rng.uniform(-2, 2)
            rollout.bootstrap(np.array([slot]), f4(story.finished[-1].next_value))


def rows_by_slot(rollout: Rollout, rows: RolloutRows) -> list[list[int]]:
    """For each slot the indices of its rows, which are ordered by step, then slot."""
    n_steps = int(rollout.clock.max())
    order = [(step, slot) for step in range(n_steps) for slot in range(rollout.n_slots) if step < rollout.clock[slot]]
    assert len(order) == len(rows.value) == rollout.size
    return [[i for i, (_, s) in enumerate(order) if s == slot] for slot in range(rollout.n_slots)]


@pytest.mark.parametrize("seed", range(20))
def test_advantages_are_those_of_the_slow_reference_whatever_happens_to_the_slots(seed: int) -> None:
    rng = random.Random(seed)
    n_slots = rng.randint(1, 5)
    rollout, stories = rollout_of(n_slots), [Story() for _ in range(n_slots)]
    for _ in range(3):  # rollouts, between which actions stay in flight
        for _ in range(25):
            # Only some slots answer, so that every slot has its own clock.
            for slot, story in enumerate(stories):
                if story.pending is not None and rng.random() < 0.6:
                    answer(rng, rollout, story, slot)
            idle = [slot for slot, story in enumerate(stories) if story.pending is None and rng.random() < 0.8]
            if idle:
                act(rng, rollout, stories, idle)
        end_open_segments(rng, rollout, stories)

        rows = rollout.rows(GAMMA, LAMBD)

        for story, indices in zip(stories, rows_by_slot(rollout, rows), strict=True):
            assert rows.value[indices] == pytest.approx([step.value for step in story.finished])
            assert rows.advantage[indices] == pytest.approx(slow_advantages(story), abs=1e-5)
            story.finished, story.open_end, story.length = [], False, 0
        rollout.clear()


def test_strength_counts_when_rewards_are_learned_from_and_not_when_they_are_stored() -> None:
    rng = random.Random(3)
    rollout, story = rollout_of(1), Story()
    for _ in range(10):
        act(rng, rollout, [story], [0])
        answer(rng, rollout, story, 0)
    end_open_segments(rng, rollout, [story])

    plain, nothing = rollout.rows(GAMMA, LAMBD), rollout.rows(GAMMA, LAMBD, strength=0.0)
    half = rollout.rows(GAMMA, LAMBD, strength=0.5)

    assert half.advantage == pytest.approx((plain.advantage + nothing.advantage) / 2, abs=1e-5)


def test_the_target_is_the_advantage_on_top_of_the_value() -> None:
    rollout = rollout_of(1)
    begin(rollout, [0], [3.0])
    finish(rollout, 0, 5.0, ended=True)

    rows = rollout.rows(GAMMA, LAMBD)

    assert rows.advantage.tolist() == [2.0]
    assert rows.target.tolist() == [5.0]


def test_rewards_that_come_in_parts_add_up() -> None:
    rollout = rollout_of(1)
    begin(rollout, [0], [0.0])
    rollout.earn(np.array([0]), f4(1.0))
    rollout.earn(np.array([0]), f4(2.0))
    finish(rollout, 0, 4.0, ended=True)

    assert rollout.rows(GAMMA, LAMBD).advantage.tolist() == [7.0]


def test_the_time_horizon_counts_from_the_last_cut_of_each_slot() -> None:
    rollout = rollout_of(1, time_horizon=3)
    for step in range(8):
        begin(rollout, [0], [0.0])
        finish(rollout, 0, 1.0, ended=step == 1)

    assert rollout.cut[:8, 0].tolist() == [False, True, False, False, True, False, False, True]


def test_an_action_in_flight_survives_the_clearing_as_the_first_of_the_next_rollout() -> None:
    rollout = rollout_of(2)
    begin(rollout, [0, 1], [1.0, 2.0])
    finish(rollout, 1, 0.5)
    begin(rollout, [1], [3.0])

    rollout.clear()
    finish(rollout, 1, 10.0, ended=True)

    rows = rollout.rows(GAMMA, LAMBD)
    assert rollout.pending.tolist() == [True, False]
    assert rows.value.tolist() == [3.0]
    assert rows.obs.tolist() == [[3.0]]
    assert rows.advantage.tolist() == [7.0]


def test_steps_and_slots_grow_without_disturbing_what_is_there() -> None:
    rollout = rollout_of(1, n_steps=1)
    for step in range(5):
        begin(rollout, [0], [float(step)])
        finish(rollout, 0, 0.0)
    begin(rollout, [0, 6], [5.0, 60.0])
    finish(rollout, 6, 1.0, ended=True)

    assert rollout.n_slots == 7
    assert rollout.size == 6
    assert sorted(rollout.rows(GAMMA, LAMBD).value.tolist()) == [0.0, 1.0, 2.0, 3.0, 4.0, 60.0]


def test_acting_twice_without_an_answer_is_a_programmer_s_error() -> None:
    rollout = rollout_of(1)
    begin(rollout, [0], [1.0])

    with pytest.raises(AssertionError, match="call record first"):
        begin(rollout, [0], [1.0])
