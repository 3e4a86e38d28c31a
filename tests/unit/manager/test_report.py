"""The close report adds up, and says in one line what a person wants to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stepherd.manager.report import CloseReport, WorkerReport


def worker(worker_id: int = 0, **changes: Any) -> WorkerReport:
    """Return the report of a worker that stepped ten times and ended well."""
    values: Mapping[str, Any] = {
        "worker_id": worker_id,
        "env_ids": (worker_id,),
        "pid": 100 + worker_id,
        "exit": "exited with code 0",
        "n_restarts": 0,
        "sent": 10,
        "delivered": 10,
        "discarded": {},
        "unbegun": 0,
        "error": None,
        "leaked": False,
        **changes,
    }
    return WorkerReport(**values)


def test_sums_are_over_all_workers() -> None:
    report = CloseReport((worker(0), worker(1, sent=9, delivered=4, discarded={"a": 2, "b": 1}, unbegun=2)), took_s=0.5)

    assert (report.sent, report.delivered, report.discarded, report.unbegun) == (19, 14, 3, 2)
    assert report.executed == 17
    assert [w.executed for w in report.workers] == [10, 7]
    assert report.sent == report.delivered + report.discarded + report.unbegun


def test_a_good_end_takes_one_line() -> None:
    report = CloseReport((worker(0), worker(1)), took_s=0.123)

    assert str(report) == ("Closed 2 workers in 0.12 s: 20 steps delivered, 0 discarded, 0 restarts, 0 processes left.")


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"discarded": {"the worker died": 3}}, "3 steps discarded: the worker died"),
        ({"n_restarts": 2}, "restarted 2 times"),
        ({"problems": ("close() raised ValueError: no",)}, "close() raised ValueError: no"),
        ({"leaked": True}, "process 101 could not be ended and still runs"),
        ({"error": "Worker 1 (pid 101) raised\n  a long traceback"}, "Worker 1 (pid 101) raised"),
    ],
)
def test_whoever_has_something_to_say_gets_a_line(changes: dict[str, Any], remark: str) -> None:
    report = CloseReport((worker(0), worker(1, **changes)), took_s=0.1)

    lines = str(report).splitlines()

    assert lines[1:] == [f"  worker 1: {remark}"]


def test_who_could_not_be_ended_is_listed() -> None:
    report = CloseReport((worker(0), worker(1, leaked=True)), took_s=0.1)

    assert [w.worker_id for w in report.leaked] == [1]
    assert "1 process left" in str(report)


def test_no_workers_is_an_account_too() -> None:
    report = CloseReport((), took_s=0.0)

    assert (report.sent, report.executed, report.leaked) == (0, 0, ())
