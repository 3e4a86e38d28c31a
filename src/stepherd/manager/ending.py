"""The end of a pool: climb the shutdown ladder with all workers together and note how each of them went."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from stepherd.core.deadline import Deadline
from stepherd.manager.env_worker import EnvWorker, WorkerState
from stepherd.manager.launch import Backend, Link
from stepherd.process.shutdown import end_all
from stepherd.transport.bell import BellBroken, Kind, Message
from stepherd.transport.notes import Closing, Failure, read_note


def end_workers(
    workers: Sequence[EnvWorker], corpses: Sequence[Link], backend: Backend, grace_s: float, kill_s: float
) -> None:
    """End all workers, and the killed processes nobody has reaped yet.

    Blocks for at most `2 * grace_s + kill_s`. Afterwards each worker is down and knows its exit and its problems.
    """
    alive = {worker.link: worker for worker in workers if worker.state is not WorkerState.DOWN and worker.link}

    def wait(deadline: Deadline) -> None:
        for link in backend.wait(deadline):
            _hear(link, alive.get(link))

    leaked: Sequence[Link] = ()
    try:
        leaked = end_all([*alive, *corpses], ask=_ask, wait=wait, grace_s=grace_s, kill_s=kill_s, clock=backend.clock)
    finally:
        for link, worker in alive.items():
            _note_end(worker, link)
        for worker in workers:
            worker.leaked = worker.link in leaked
            worker.exit = worker.link.look() if worker.link is not None else None
            worker.state = WorkerState.DOWN


def _ask(link: Link) -> None:
    with contextlib.suppress(BellBroken):  # then it is ending already, or the next rung will see to it
        link.ring(Kind.CLOSE)


def _hear(link: Link, worker: EnvWorker | None) -> None:
    message = link.hear()
    if message is None or message.kind is Kind.GONE:
        link.hang_up()
    elif worker is not None:
        _note_last_words(worker, message)


def _note_last_words(worker: EnvWorker, message: Message) -> None:
    if message.kind is Kind.CLOSED:
        worker.problems.extend(read_note(message.note, Closing).problems)
    elif message.kind is Kind.FAILED:
        failure = read_note(message.note, Failure)
        worker.error = f"while {worker.doing()}: {failure.error}\n{failure.traceback}".rstrip()


def _note_end(worker: EnvWorker, link: Link) -> None:
    status = link.look()
    if status is None:
        worker.problems.append(f"it could not be ended while {worker.doing()}")
    elif status.signal is not None:
        worker.problems.append(f"it did not end when asked, while {worker.doing()}: {status}")
    elif not status.clean and worker.error is None:
        worker.problems.append(f"it ended badly, while {worker.doing()}: {status}")
