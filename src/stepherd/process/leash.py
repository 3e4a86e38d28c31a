"""The leash: a pipe whose closing makes the kernel kill a worker's whole process group, whoever died and however.

    parent ── write end ──────────────── read end ── worker ── read end, inherited ── simulator
              close-on-exec, only here      owner: the group; signal: SIGKILL

The parent holds the only write end. When it closes, on purpose or because the parent is gone, the kernel itself
signals the group; no code of the worker has to run, so a worker stuck in native code dies as well.
The kernel signals for as long as anybody has the read end open. So the parent keeps a copy of that too: a worker may
be gone already, and its simulator have closed what it inherited, as everything that Python's `subprocess` starts does.
This is one of three modules that ask which platform they are on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref

from stepherd.core.errors import UnsupportedPlatform
from stepherd.process.exits import Exit

_open_leashes: weakref.WeakSet[Leash] = weakref.WeakSet()
# Module state, because fork hooks can be added but never removed. A forked sibling of the parent must not keep the
# write ends open, or workers would outlive their parent for as long as that sibling lives.


class Leash:
    """The parent's end, and its copy of the child's."""

    def __init__(self) -> None:
        # Both close-on-exec (PEP 446). The read end has the lower number, and when a process ends, Linux (4.4 and
        # later) is done with the highest number first: so the write end closes while the read end is still open.
        self.child_end, self._write_end = os.pipe()
        _open_leashes.add(self)

    def slip(self) -> None:
        """Let go: the kernel kills the worker's group. Does nothing the second time. Never blocks."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
            os.close(self.child_end)  # only now, or there would be nobody left to signal
            self.child_end = -1


def _slip_in_forked_child() -> None:
    for leash in list(_open_leashes):
        leash.slip()  # closes this process's copies only; the parent's write end stays open


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_slip_in_forked_child)

    def signal_group(pid: int, number: int) -> None:
        """Send signal `number` to the group led by `pid`, which must not have been reaped yet. Gone is fine."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a group of zombies
            os.killpg(pid, number)

    def kill_group(pid: int) -> None:
        """Kill the group led by `pid`; nothing in it can refuse."""
        signal_group(pid, signal.SIGKILL)

    def put_on(read_end: int) -> None:
        """Tie this process and its group to the leash. A worker's first act.

        Expects to lead its own group already (it was started so). The read end stays inheritable, so a simulator
        that keeps its inherited descriptors is tied to the parent even when its worker died first.

        Raises:
            SystemExit: the parent is gone already.
        """
        assert os.getpgrp() == os.getpid(), "a worker must lead its own process group"
        _ask_for_death_with(read_end)
        os.set_inheritable(read_end, True)
        os.set_blocking(read_end, False)
        with contextlib.suppress(BlockingIOError):
            # The parent never writes, so the read either finds nothing (it lives) or the end (it died before we
            # asked for the signal).
            if os.read(read_end, 1) == b"":
                raise SystemExit("the parent process is gone")


if sys.platform == "linux":
    import fcntl

    def open_exit_fd(pid: int) -> int:
        """Return a descriptor that is readable once process `pid` has ended, or -1 where there is none."""
        try:
            return os.pidfd_open(pid)
        except OSError:
            return -1  # an old kernel, or a sandbox without the call: end-of-file and the tick notice a death too

    def look_at_exit(process: subprocess.Popen[bytes]) -> Exit | None:
        """Return how a child ended, `None` while it runs, without freeing its pid. Never blocks."""
        try:
            info = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return Exit(None)  # reaped behind our back: `waitpid(-1)` or an ignored SIGCHLD in the host program
        if info is None:
            return None
        if info.si_code == os.CLD_EXITED:
            return Exit(info.si_status)
        return Exit(None, info.si_status, core_dumped=info.si_code == os.CLD_DUMPED)

    def _ask_for_death_with(read_end: int) -> None:
        fcntl.fcntl(read_end, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(read_end, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(read_end, fcntl.F_SETFL, fcntl.fcntl(read_end, fcntl.F_GETFL) | os.O_ASYNC)

elif sys.platform != "win32":

    def _ask_for_death_with(read_end: int) -> None:
        # No F_SETSIG here. A thread can be held up by native code that keeps the GIL; the parent's ladder covers
        # that while the parent lives.
        watch_end = os.dup(read_end)
        threading.Thread(target=_kill_own_group_at_end_of, args=(watch_end,), name="leash", daemon=True).start()

    def _kill_own_group_at_end_of(watch_end: int) -> None:
        os.set_blocking(watch_end, True)
        while os.read(watch_end, 1) != b"":
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

else:

    def signal_group(pid: int, number: int) -> None:  # noqa: ARG001
        raise UnsupportedPlatform(WINDOWS_LATER)

    def kill_group(pid: int) -> None:  # noqa: ARG001
        raise UnsupportedPlatform(WINDOWS_LATER)

    def put_on(read_end: int) -> None:  # noqa: ARG001
        raise UnsupportedPlatform(WINDOWS_LATER)


if sys.platform != "linux":

    def open_exit_fd(pid: int) -> int:  # noqa: ARG001 - the same face on every platform
        return -1

    def look_at_exit(process: subprocess.Popen[bytes]) -> Exit | None:
        # Frees the pid: not every Python here can look without reaping. The group is signalled again right after,
        # so a stranger would have to be given this number as a group id within microseconds.
        code = process.poll()
        if code is None:
            return None
        return Exit(code) if code >= 0 else Exit(None, -code)


WINDOWS_LATER = "Stepherd does not run worker processes on Windows yet; use Linux, WSL 2 or macOS"


def check_platform() -> None:
    """Check that worker processes can be supervised here.

    Raises:
        UnsupportedPlatform: this platform's leash is not built yet.
    """
    if sys.platform == "win32":
        raise UnsupportedPlatform(WINDOWS_LATER)
