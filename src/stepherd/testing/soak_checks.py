"""What must be true of a cycle when it is over: judges the pool's events and its report by what was done to it.

Pure: looks at values, and says in words what is wrong with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stepherd.core.events import WorkerFailed
from stepherd.manager.report import CloseReport, WorkerReport
from stepherd.testing.leftovers import SHARED_MEMORY, Leftovers
from stepherd.testing.soak_env import raise_text
from stepherd.testing.soak_faults import Injection, Life
from stepherd.testing.soak_plan import KINDS, Fault
from stepherd.testing.soak_record import FaultOutcome

Complain = Callable[[str, str], None]
"""Takes a check and a sentence."""

CUT = 700  # characters of a report that a violation quotes
CLEAN_EXIT = "exited with code 0"
LEFT_BEHIND = "behind, which was killed"  # what a report says of processes that outlived their worker


def check_faults(
    injections: Sequence[Injection],
    lives: Sequence[Life],
    report: CloseReport,
    complain: Complain,
) -> list[FaultOutcome]:
    """Return what became of every fault; complain of those that were not named, and of failures without a fault."""
    outcomes = []
    for injection in injections:
        life = next((life for life in lives if life.pid == injection.pid), None)
        others = [i for i in injections if i is not injection and i.struck and i.pid == injection.pid]
        outcome = _outcome_of(injection, others, life, lives, report)
        noticed_s = None
        if outcome == "named" and life is not None and life.failed_at is not None:
            noticed_s = max(0.0, life.failed_at - injection.at)
        if outcome == "missed":
            complain("missing errors", _missed_text(injection, life, report))
        outcomes.append(FaultOutcome(injection.fault.kind, injection.fault.where, outcome, noticed_s))
    _check_failures(injections, lives, complain)
    _check_problems(injections, lives, report, complain)
    return outcomes


def _outcome_of(
    injection: Injection, others: Sequence[Injection], life: Life | None, lives: Sequence[Life], report: CloseReport
) -> str:
    if life is None or not injection.struck:
        return "too late"
    fault = injection.fault
    if not KINDS[fault.kind].spoils:
        return "overtaken" if life.failure is not None and others else "endured"
    if life.failure is not None:
        if _names(fault, life.failure):
            return "named"
        return "overtaken" if any(_names(other.fault, life.failure) for other in others) else "missed"
    worker = report.workers[life.worker_id]
    if life is not _last_life(life.worker_id, lives):
        return "missed"  # it was replaced without a word
    if _reports(fault, worker):
        return "at close"
    if any(_reports(other.fault, worker) for other in others):
        return "overtaken"
    if fault.kind == "freeze" and worker.exit == CLEAN_EXIT:
        return "endured"  # a close wakes whom it finds stopped
    # A signal to a process that has just ended by itself, or a stop of one that had nothing more to do.
    return "too late" if worker.exit == CLEAN_EXIT and KINDS[fault.kind].signal and fault.where == "close" else "missed"


def _names(fault: Fault, failure: WorkerFailed) -> bool:
    cause, words = _signs(fault)
    return failure.cause == cause and re.search(words, failure.text) is not None


def _reports(fault: Fault, worker: WorkerReport) -> bool:
    text = "\n".join([worker.exit, worker.error or "", *worker.problems])
    if fault.kind in ("freeze", "hang", "hang-close"):
        return bool(worker.problems) and worker.exit.startswith("killed by")
    return re.search(_signs(fault)[1], text) is not None


def _signs(fault: Fault) -> tuple[str, str]:
    """Return the cause, and a pattern of words, by which one knows that the pool has understood."""
    if KINDS[fault.kind].signal not in ("", "SIGSTOP"):
        return "died", rf"killed by {KINDS[fault.kind].signal}\b"
    if fault.kind == "raise":
        return "raised", rf"{re.escape(raise_text(fault.fault_id))}\b"
    if fault.kind == "exit":
        return "died", rf"with code {fault.amount}\b"
    return ("raised", "MemoryError") if fault.kind == "oom" else ("late", "has not answered")


def _missed_text(injection: Injection, life: Life | None, report: CloseReport) -> str:
    fault = injection.fault
    said = "nothing"
    if life is not None and life.failure is not None:
        said = f"{life.failure.cause}: {life.failure.text}"
    elif life is not None:
        worker = report.workers[life.worker_id]
        error = f"before that, {worker.error.splitlines()[0]}" if worker.error else ""
        said = "; ".join(filter(None, [f"its last process {worker.exit}", *worker.problems, error]))
    return f"worker {fault.worker_id} (pid {injection.pid}) was given the fault {fault}; the pool said: {_cut(said)}"


def _check_failures(injections: Sequence[Injection], lives: Sequence[Life], complain: Complain) -> None:
    for life in lives:
        if life.failure is None:
            continue
        if life.failure.worker_id != life.worker_id or life.failure.pid != life.pid:
            complain("missing errors", f"the failure of pid {life.pid} was told as one of pid {life.failure.pid}")
        struck = [i.fault for i in injections if i.pid == life.pid and i.struck]
        if not any(KINDS[fault.kind].spoils and _names(fault, life.failure) for fault in struck):
            done = ", ".join(map(str, struck)) or "nothing"
            complain("unexplained failures", f"{_cut(life.failure.text)} (what was done to it: {done})")


def _check_problems(
    injections: Sequence[Injection], lives: Sequence[Life], report: CloseReport, complain: Complain
) -> None:
    for worker in report.workers:
        pids = [life.pid for life in lives if life.worker_id == worker.worker_id]
        struck = [i for i in injections if i.struck and i.pid in pids]
        if worker.leaked:
            complain("orphans", f"worker {worker.worker_id}: process {worker.pid} could not be ended")
        for problem in worker.problems:
            text = f"worker {worker.worker_id} at the close: {_cut(problem)}"
            if LEFT_BEHIND in problem:
                if not any(i.fault.kind == "child" for i in struck):
                    complain("orphans", text)
            elif not any(KINDS[i.fault.kind].spoils and i.pid == pids[-1] for i in struck):
                complain("unexplained failures", text)


def check_counts(report: CloseReport, lives: Sequence[Life], sent: int, delivered: int, complain: Complain) -> None:
    """Complain of every step that the pool, the soak and the envs themselves have not counted alike."""
    if report.sent != sent:
        complain("lost steps", f"{sent} actions were sent, the report says {report.sent}")
    if report.delivered != delivered:
        complain("lost steps", f"{delivered} steps arrived, the report says {report.delivered}")
    for worker in report.workers:
        accounted = worker.delivered + sum(worker.discarded.values()) + worker.unbegun
        if accounted != worker.sent:
            complain("lost steps", f"worker {worker.worker_id}: {worker.sent} actions sent, {accounted} accounted for")
        own = [life for life in lives if life.worker_id == worker.worker_id]
        begun = sum(life.begun for life in own)
        # A worker that is ended from outside can be hit between its own count of a step and its env's.
        between = sum(life.failure is not None and life.failure.cause != "raised" for life in own)
        between += worker.exit.startswith("killed by")
        if not begun <= worker.executed <= begun + between:
            complain(
                "lost steps",
                f"worker {worker.worker_id}: its envs have begun {begun} steps, the report says {worker.executed}",
            )


def check_leftovers(leftovers: Leftovers, ended_by_force: bool, complain: Complain) -> list[str]:
    """Complain of what is left behind; return what is remarkable and nobody's fault.

    A file of an env that was ended by force is its own: nobody was left to remove it.
    """
    notes = []
    for process in leftovers.processes:
        complain("orphans", f"{process} is still there")
    for fd, target in leftovers.descriptors:
        complain("descriptors", f"descriptor {fd} is still open: {target}")
    for pid, port in leftovers.ports:
        complain("ports", f"process {pid} still listens on port {port}")
    for name in leftovers.threads:
        complain("threads", f"thread {name!r} still runs")
    for path in leftovers.files:
        check = "shared memory" if SHARED_MEMORY in path.parents else "temporary files"
        if ended_by_force:
            notes.append(f"{path} is left of an env that was ended by force")
        else:
            complain(check, f"{path} is still there")
    return notes


def _last_life(worker_id: int, lives: Sequence[Life]) -> Life | None:
    return next((life for life in reversed(lives) if life.worker_id == worker_id), None)


def _cut(text: str) -> str:
    return text if len(text) <= CUT else f"{text[:CUT]} …"
