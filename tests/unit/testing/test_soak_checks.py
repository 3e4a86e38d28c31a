"""A cycle is judged by what was done to it: each fault must be named, and nothing else may have failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from stepherd.core.events import WorkerFailed
from stepherd.manager.report import CloseReport, WorkerReport
from stepherd.testing.footprint import Process
from stepherd.testing.leftovers import SHARED_MEMORY, Leftovers
from stepherd.testing.soak_checks import check_counts, check_faults, check_leftovers
from stepherd.testing.soak_env import raise_text
from stepherd.testing.soak_faults import Injection, Life
from stepherd.testing.soak_plan import Fault, Where

CLEAN = WorkerReport(0, (0,), 1001, "exited with code 0", 0, 5, 5, {}, 0, None, False)
KILLED = "killed by SIGKILL"


@dataclass
class Page:
    """As many steps as one likes."""

    begun: int = 0

    def close(self) -> None:
        """Nothing to close."""


@dataclass
class Case:
    """One worker's cycle."""

    worker: WorkerReport = CLEAN
    lives: list[Life] = field(default_factory=lambda: [life(1001)])
    injections: list[Injection] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)

    def outcomes(self) -> list[str]:
        """Judge the faults."""
        report = CloseReport((self.worker,), 0.1)
        judged = check_faults(self.injections, self.lives, report, lambda *said: self.complaints.append(said))
        return [fault.outcome for fault in judged]

    @property
    def checks(self) -> list[str]:
        """The checks that something was complained of, after `outcomes`."""
        return [check for check, _ in self.complaints]


def life(pid: int, *, cause: str = "", text: str = "", generation: int = 0) -> Life:
    """A process of worker 0, with the failure it ended with, if any."""
    failure = WorkerFailed(0, pid, generation, cause, text, 0.0) if cause else None
    return Life(0, pid, generation, 0.0, 0.1, 2.5 if failure else None, failure)


def struck(kind: str, pid: int = 1001, where: Where = "step", *, amount: int = 3, hit: bool = True) -> Injection:
    fault = Fault(7, kind, where, worker_id=0, env_index=0, at_round=0, after=0.0, amount=amount)
    return Injection(fault, pid, at=2.0, struck=hit)


FAILURES = [
    ("kill", "died", "Worker 0 …: killed by SIGKILL (often the kernel's out-of-memory killer)"),
    ("segv", "died", "killed by SIGSEGV (a crash in native code)"),
    ("abort", "died", "killed by SIGABRT"),
    ("freeze", "late", "has not answered for 2.0 s, more than step_s = 2 s allows"),
    ("hang", "late", "has not answered for 2.0 s"),
    ("raise", "raised", f"raised SoakFault: {raise_text(7)}"),
    ("exit", "died", "exited with code 3"),
    ("oom", "raised", "raised MemoryError"),
]


@pytest.mark.parametrize(("kind", "cause", "text"), FAILURES)
def test_a_fault_that_the_pool_told_of_rightly_was_named(kind: str, cause: str, text: str) -> None:
    case = Case(lives=[life(1001, cause=cause, text=text), life(1002, generation=1)], injections=[struck(kind)])

    assert case.outcomes() == ["named"]
    assert case.complaints == []


@pytest.mark.parametrize(("kind", "cause", "text"), FAILURES)
def test_a_fault_that_the_pool_told_of_wrongly_was_missed(kind: str, cause: str, text: str) -> None:
    wrong = ("raised", "raised ValueError: x") if cause == "died" else ("died", "exited with code 31")
    case = Case(lives=[life(1001, cause=wrong[0], text=wrong[1])], injections=[struck(kind)])

    assert case.outcomes() == ["missed"]
    assert case.checks == ["missing errors", "unexplained failures"]


def test_another_exit_code_that_begins_alike_is_another_one() -> None:
    case = Case(lives=[life(1001, cause="died", text="exited with code 31")], injections=[struck("exit")])

    assert case.outcomes() == ["missed"]


def test_a_fault_of_which_nobody_told_was_missed() -> None:
    case = Case(injections=[struck("kill")])

    assert case.outcomes() == ["missed"]
    assert case.checks == ["missing errors"]


def test_a_process_that_was_replaced_without_a_word_was_missed() -> None:
    case = Case(lives=[life(1001), life(1002, generation=1)], injections=[struck("kill")])

    assert case.outcomes() == ["missed"]


@pytest.mark.parametrize(
    ("kind", "where", "changes"),
    [
        ("kill", "close", {"exit": KILLED, "problems": ("it did not end when asked, while closing env 0",)}),
        ("hang-close", "close", {"exit": "killed by SIGTERM", "problems": ("it did not end when asked",)}),
        ("freeze", "close", {"exit": KILLED, "problems": ("its envs were closed, but …",)}),
        ("raise", "close", {"problems": (f"close() raised SoakFault: {raise_text(7)}",)}),
        ("exit", "close", {"exit": "exited with code 3", "problems": ("it ended badly",)}),
        ("raise", "step", {"error": f"while stepping: raised SoakFault: {raise_text(7)}"}),
    ],
)
def test_a_fault_that_the_report_tells_of_came_at_the_close(
    kind: str, where: Where, changes: dict[str, object]
) -> None:
    case = Case(replace(CLEAN, **changes), injections=[struck(kind, where=where)])  # type: ignore[arg-type]  # any field

    assert case.outcomes() == ["at close"]
    assert case.complaints == []


def test_a_signal_to_a_worker_that_has_just_ended_well_was_too_late() -> None:
    assert Case(injections=[struck("kill", where="close")]).outcomes() == ["too late"]
    assert Case(injections=[struck("raise", hit=False)]).outcomes() == ["too late"]
    assert Case(injections=[struck("kill", pid=0, hit=False)]).outcomes() == ["too late"]


def test_a_stopped_worker_that_the_close_has_woken_endured() -> None:
    assert Case(injections=[struck("freeze", where="idle")]).outcomes() == ["endured"]


def test_the_faster_of_two_faults_is_named_and_the_other_overtaken() -> None:
    case = Case(
        lives=[life(1001, cause="died", text=KILLED), life(1002, generation=1)],
        injections=[struck("hang"), struck("kill"), struck("slow")],
    )

    assert case.outcomes() == ["overtaken", "named", "overtaken"]
    assert case.complaints == []


def test_what_should_go_well_and_does_endured() -> None:
    case = Case(injections=[struck("slow"), struck("child"), struck("flood")])

    assert case.outcomes() == ["endured"] * 3
    assert case.complaints == []


@pytest.mark.parametrize("done", [[], [struck("slow")]])
def test_a_failure_without_a_fault_is_unexplained(done: list[Injection]) -> None:
    case = Case(lives=[life(1001, cause="late", text="has not answered"), life(1002, generation=1)], injections=done)

    case.outcomes()

    assert case.checks == ["unexplained failures"]


def test_a_problem_at_the_close_without_a_fault_is_unexplained() -> None:
    case = Case(replace(CLEAN, problems=("close() raised ValueError: x",)))

    case.outcomes()

    assert case.checks == ["unexplained failures"]


def test_what_outlived_a_worker_is_an_orphan_unless_it_was_told_to_leave_one() -> None:
    left = replace(CLEAN, problems=("it left process 5 (sleep 60) behind, which was killed",))
    alone, told = Case(left), Case(left, injections=[struck("child")])

    alone.outcomes()
    told.outcomes()

    assert alone.checks == ["orphans"]
    assert told.checks == []


def test_a_leaked_worker_is_an_orphan() -> None:
    case = Case(replace(CLEAN, leaked=True))

    case.outcomes()

    assert case.checks == ["orphans"]


def counted(
    worker: WorkerReport, begun: Iterable[int], sent: int = 5, delivered: int = 5, cause: str = ""
) -> list[str]:
    """Return what is said of a worker whose processes have begun so many steps."""
    said: list[str] = []
    lives = [life(1001 + n, cause=cause) for n, _ in enumerate(begun)]
    for one, steps in zip(lives, begun, strict=True):
        one.pages.append(Page(steps))  # type: ignore[arg-type]  # all that is asked of a page
    check_counts(CloseReport((worker,), 0.1), lives, sent, delivered, lambda _, text: said.append(text))
    return said


def test_counts_that_agree_are_fine() -> None:
    assert counted(CLEAN, [5]) == []
    assert counted(replace(CLEAN, sent=8, discarded={"died": 2}, unbegun=1), [3, 4], sent=8) == []


@pytest.mark.parametrize(
    ("worker", "begun", "said"),
    [
        (replace(CLEAN, sent=6, unbegun=1), [5], "5 actions were sent, the report says 6"),
        (replace(CLEAN, delivered=4, discarded={"x": 1}), [5], "5 steps arrived, the report says 4"),
        (replace(CLEAN, unbegun=1), [5], "worker 0: 5 actions sent, 6 accounted for"),
        (CLEAN, [4], "worker 0: its envs have begun 4 steps, the report says 5"),
        (CLEAN, [6], "worker 0: its envs have begun 6 steps, the report says 5"),
    ],
)
def test_counts_that_disagree_are_told(worker: WorkerReport, begun: list[int], said: str) -> None:
    assert counted(worker, begun) == [said]


def test_a_worker_that_was_killed_may_have_begun_one_step_less_than_it_said() -> None:
    assert counted(CLEAN, [2, 2], cause="died") == []
    assert counted(CLEAN, [2, 1], cause="died") == []
    assert counted(CLEAN, [1, 1], cause="died")
    assert counted(CLEAN, [2, 2], cause="raised"), "one that raised has ended its count in order"


def test_everything_left_behind_is_told_under_its_own_name() -> None:
    said: list[str] = []
    left = Leftovers(
        (Process(5, 1, 0.0, False, "sleep", b""),),
        ((7, "pipe"),),
        (SHARED_MEMORY / "x", Path("/elsewhere/y")),
        ((5, 8080),),
        ("thread",),
    )

    notes = check_leftovers(left, False, lambda check, _: said.append(check))

    assert sorted(said) == ["descriptors", "orphans", "ports", "shared memory", "temporary files", "threads"]
    assert notes == []


def test_a_file_of_an_env_that_was_ended_by_force_is_only_noted() -> None:
    said: list[str] = []

    notes = check_leftovers(Leftovers(files=(Path("/tmp/y"),)), True, lambda check, _: said.append(check))

    assert said == []
    assert notes == ["/tmp/y is left of an env that was ended by force"]
