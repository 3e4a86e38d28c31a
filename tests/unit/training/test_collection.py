"""Answers in, one forward pass per behavior, actions out to the envs they are for; and the count ends where it must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from stepherd.spec.batch import Actions, BehaviorSteps, Ints
from stepherd.training.behavior_trainer import BehaviorTrainer
from stepherd.training.collection import Collector
from stepherd.training.config import NetworkSettings, PPOHyperparameters, TrainerSettings
from stepherd.training.progress import TimeSplit
from stepherd.training.run_folder import RunFolder
from stepherd.training.statistics import Statistics, open_statistics
from unit.training.fake_envs import FakeEnvs, as_protocol, behavior, one_torch_thread

__all__ = ["one_torch_thread"]  # a fixture
pytestmark = pytest.mark.usefixtures("one_torch_thread")

WITHIN_S = 1.0  # the fake answers at once


class Parts:
    """A collector and everything around it."""

    def __init__(
        self, envs: FakeEnvs, max_steps: dict[str, int], statistics: Statistics, *, learns: bool, buffer_size: int
    ) -> None:
        self.envs, self.statistics = envs, statistics
        self.trainers = {
            spec.name: BehaviorTrainer(
                spec,
                envs.n_envs,
                TrainerSettings(
                    hyperparameters=PPOHyperparameters(batch_size=4, buffer_size=buffer_size, num_epoch=1),
                    network_settings=NetworkSettings(hidden_units=4, num_layers=1),
                    max_steps=max_steps[spec.name],
                ),
                seed=1,
                device="cpu",
                learns=learns,
            )
            for spec in envs.spec.behaviors
        }
        self.split = TimeSplit()
        self.collector = Collector(as_protocol(envs), self.trainers, statistics, self.split, limited=learns)

    @property
    def steps(self) -> dict[str, int]:
        """The count of each behavior."""
        return {name: trainer.n_steps for name, trainer in self.trainers.items()}

    def finish(self) -> None:
        """Collect until every behavior is finished, and fail if that takes longer than it may."""
        self.collector.start()
        for _ in range(1000):
            if all(trainer.finished for trainer in self.trainers.values()):
                return
            self.collector.turn(WITHIN_S)
        raise AssertionError(f"not finished: {self.steps}")


class Workshop:
    """Makes parts that are closed at the end of the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack

    def parts(
        self,
        envs: FakeEnvs,
        max_steps: int | dict[str, int] = 1000,
        *,
        learns: bool = True,
        buffer_size: int = 10_000,
    ) -> Parts:
        """Return a collector for `envs`, not started yet."""
        names = envs.spec.names
        limits = max_steps if isinstance(max_steps, dict) else dict.fromkeys(names, max_steps)
        folder = RunFolder(self._folder, "it", is_resumed=False)
        statistics = self._stack.enter_context(open_statistics(folder, names))
        return Parts(envs, limits, statistics, learns=learns, buffer_size=buffer_size)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with ExitStack() as stack:
        yield Workshop(tmp_path, stack)


class SlotNamer:
    """Stands in for a learner's `act`: every action is the number of its slot; counts the calls."""

    def __init__(self, trainer: BehaviorTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slots: list[list[int]] = []
        self.learn: list[bool] = []
        self._act = trainer.learner.act
        monkeypatch.setattr(trainer.learner, "act", self)

    def __call__(self, slots: Ints, steps: BehaviorSteps, *, learn: bool) -> Actions:
        assert steps.obs[0][:, 0].tolist() == slots.tolist()  # the fake's envs show each place its slot
        self.slots.append(slots.tolist())
        self.learn.append(learn)
        drawn = self._act(slots, steps, learn=learn)
        return Actions(drawn.continuous, slots.astype(np.int32).reshape(-1, 1))


def test_there_is_one_forward_pass_per_behavior_for_all_envs_that_are_ready(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = workshop.parts(FakeEnvs(behavior("Wolf", 2), behavior("Sheep"), n_envs=3))
    passes = {name: SlotNamer(trainer, monkeypatch) for name, trainer in parts.trainers.items()}

    parts.collector.start()
    parts.collector.turn(WITHIN_S)

    assert passes["Wolf"].slots == [[0, 1, 2, 3, 4, 5]] * 2
    assert passes["Sheep"].slots == [[0, 1, 2]] * 2


def test_actions_go_to_the_envs_they_belong_to_also_when_only_some_are_ready(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = FakeEnvs(behavior("Wolf", 2), behavior("Sheep"), n_envs=4)
    parts = workshop.parts(envs)
    for trainer in parts.trainers.values():
        SlotNamer(trainer, monkeypatch)
    parts.collector.start()

    envs.away = {0, 2}
    parts.collector.turn(WITHIN_S)
    envs.away, envs.lost = set(), {0, 2}
    parts.collector.turn(WITHIN_S)

    assert [env_ids for env_ids, _ in envs.sent] == [[0, 1, 2, 3], [1, 3], [0, 1, 2, 3]]
    for env_ids, actions in envs.sent:
        assert actions["Sheep"].discrete[:, 0, 0].tolist() == env_ids
        assert actions["Wolf"].discrete[:, :, 0].tolist() == [[2 * env_id, 2 * env_id + 1] for env_id in env_ids]


def test_the_first_batch_after_a_reset_is_counted_nowhere(workshop: Workshop) -> None:
    envs = FakeEnvs(n_envs=2, episode_length=3)
    parts = workshop.parts(envs)

    parts.collector.start()  # its rewards are a million
    for _ in range(3):
        parts.collector.turn(WITHIN_S)

    assert parts.steps == {"Walker": 6}
    assert parts.statistics.n_episodes("Walker") == 2
    assert parts.statistics.mean_of_last("Walker") == 3.0
    assert parts.statistics.mean_length_of_last("Walker") == 3.0


def test_lost_rows_are_no_steps_and_drop_the_episode_they_were_in(workshop: Workshop) -> None:
    envs = FakeEnvs(n_envs=2, episode_length=3)
    parts = workshop.parts(envs)
    parts.collector.start()
    parts.collector.turn(WITHIN_S)

    envs.lost = {0}
    parts.collector.turn(WITHIN_S)
    assert parts.steps == {"Walker": 3}
    for _ in range(3):
        parts.collector.turn(WITHIN_S)

    assert parts.steps == {"Walker": 9}
    assert parts.statistics.n_episodes("Walker") == 2  # one of env 1, and one of env 0, begun after the loss
    assert parts.statistics.mean_of_last("Walker") == 3.0
    assert parts.trainers["Walker"].learner.n_steps == 9


def test_when_no_answer_comes_in_time_nothing_changes(workshop: Workshop) -> None:
    envs = FakeEnvs(n_envs=3)
    parts = workshop.parts(envs)
    parts.collector.start()
    parts.collector.turn(WITHIN_S)
    sent, steps = len(envs.sent), parts.steps

    envs.is_late = True
    assert not parts.collector.turn(WITHIN_S)
    assert (len(envs.sent), parts.steps, envs.in_flight) == (sent, steps, {0, 1, 2})

    envs.is_late = False
    assert parts.collector.turn(WITHIN_S)
    assert parts.steps == {"Walker": 6}


def test_a_drain_takes_in_everything_and_sends_nothing(workshop: Workshop) -> None:
    envs = FakeEnvs(n_envs=3)
    parts = workshop.parts(envs)
    parts.collector.start()
    parts.collector.turn(WITHIN_S)

    parts.collector.drain()
    parts.collector.drain()  # nothing is left, which is fine

    assert parts.steps == {"Walker": 6}
    assert envs.n_delivered == 6
    assert not envs.in_flight


def test_a_drain_takes_in_lost_rows_without_counting_them(workshop: Workshop) -> None:
    envs = FakeEnvs(n_envs=3)
    parts = workshop.parts(envs)
    parts.collector.start()
    envs.lost, envs.away = {1}, {2}

    parts.collector.drain()

    assert parts.steps == {"Walker": 1}


@pytest.mark.parametrize("max_steps", [1, 3, 4, 5, 18, 31])
def test_one_behavior_with_one_agent_ends_at_exactly_max_steps(max_steps: int, workshop: Workshop) -> None:
    envs = FakeEnvs(n_envs=4, episode_length=5)
    parts = workshop.parts(envs, max_steps)

    parts.finish()
    parts.collector.drain()

    assert parts.steps == {"Walker": max_steps}
    assert envs.n_delivered == max_steps


@pytest.mark.parametrize("max_steps", [3, 6, 17, 18])
@pytest.mark.parametrize("seed", range(10))
def test_envs_that_are_lost_or_come_late_do_not_change_where_it_ends(
    seed: int, max_steps: int, workshop: Workshop
) -> None:
    rng = np.random.default_rng(seed)

    def weather(envs: FakeEnvs) -> None:
        """Send some envs away, bring others back as lost ones, lose some, be late."""
        back = {env_id for env_id in envs.away if rng.random() < 0.5}
        envs.away -= back
        envs.lost |= back | {env_id for env_id in envs.in_flight - envs.away if rng.random() < 0.1}
        envs.away |= {env_id for env_id in envs.in_flight - envs.lost if rng.random() < 0.2}
        envs.is_late = bool(rng.random() < 0.1)

    envs = FakeEnvs(n_envs=4, episode_length=5, on_recv=weather)
    parts = workshop.parts(envs, max_steps, buffer_size=8)

    parts.finish()
    envs.lost |= envs.away
    parts.collector.drain()

    assert parts.steps == {"Walker": max_steps}
    assert envs.n_delivered == max_steps


@pytest.mark.parametrize("max_steps", [1, 10, 12, 13])
def test_several_agents_in_an_env_may_end_up_to_one_envs_worth_later(max_steps: int, workshop: Workshop) -> None:
    parts = workshop.parts(FakeEnvs(behavior("Wolf", 3), n_envs=2), max_steps)

    parts.finish()
    parts.collector.drain()

    assert max_steps <= parts.steps["Wolf"] < max_steps + 3


def test_a_finished_behavior_goes_on_acting_without_learning(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = FakeEnvs(behavior("Wolf"), behavior("Sheep"), n_envs=2)
    parts = workshop.parts(envs, {"Wolf": 4, "Sheep": 10}, buffer_size=4)
    wolf = SlotNamer(parts.trainers["Wolf"], monkeypatch)

    parts.finish()

    assert parts.steps == {"Wolf": 4, "Sheep": 10}
    assert wolf.slots == [[0, 1]] * 5
    assert wolf.learn == [True, True, False, False, False]
    assert parts.trainers["Wolf"].learner.n_steps == 4


def test_learning_comes_between_the_answers_and_the_next_actions(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = workshop.parts(FakeEnvs(n_envs=2), buffer_size=4)
    trainer = parts.trainers["Walker"]
    order: list[str] = []
    update, act = trainer.learner.update, trainer.learner.act

    def watched_update() -> dict[str, float]:
        order.append("update")
        return update()

    def watched_act(slots: Ints, steps: BehaviorSteps, *, learn: bool) -> Actions:
        order.append("act")
        return act(slots, steps, learn=learn)

    monkeypatch.setattr(trainer.learner, "update", watched_update)
    monkeypatch.setattr(trainer.learner, "act", watched_act)

    parts.collector.start()
    for _ in range(2):
        parts.collector.turn(WITHIN_S)

    assert order == ["act", "act", "update", "act"]
    assert parts.trainers["Walker"].n_steps == 4


def test_without_a_limit_all_envs_go_on_for_ever(workshop: Workshop) -> None:
    envs = FakeEnvs(n_envs=3)
    parts = workshop.parts(envs, max_steps=5, learns=False)
    parts.collector.start()

    for _ in range(10):
        parts.collector.turn(WITHIN_S)

    assert parts.steps == {"Walker": 30}
    assert envs.in_flight == {0, 1, 2}


def test_waits_are_divided_into_what_envs_took_and_what_was_on_the_way(tmp_path: Path) -> None:
    ticks = iter(float(n) for n in range(1000))  # every look at the clock is a second later
    envs = FakeEnvs(n_envs=2)  # the fake says 0.5 s of work per recv
    with open_statistics(RunFolder(tmp_path, "it", is_resumed=False), ["Walker"]) as statistics:
        parts = Parts(envs, {"Walker": 100}, statistics, learns=True, buffer_size=100)
        spent: dict[str, float] = {}

        class Split(TimeSplit):
            """Keeps the sums."""

            def add(self, part: str, seconds: float) -> None:
                spent[part] = spent.get(part, 0.0) + seconds

        collector = Collector(envs, parts.trainers, statistics, Split(), limited=True, clock=lambda: next(ticks))
        collector.start()
        spent.clear()
        collector.turn(WITHIN_S)
        collector.turn(WITHIN_S)

        collector.settle_waits()
        collector.settle_waits()

    assert spent == {"simulate": 1.0, "transport": 2.0 - 1.0 + 2.0, "infer": 2.0, "update": 2.0}
