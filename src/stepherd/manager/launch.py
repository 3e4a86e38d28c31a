"""The seam between a manager's bookkeeping and the world: start worker processes, wait for them.

`Backend` and `Link` are what the manager needs; `LocalBackend` provides them with real processes. A simulation
provides them with pretended ones, and its own clock.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from stepherd.core.deadline import Clock, Deadline
from stepherd.core.waiting import Waiter
from stepherd.process.child import Child
from stepherd.process.exits import Exit
from stepherd.process.shutdown import Endable
from stepherd.process.stragglers import MARK, kill_stragglers
from stepherd.transport.bell import Bell, Kind, Message
from stepherd.transport.block import Block
from stepherd.transport.notes import STACK_SIGNAL

# Numerical libraries start a thread per core in every process unless told otherwise; with one process per env that is
# cores × workers threads fighting over the cores. Whoever sets one of these in the parent keeps it.
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# Without more, Python would look for every module in the current folder first, where a file called `queue.py` or
# `random.py` would keep a worker from starting, though not its manager. Python 3.10 has no `-P` against that.
START = (
    "import sys; sys.path[:1] = filter(None, sys.path[:1]); "
    "from stepherd.worker.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
WORKER_COMMAND = [sys.executable, *(["-P", "-m", "stepherd.worker"] if sys.version_info >= (3, 11) else ["-c", START])]
LOG_BYTES_MAX = 64 * 2**20  # an env that prints in every step must not fill the disk
LOG_TAIL_BYTES = 8192
LOG_TAIL_LINES = 40  # a stack of usual depth and what was printed before it


class Link(Endable, Protocol):
    """All that ties a manager to one worker process. Nothing here blocks."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def ring(self, kind: Kind, note: bytes = b"") -> None:
        """Send a message; raises `BellBroken` when it cannot be delivered."""
        ...

    def hear(self) -> Message | None:
        """Take the next message, `None` when there is none."""
        ...

    def map_block(self, fd: int, size: int) -> memoryview:
        """Map the worker's block and return its memory, which stays valid until `drop`."""
        ...

    def hang_up(self) -> None:
        """Stop listening to the worker; its end still wakes the wait, unless it has ended. As often as you like."""
        ...

    def drop(self) -> None:
        """Unmap the block. Views of its memory must have been released."""
        ...

    def wake(self) -> None:
        """Let a stopped worker run again (SIGCONT), so that it can end politely."""
        ...

    def ask_for_stack(self) -> None:
        """Ask the worker to write its Python stack into its log, which works while native code holds it up."""
        ...

    def trim_log(self) -> None:
        """Cut the log when it has become too long; now and then is enough."""
        ...

    def log_tail(self) -> str:
        """Return the last lines the worker printed, and where the rest is."""
        ...


class Backend(Protocol):
    """Where worker processes come from."""

    @property
    def clock(self) -> Clock:
        """The clock that all deadlines and the workers' own notes are read on."""
        ...

    def spawn(self, worker_id: int, generation: int) -> Link:
        """Start a worker process. Raises `OSError` when the system refuses."""
        ...

    def wait(self, deadline: Deadline) -> Sequence[Link]:
        """Return the links on which something has happened; blocks until `deadline` at the latest."""
        ...

    def sweep(self, worker_id: int | None = None) -> list[tuple[int, str]]:
        """Kill what ended processes of a worker (`None`: of all) have left behind outside their group.

        Returns the worker's id and a description of each. Never blocks.
        """
        ...

    def close(self) -> None:
        """Free what the waiting needed, after all links are reaped or abandoned."""
        ...


class LocalLink:
    """A real worker process on this machine: owns its child, bell, block and log."""

    def __init__(self, waiter: Waiter[LocalLink], log: IO[bytes], log_path: Path | None, mark: str) -> None:
        self._waiter = waiter
        self._log, self._log_path = log, log_path
        self._block: Block | None = None
        self._offered_block_fd = -1
        """The descriptor of a block that came and was not mapped."""
        self._bell, theirs = Bell.pair()
        with theirs:
            try:
                self._child = Child(
                    lambda leash_fd: [*WORKER_COMMAND, str(leash_fd), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    output_fd=log.fileno(),
                    environment=dict.fromkeys(ONE_THREAD, "1") | os.environ | {MARK: mark},
                )
            except BaseException:
                self._bell.close()
                raise
        waiter.watch(self._bell.fd, self)
        self._watched_exit_fd = self._child.exit_fd
        if self._watched_exit_fd >= 0:
            waiter.watch(self._watched_exit_fd, self)

    @property
    def pid(self) -> int:
        """See `Link`."""
        return self._child.pid

    def ring(self, kind: Kind, note: bytes = b"") -> None:
        """See `Link`."""
        self._bell.ring(kind, note)

    def hear(self) -> Message | None:
        """See `Link`."""
        message = self._bell.hear() if self._bell.fd >= 0 else None
        if message is not None and message.block_fd >= 0:
            self._close_offered_block()
            self._offered_block_fd = message.block_fd
        return message

    def map_block(self, fd: int, size: int) -> memoryview:
        """See `Link`."""
        assert fd == self._offered_block_fd, "the block of another worker"
        self._offered_block_fd = -1
        self._block = Block(fd, size)
        self._block.close_fd()
        return self._block.buffer

    def hang_up(self) -> None:
        """See `Link`."""
        if self._bell.fd >= 0:
            self._waiter.forget(self._bell.fd)
            self._bell.close()
        if self._child.look() is not None:
            self._forget_exit()

    def drop(self) -> None:
        """See `Link`."""
        if self._block is not None:
            self._block.close()
            self._block = None

    def look(self) -> Exit | None:
        """See `Link`."""
        return self._child.look()

    def terminate(self) -> None:
        """See `Link`."""
        self._child.terminate()

    def kill(self) -> None:
        """See `Link`."""
        self._child.kill()

    def reap(self) -> bool:
        """See `Link`."""
        if self._child.look() is None:
            return False
        self._let_go()
        return self._child.reap()

    def abandon(self) -> None:
        """See `Link`."""
        self._let_go()
        self._child.abandon()

    def wake(self) -> None:
        """See `Link`."""
        self._child.wake()

    def ask_for_stack(self) -> None:
        """See `Link`."""
        if STACK_SIGNAL is not None:
            self._child.send_signal(STACK_SIGNAL)

    def trim_log(self) -> None:
        """See `Link`."""
        if not self._log.closed and os.fstat(self._log.fileno()).st_size > LOG_BYTES_MAX:
            self._log.truncate(0)  # the worker appends, so it goes on at the new end
            self._log.write(
                f"--- more than {LOG_BYTES_MAX >> 20} MiB of output before this were dropped ---\n".encode()
            )

    def log_tail(self) -> str:
        """See `Link`."""
        if self._log.closed:
            return ""
        size = self._log.seek(0, os.SEEK_END)  # moves the worker's position too, but it always appends
        self._log.seek(max(0, size - LOG_TAIL_BYTES))
        lines = self._log.read(LOG_TAIL_BYTES).decode(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        where = f"its log is {self._log_path}" if self._log_path else "give log_dir to keep all of its output"
        if not lines:
            return f"It printed nothing ({where})."
        return "\n".join([f"Its last lines ({where}):", *(f"    {line}" for line in lines)])

    def _let_go(self) -> None:
        self.hang_up()
        self._forget_exit()
        self._close_offered_block()
        self._log.close()

    def _close_offered_block(self) -> None:
        if self._offered_block_fd >= 0:
            os.close(self._offered_block_fd)
            self._offered_block_fd = -1

    def _forget_exit(self) -> None:
        if self._watched_exit_fd >= 0:
            self._waiter.forget(self._watched_exit_fd)
            self._watched_exit_fd = -1


class LocalBackend:
    """Worker processes on this machine."""

    def __init__(self, log_dir: Path | None) -> None:
        """Write each worker's output to `log_dir/worker-<id>.log`; without a folder, to a file without a name."""
        self._log_dir = log_dir
        self._mark = f"{os.getpid()}-{secrets.token_hex(4)}."
        self._groups: set[int] = set()
        """The process groups of all workers ever started; who is in one of them is not left behind."""
        self._waiter: Waiter[LocalLink] = Waiter()

    @property
    def clock(self) -> Clock:
        """The system-wide monotonic clock, which worker processes read too."""
        return time.monotonic

    def spawn(self, worker_id: int, generation: int) -> LocalLink:
        """See `Backend`."""
        path = self._log_dir / f"worker-{worker_id}.log" if self._log_dir else None
        log = _open_log(path)
        try:
            if generation:
                log.write(f"--- worker {worker_id} restarted, process {generation + 1} ---\n".encode())
            link = LocalLink(self._waiter, log, path, f"{self._mark}{worker_id}.{generation}")
        except BaseException:
            log.close()
            raise
        self._groups.add(link.pid)
        return link

    def wait(self, deadline: Deadline) -> list[LocalLink]:
        """See `Backend`."""
        return self._waiter.wait(deadline)

    def sweep(self, worker_id: int | None = None) -> list[tuple[int, str]]:
        """See `Backend`."""
        mark = self._mark if worker_id is None else f"{self._mark}{worker_id}."
        return [
            (int(one.mark.split(".")[1]), f"process {one.pid} ({one.command})")
            for one in kill_stragglers(mark, except_groups=self._groups)
        ]

    def close(self) -> None:
        """See `Backend`."""
        self._waiter.close()


def _open_log(path: Path | None) -> IO[bytes]:
    if path is None:
        # Opened by its name, for only so the system appends whatever it is written, and then the name is gone.
        with tempfile.NamedTemporaryFile(prefix="stepherd-log-") as named:
            return Path(named.name).open("a+b", buffering=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a+b", buffering=0)
