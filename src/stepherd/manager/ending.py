"""The end of a pool: climb the shutdown ladder with all workers together and note how each of them went."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from stepherd.core.deadline import Deadline
from stepherd.manager import failures
from stepherd.manager.env_worker import EnvWorker, WorkerState
from stepherd.manager.launch import Backend, Link
from stepherd.process.shutdown import end_all
from stepherd.transport.bell import BellBroken, Kind, Message
from stepherd.transport.notes import Closing, read_note


def end_workers(
    workers: Sequence[EnvWorker], corpses: Mapping[Link, EnvWorker], backend: Backend, grace_s: float, kill_s: float
) -> None:
    """End all workers, and the killed processes nobody has reaped yet.

    Blocks for at most `2 * grace_s + kill_s`. Afterwards each worker is down and knows its exit and its problems.
    """
    alive = {worker.link: worker for worker in workers if worker.state is not WorkerState.DOWN and worker.link}
    ended_before = {link for link in alive if link.look() is not None}
    last_words: dict[Link, Kind] = {}

    def wait(deadline: Deadline) -> None:
        for link in backend.wait(deadline):
            _hear(link, alive.get(link), last_words)

    leaked: Sequence[Link] = ()
    try:
        leaked = end_all([*alive, *corpses], ask=_ask, wait=wait, grace_s=grace_s, kill_s=kill_s, clock=backend.clock)
    finally:
        for link, worker in alive.items():
            _note_end(worker, link, last_words.get(link), ended_before=link in ended_before)
        for link, worker in [*corpses.items(), *alive.items()]:
            if link.look() is None or link in leaked:
                worker.leaked_pids.append(link.pid)
        for worker in workers:
            worker.exit = worker.link.look() if worker.link is not None else None
            worker.state = WorkerState.DOWN


def _ask(link: Link) -> None:
    with contextlib.suppress(BellBroken):  # then it is ending already, or the next rung will see to it
        link.ring(Kind.CLOSE)
    link.wake()


def _hear(link: Link, worker: EnvWorker | None, last_words: dict[Link, Kind]) -> None:
    has_ended = link.look() is not None  # asked first: then all it ever said can be heard now
    while (message := link.hear()) is not None and message.kind is not Kind.GONE:
        last_words[link] = message.kind
        if worker is not None and message.kind is Kind.CLOSED:
            worker.problems.extend(last_problems(message))
        elif worker is not None and message.kind is Kind.FAILED:
            cause = failures.said(message)
            worker.error = f"while {worker.doing()}: {cause.what}\n{cause.details}".rstrip()
    if has_ended or message is not None:
        link.hang_up()


def last_problems(message: Message) -> tuple[str, ...]:
    """Return what a worker says went wrong in its close; nothing for any other message."""
    if message.kind is not Kind.CLOSED:
        return ()
    try:
        return read_note(message.note, Closing).problems
    except failures.UNREADABLE as error:
        return (failures.unreadable(message, error).what,)


def _note_end(worker: EnvWorker, link: Link, last_words: Kind | None, *, ended_before: bool) -> None:
    status = link.look()
    doing = f"while {worker.doing()}"
    if status is None:
        worker.problems.append(f"it could not be ended {doing}")
    elif last_words is Kind.FAILED or (last_words is Kind.CLOSED and status.clean):
        return
    elif ended_before:
        worker.problems.append(f"it had ended before it was asked to, {doing}: {status}")
    elif last_words is Kind.CLOSED:
        worker.problems.append(f"its envs were closed, but its process did not end by itself: {status.plain}")
    elif status.signal is not None:
        worker.problems.append(f"it did not end when asked, {doing}: {status.plain}")
    else:
        worker.problems.append(f"it ended badly, {doing}: {status}")
