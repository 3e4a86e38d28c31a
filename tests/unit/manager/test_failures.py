"""The report of a failure answers who, doing what, what happened, what it printed, and where to look."""

from __future__ import annotations

import pytest

from stepherd.manager import failures
from stepherd.manager.env_worker import Cause, EnvWorker
from stepherd.manager.restarts import RestartHistory, RestartPolicy
from stepherd.process.exits import Exit
from stepherd.transport.notes import Failure
from unit.manager.fake_backend import FakeBackend


def a_worker(env_ids: range) -> EnvWorker:
    """Return a worker number 3 that is building its envs."""
    worker = EnvWorker(3, env_ids, RestartHistory(RestartPolicy()))
    worker.begin_life(FakeBackend().spawn(3, 0), 0.0)
    return worker


@pytest.mark.parametrize(
    ("cause", "kind", "words"),
    [
        (failures.died(Exit(3)), "died", "exited with code 3"),
        (failures.died(Exit(None, 9)), "died", "killed by SIGKILL (often the kernel's out-of-memory killer"),
        (failures.died(Exit(0)), "died", "ended by itself with code 0 in the middle of its work; an env that calls"),
        (failures.died(Exit(None)), "died", "ended, how is not known"),
        (failures.died(None), "died", "closed its connection to Stepherd, though its process goes on"),
        (failures.raised(Failure("ValueError: no", "Traceback: …")), "raised", "raised ValueError: no\nTraceback: …"),
        (failures.raised(Failure("the space cannot be carried", "")), "raised", ": the space cannot be carried"),
        (failures.late("step_s", 2.0, 2.345), "late", "has not answered for 2.3 s, more than step_s = 2 s allows"),
        (failures.out_of_step("READY while up"), "protocol", "broke the protocol: READY while up"),
    ],
)
def test_each_cause_is_said_in_a_sentence(cause: Cause, kind: str, words: str) -> None:
    text = failures.report_of(a_worker(range(3, 4)), cause, "CartPole")

    assert cause.kind == kind
    assert text.startswith("Worker 3 (pid 100, env 3 of CartPole), while building its envs: ")
    assert words in text


@pytest.mark.parametrize(("env_ids", "words"), [(range(7, 8), "env 7 of"), (range(4, 8), "envs 4-7 of")])
def test_the_envs_of_the_worker_are_named(env_ids: range, words: str) -> None:
    assert words in failures.report_of(a_worker(env_ids), failures.died(Exit(1)), "CartPole")


def test_what_it_printed_is_shown_unless_a_traceback_says_it_all() -> None:
    died = failures.report_of(a_worker(range(1)), failures.died(Exit(1)), "CartPole")
    raised = failures.report_of(a_worker(range(1)), failures.raised(Failure("ValueError", "Traceback")), "CartPole")

    assert died.endswith("It printed: I am process 100")
    assert "It printed" not in raised


def test_a_late_worker_is_told_which_limit_to_raise() -> None:
    assert "raise reset_s" in failures.late("reset_s", 1.0, 1.5).what
