"""Events are plain frozen values: they can be compared, kept and sent anywhere."""

from __future__ import annotations

import dataclasses
import pickle
import typing

import pytest

from stepherd.core import events

ONE_OF_EACH: list[events.Event] = [
    events.WorkerStarted(1, 20, 0),
    events.WorkerReady(1, 20, 0, 0.5),
    events.WorkerFailed(1, 20, 0, "died", "the whole report", None),
    events.WorkerRecycled(1, 20, 0, "after 3 episodes"),
    events.WorkerLeaked(1, 20),
]


def test_there_is_one_of_each_here() -> None:
    assert {type(event) for event in ONE_OF_EACH} == set(typing.get_args(events.Event))


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda event: type(event).__name__)
def test_an_event_is_a_value(event: events.Event) -> None:
    copy = pickle.loads(pickle.dumps(event))

    assert copy == event
    assert hash(copy) == hash(event)
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.worker_id = 2
