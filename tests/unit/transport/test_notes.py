"""Notes are plain values that arrive as they were sent, and a note of another kind is noticed."""

from __future__ import annotations

import pickle

import pytest

from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec
from stepherd.transport.notes import Closing, Failure, Job, Ready, read_note, write_note

SPEC = EnvSpec((BehaviorSpec("A", (ObservationSpec("obs", (2,), "float32"),), ActionSpec(branches=(2,))),))
ONE_OF_EACH = [
    Job(b"a factory", b"its arguments", (0, 1), ("/somewhere",)),
    Job("gymnasium:CartPole-v1", b"", (3,), ()),
    Ready(SPEC),
    Failure("ValueError: no", "Traceback …"),
    Failure("it is so: \ud800 \x00 ✓", ""),
    Closing(("close() raised",)),
    Closing(),
]


@pytest.mark.parametrize("note", ONE_OF_EACH, ids=lambda note: type(note).__name__)
def test_a_note_arrives_as_it_was_sent(note: Job | Ready | Failure | Closing) -> None:
    assert read_note(write_note(note), type(note)) == note


def test_a_note_of_another_kind_names_both() -> None:
    with pytest.raises(TypeError, match="expected a Ready note, got Failure"):
        read_note(write_note(Failure("a", "b")), Ready)


def test_what_the_user_made_stays_bytes_until_the_worker_opens_it() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return exec, ("raise AssertionError('opened')",)

    job = Job(pickle.dumps(Bomb()), pickle.dumps(Bomb()), (0,), ())

    note = read_note(write_note(job), Job)

    assert note == job
    with pytest.raises(AssertionError, match="opened"):
        pickle.loads(note.env_kwargs)
