"""A seed tells the same story every time, and one that fails tells how to see it again."""

from __future__ import annotations

import pytest

from simulation.mutants import counts_a_delivered_step_twice
from simulation.seed import SeedFailed, run_seeds
from simulation.weather import Fate


def test_a_seed_tells_the_same_story_every_time() -> None:
    stories = [[world.story() for world in run_seeds(range(20))] for _ in range(2)]

    assert stories[0] == stories[1]


def test_a_failing_seed_tells_its_story_and_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counts_a_delivered_step_twice(monkeypatch)

    with pytest.raises(SeedFailed) as failure:
        run_seeds(range(20))

    lines = str(failure.value).splitlines()
    assert lines[0].startswith(f"seed {failure.value.seed}: the manager reports (")
    assert "WorkerStarted(worker_id=0, pid=100, generation=0)" in str(failure.value)
    assert lines[-1] == f"Again: python -m pytest tests/simulation --seed {failure.value.seed}"


@pytest.mark.slow
def test_the_seeds_see_everything_that_can_happen() -> None:
    stories = "\n".join(world.story() for world in run_seeds(range(200)))

    happenings = [fate.value for fate in Fate] + [
        "WorkerRecycled",
        "WorkerLeaked",
        "Ctrl-C",
        "OwnError",
        "raises WorkerFailed",
        "raises EnvNeverReady",
        "raises TooFewReady",
        "raises EnvBusy",
        "could not be started again",
        "its envs are EnvSpec",
        "finds 1.0/101 late",
        "sends SIGTERM",
    ]
    assert [what for what in happenings if what not in stories] == []
