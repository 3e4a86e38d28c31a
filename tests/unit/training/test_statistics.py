"""Episodes are counted right out of batches, and TensorBoard's own reader finds each step once, also after a resume."""

from __future__ import annotations

import json
import math
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator as PluginEventAccumulator,  # what the web page shows
)

from stepherd.training.run_folder import RunFolder
from stepherd.training.statistics import Statistics, Summary, boundary_passed, open_statistics

REWARD = "Environment/Cumulative Reward"


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def run_folder(path: Path) -> RunFolder:
    return RunFolder(path, path.name, is_resumed=False)


def record(
    statistics: Statistics,
    slots: list[int],
    reward: list[float],
    ended: list[int] | None = None,
    lost: list[int] | None = None,
) -> None:
    """Record one batch for CartPole; `ended` and `lost` name slots."""
    statistics.record(
        "CartPole",
        np.array(slots, np.int64),
        np.array(reward, np.float64),
        np.isin(slots, ended or []),
        np.isin(slots, lost or []),
    )


def read(folder: Path) -> Any:
    """Return what TensorBoard's reader finds in a behavior's folder."""
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0}).Reload()


def steps(folder: Path, tag: str) -> list[int]:
    return [event.step for event in read(folder).Scalars(tag)]


def test_returns_and_lengths_are_summed_up_slot_by_slot(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        record(statistics, [0, 1, 2], [1.0, 10.0, 100.0])
        record(statistics, [2, 0], [200.0, 2.0], ended=[0])
        record(statistics, [1, 2, 0], [20.0, 300.0, 5.0], ended=[2, 0])

        assert statistics.n_episodes("CartPole") == 3
        assert statistics.mean_of_last("CartPole") == pytest.approx((3 + 600 + 5) / 3)
        assert statistics.mean_length_of_last("CartPole") == pytest.approx((2 + 3 + 1) / 3)


def test_a_lost_slot_begins_anew_and_its_episode_is_not_counted(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        record(statistics, [0, 1], [50.0, 1.0])
        record(statistics, [0, 1], [0.0, 1.0], lost=[0])
        record(statistics, [0, 1], [3.0, 1.0], ended=[0, 1])

        assert statistics.n_episodes("CartPole") == 2
        assert statistics.mean_of_last("CartPole") == (3.0 + 3.0) / 2
        assert statistics.mean_length_of_last("CartPole") == (1 + 3) / 2


def test_a_slot_that_is_lost_and_says_that_it_ended_is_lost(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        record(statistics, [0], [50.0])
        record(statistics, [0], [0.0], ended=[0], lost=[0])

        assert statistics.n_episodes("CartPole") == 0


def test_an_empty_batch_changes_nothing(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        record(statistics, [], [])

        assert statistics.mean_of_last("CartPole") is None
        assert statistics.mean_length_of_last("CartPole") is None


def test_batches_are_counted_as_if_each_slot_were_on_its_own(tmp_path: Path) -> None:
    seed = 7
    generator = np.random.default_rng(seed)
    returns: list[float] = []
    running: dict[int, float] = {}
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        for _ in range(300):
            slots = generator.choice(10, generator.integers(0, 11), replace=False)
            rewards = generator.integers(-5, 6, slots.shape).astype(np.float64)
            ended, lost = generator.random((2, slots.size)) < 0.15
            statistics.record("CartPole", slots, rewards, ended, lost)
            for slot, reward, has_ended, is_lost in zip(slots.tolist(), rewards, ended, lost, strict=True):
                running[slot] = 0.0 if is_lost else running.get(slot, 0.0) + reward
                if has_ended and not is_lost:
                    returns.append(running.pop(slot))

        assert len(returns) > 100, f"seed {seed}"
        assert statistics.n_episodes("CartPole") == len(returns), f"seed {seed}"
        assert statistics.mean_of_last("CartPole") == pytest.approx(np.mean(returns[-100:])), f"seed {seed}"


def test_the_mean_is_over_the_last_hundred_episodes(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        for episode in range(250):
            record(statistics, [0], [float(episode)], ended=[0])

        assert statistics.mean_of_last("CartPole") == np.mean(np.arange(150, 250))
        assert statistics.n_episodes("CartPole") == 250


def test_a_summary_tells_of_the_interval_and_the_next_one_begins_empty(tmp_path: Path) -> None:
    clock = SetClock()
    with open_statistics(run_folder(tmp_path), ["CartPole"], clock=clock) as statistics:
        record(statistics, [0, 1], [10.0, 20.0], ended=[0, 1])
        clock.now += 12.5
        first = statistics.write("CartPole", 1000)
        clock.now += 1.0
        second = statistics.write("CartPole", 2000)

    assert first == Summary("CartPole", 1000, 12.5, mean_reward=15.0, std_reward=5.0, n_episodes=2)
    assert second == Summary("CartPole", 2000, 13.5, mean_reward=None, std_reward=0.0, n_episodes=0)


def test_tensorboard_finds_ml_agents_tags(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["My/Behavior"]) as statistics:
        statistics.write_hyperparameters("My/Behavior", {"batch_size": 64, "beta": 0.005})
        for slot, reward in enumerate((10.0, 20.0, math.nan)):
            statistics.record(
                "My/Behavior", np.array([slot]), np.array([reward]), np.array([reward == reward]), np.array([False])
            )
        statistics.add("My/Behavior", {"Losses/Policy Loss": 0.25, "Policy/Entropy": 1.0})
        statistics.add("My/Behavior", {"Losses/Policy Loss": 0.75})
        statistics.write("My/Behavior", 500, {"Policy/Learning Rate": 3e-4, "Policy/Entropy": 7.0})
        statistics.write("My/Behavior", 1000)

    events = read(tmp_path / "My%2FBehavior")
    scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert scalars == {
        REWARD: [(500, 15.0)],
        "Environment/Episode Length": [(500, 1.0)],
        "Losses/Policy Loss": [(500, 0.5)],
        "Policy/Entropy": [(500, 7.0)],
        "Policy/Learning Rate": [(500, pytest.approx(3e-4))],
    }
    histogram = events.Histograms(f"{REWARD}_hist")[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (10.0, 20.0, 2.0, 30.0)
    text = events.Tensors("Hyperparameters/text_summary")[0]
    assert text.tensor_proto.string_val[0].decode() == (
        "| setting | value |\n| --- | --- |\n| batch_size | 64 |\n| beta | 0.005 |"
    )
    assert events.SummaryMetadata("Hyperparameters/text_summary").plugin_data.plugin_name == "text"


def test_a_reward_that_is_no_number_shows_and_does_not_break_the_summary(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        record(statistics, [0, 1], [math.nan, 1.0], ended=[0, 1])
        summary = statistics.write("CartPole", 10)
        record(statistics, [0], [math.inf], ended=[0])
        statistics.write("CartPole", 20)

    assert summary.mean_reward is not None
    assert math.isnan(summary.mean_reward)
    assert steps(tmp_path / "CartPole", REWARD) == [10, 20]


def test_what_was_written_can_be_read_before_the_block_is_left(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        statistics.write("CartPole", 10, {"Policy/Entropy": 1.0})

        assert steps(tmp_path / "CartPole", "Policy/Entropy") == [10]


def test_after_a_resume_each_step_is_there_once_and_old_files_stay(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    with open_statistics(folder, ["CartPole"]) as statistics:
        for step in (100, 200, 300, 400):
            statistics.write("CartPole", step, {"Policy/Entropy": 1.0})

    with open_statistics(folder, ["CartPole"], {"CartPole": 200}) as statistics:
        statistics.write_hyperparameters("CartPole", {"beta": 1})
        for step in (300, 400, 500):
            statistics.write("CartPole", step, {"Policy/Entropy": 2.0})

    events = read(tmp_path / "CartPole").Scalars("Policy/Entropy")
    assert [(event.step, event.value) for event in events] == [(100, 1), (200, 1), (300, 2), (400, 2), (500, 2)]
    assert len(list((tmp_path / "CartPole").iterdir())) == 2
    displayed = PluginEventAccumulator(str(tmp_path / "CartPole"), size_guidance={"tensors": 0}).Reload()
    assert [event.step for event in displayed.Tensors("Policy/Entropy")] == [100, 200, 300, 400, 500]
    assert [event.step for event in displayed.Tensors("Hyperparameters/text_summary")] == [201]


def test_a_run_that_starts_again_at_step_0_makes_all_of_the_old_curve_void(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    for value in (1.0, 2.0):
        with open_statistics(folder, ["CartPole"]) as statistics:
            statistics.write("CartPole", 100, {"Policy/Entropy": value})

    events = read(tmp_path / "CartPole").Scalars("Policy/Entropy")
    assert [(event.step, event.value) for event in events] == [(100, 2.0)]


def test_a_file_is_read_after_earlier_ones_even_if_the_clock_was_set_back(tmp_path: Path) -> None:
    (tmp_path / "CartPole").mkdir()
    (tmp_path / "CartPole" / "events.out.tfevents.4000000000.host.1.0").touch()

    with open_statistics(run_folder(tmp_path), ["CartPole"]):
        names = sorted(path.name for path in (tmp_path / "CartPole").iterdir())

    assert names[1].startswith("events.out.tfevents.4000000001.")


def test_counting_goes_on_after_a_resume(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    with open_statistics(folder, ["CartPole"]) as statistics:
        for reward in range(150):
            record(statistics, [0], [float(reward)], ended=[0])
        statistics.add("CartPole", {"Losses/Value Loss": 1.0})
        record(statistics, [1], [1000.0])  # under way, so it is not there to go on with
        state = json.loads(json.dumps(statistics.state()))

    with open_statistics(folder, ["CartPole", "New"]) as statistics:
        statistics.restore(state)
        record(statistics, [1], [150.0], ended=[1])
        statistics.add("CartPole", {"Losses/Value Loss": 2.0})
        summary = statistics.write("CartPole", 10)

        assert statistics.n_episodes("CartPole") == 151
        assert statistics.mean_of_last("CartPole") == np.mean(np.arange(51, 151))
        assert statistics.mean_of_last("New") is None
        assert summary.mean_reward == np.mean(np.arange(151))
    assert read(tmp_path / "CartPole").Scalars("Losses/Value Loss")[0].value == 1.5


def test_a_step_that_does_not_go_up_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"], {"CartPole": 100}) as statistics:
        for step in (50, 100):
            with pytest.raises(AssertionError, match="after one at 100"):
                statistics.write("CartPole", step)


def test_a_full_disk_costs_a_gap_in_the_curves_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        statistics.write("CartPole", 100, {"Policy/Entropy": 1.0})
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))
        try:
            many = {f"Policy/{number}": 1.0 for number in range(100)}
            summary = statistics.write("CartPole", 200, {"Policy/Entropy": 2.0, **many})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        statistics.write("CartPole", 300, {"Policy/Entropy": 3.0})

    assert summary.step == 200
    assert "Cannot write TensorBoard events" in caplog.text
    assert steps(tmp_path / "CartPole", "Policy/Entropy") == [100, 300]


def test_a_folder_that_cannot_be_made_costs_the_curves_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "CartPole").touch()

    with open_statistics(run_folder(tmp_path), ["CartPole"]) as statistics:
        assert statistics.write("CartPole", 100).step == 100
    assert "Cannot write TensorBoard events" in caplog.text


def test_inference_is_marked_as_such(tmp_path: Path) -> None:
    with open_statistics(run_folder(tmp_path), ["CartPole"], is_training=False) as statistics:
        assert not statistics.write("CartPole", 100).is_training


@pytest.mark.parametrize(
    ("before", "after", "boundary"),
    [(0, 999, None), (0, 1000, 1000), (999, 1001, 1000), (1000, 1999, None), (900, 3500, 3000), (1000, 1000, None)],
)
def test_a_boundary_is_the_last_multiple_that_was_passed(before: int, after: int, boundary: int | None) -> None:
    assert boundary_passed(before, after, 1000) == boundary
