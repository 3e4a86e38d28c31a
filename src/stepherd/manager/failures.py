"""What can go wrong with a worker, and the report a person reads about it."""

from __future__ import annotations

import pickle

from stepherd.manager.env_worker import Cause, EnvWorker
from stepherd.process.exits import Exit
from stepherd.transport.bell import Message
from stepherd.transport.notes import Failure, read_note

# What bytes that are no note of ours raise when they are read.
UNREADABLE = (TypeError, ValueError, EOFError, LookupError, AttributeError, ImportError, pickle.UnpicklingError)


def died(exit_status: Exit | None) -> Cause:
    """Its process is gone, or has closed its bell while it lives on (`None`)."""
    if exit_status is None:
        return Cause(
            "died",
            "closed its connection to Stepherd, though its process goes on; an env that closes file descriptors "
            "it did not open does this",
        )
    if exit_status.clean:
        return Cause(
            "died",
            "ended by itself with code 0 in the middle of its work; an env that calls sys.exit or os._exit does this",
        )
    return Cause("died", str(exit_status))


def said(message: Message) -> Cause:
    """It says itself why it failed, if what it says can be read."""
    try:
        return raised(read_note(message.note, Failure))
    except UNREADABLE as error:
        return unreadable(message, error)


def unreadable(message: Message, error: Exception) -> Cause:
    """It sent what cannot be read."""
    return out_of_step(
        f"its {message.kind.name} note cannot be read ({error!r}). Does an env write to descriptors that are not its "
        "own, or does the worker import another version of Stepherd?"
    )


def raised(failure: Failure) -> Cause:
    """Its env raised, or broke its own spec."""
    return Cause(
        "raised", f"raised {failure.error}" if failure.traceback else failure.error, failure.traceback, shows_log=False
    )


def late(limit: str, limit_s: float, since_s: float) -> Cause:
    """It exceeded a deadline."""
    return Cause(
        "late",
        f"has not answered for {since_s:.1f} s, more than {limit} = {limit_s:g} s allows; it was stopped. If this env "
        f"may take so long, raise {limit}",
    )


def out_of_step(error: str) -> Cause:
    """It sent something that does not fit what it was asked."""
    return Cause("protocol", f"broke the protocol: {error}")


def report_of(worker: EnvWorker, cause: Cause, env_name: str) -> str:
    """Return the whole text: who, doing what, what happened, what it printed, where to look."""
    envs = f"env {worker.env_ids.start}"
    if len(worker.env_ids) > 1:
        envs = f"envs {worker.env_ids.start}-{worker.env_ids.stop - 1}"
    lines = [
        f"Worker {worker.worker_id} (pid {worker.pid}, {envs} of {env_name}), while {worker.doing()}: {cause.what}"
    ]
    if cause.details:
        lines.append(cause.details.rstrip())
    if cause.shows_log and worker.link is not None and (tail := worker.link.log_tail()):
        lines.append(tail)
    return "\n".join(lines)
