"""A worker process driven by hand, without a manager."""

from __future__ import annotations

import contextlib
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle

from faults.processes import PATIENCE_S, wait_until
from stepherd.core.deadline import Deadline
from stepherd.core.waiting import wait_readable
from stepherd.process.child import Child
from stepherd.process.exits import Exit
from stepherd.spec.specs import EnvSpec
from stepherd.transport.bell import Bell, Kind, Message
from stepherd.transport.block import Block
from stepherd.transport.control import Command, Control
from stepherd.transport.layout import Layout
from stepherd.transport.notes import Job, Ready, read_note, write_note


class RealWorker:
    """One worker process, its bell, and its output."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.bell, theirs = Bell.pair()
        with theirs, output.open("ab") as file:
            self.child = Child(
                lambda leash_fd: [sys.executable, "-m", "stepherd.worker", str(leash_fd), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                output_fd=file.fileno(),
            )

    def send_job(self, env: str | Callable[..., Any], n_envs: int = 1, **kwargs: Any) -> None:
        """Tell it what to build."""
        source = env if isinstance(env, str) else cloudpickle.dumps(env)
        job = Job(source, pickle.dumps(kwargs), tuple(range(n_envs)), tuple(sys.path))
        self.bell.ring(Kind.JOB, write_note(job))

    def hear(self) -> Message:
        """Wait for its next message."""
        deadline = Deadline.after(PATIENCE_S)
        while (message := self.bell.hear()) is None:
            assert not deadline.passed, f"no message within {PATIENCE_S} s; it printed {self.output.read_text()}"
            wait_readable(self.bell.fd, deadline)
        return message

    def wait_for_end(self) -> Exit:
        """Wait until it has ended, and return how."""
        wait_until(lambda: self.child.look() is not None, "the worker has ended")
        exit_status = self.child.look()
        assert exit_status is not None
        return exit_status


class OpenBlock:
    """The manager's view of the block of a worker that is ready."""

    def __init__(self, ready: Message, n_envs: int) -> None:
        assert ready.kind is Kind.READY, ready
        self.spec: EnvSpec = read_note(ready.note, Ready).spec
        layout = Layout.of(self.spec)
        self.block = Block(ready.block_fd, layout.block_bytes(n_envs))
        self.control = Control(self.block.buffer, n_envs)
        hot, cold, actions = layout.split(self.block.buffer, n_envs)
        self.steps, self.actions = layout.steps(hot, cold), layout.actions(actions)

    def ask(self, worker: RealWorker, index: int, command: Command, seed: int | None = None) -> None:
        """Ask one env for something, and ring."""
        self.control.ask(index, command, seed)
        worker.bell.ring(Kind.RING)


@contextlib.contextmanager
def a_worker(folder: Path) -> Iterator[RealWorker]:
    """Start a worker; kill and reap it at the end of the block."""
    worker = RealWorker(folder / "output")
    try:
        yield worker
    finally:
        worker.bell.close()
        worker.child.kill()
        wait_until(worker.child.reap, "the worker can be reaped")
