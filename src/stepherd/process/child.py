"""One child process: started in a group of its own and on a leash, looked at without reaping, then reaped.

A pid, and with it the group's id, stays ours until we reap it. So nothing is reaped before the group has been
signalled for the last time, and a signal can never reach a stranger who was given the number next.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from stepherd.process import leash
from stepherd.process.exits import Exit


class Child:
    """A running or ended child process. Owns its leash and, where the platform has one, its process descriptor."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        *,
        pass_fds: Sequence[int],
        output_fd: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start `command(leash fd)`; stdin is empty, stdout and stderr go to `output_fd`.

        `pass_fds` are inherited under the same numbers; they stay the caller's to close.
        """
        leash.check_platform()
        self._leash = leash.Leash()
        try:
            self._popen = subprocess.Popen(
                command(self._leash.child_end),
                stdin=subprocess.DEVNULL,
                stdout=output_fd,
                stderr=output_fd,
                pass_fds=(*pass_fds, self._leash.child_end),
                start_new_session=True,  # its own group, before any of its code runs; no terminal signals reach it
                env=environment,
            )
        except BaseException:
            self._leash.slip()
            raise
        self._exit: Exit | None = None
        self.exit_fd = leash.open_exit_fd(self._popen.pid)
        """Readable once the child has ended; -1 where the platform has no such thing."""

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""
        return self._popen.pid

    def look(self) -> Exit | None:
        """Return how the child ended, or `None` while it runs. Does not reap. Never blocks."""
        if self._exit is None:
            self._exit = leash.look_at_exit(self._popen)
        return self._exit

    def terminate(self) -> None:
        """Send SIGTERM to the group, which may refuse. Never blocks."""
        if self._owns_pid:
            leash.signal_group(self.pid, signal.SIGTERM)

    def wake(self) -> None:
        """Let the group run again if somebody has stopped it. Never blocks."""
        if self._owns_pid and hasattr(signal, "SIGCONT"):
            leash.signal_group(self.pid, signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        """Send a signal to the child alone, unless it has been reaped. Never blocks."""
        if self._owns_pid:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the group, twice over: by signal, and by slipping the leash for who joined it later. Never blocks."""
        if self._owns_pid:
            leash.kill_group(self.pid)
        self._leash.slip()

    def reap(self) -> bool:
        """Free the pid if the child has ended, after killing what is left of its group; return whether it has.

        Never blocks.
        """
        if self.look() is None:
            return False
        self.kill()  # whoever it left behind; its zombie still keeps the group's id ours
        self._popen.poll()
        self._close_exit_fd()
        return True

    def abandon(self) -> None:
        """Let go of a child that could not be ended: kill it once more and close what we hold of it."""
        self.kill()
        self._close_exit_fd()
        if self._popen.returncode is None:
            self._popen.returncode = -9  # or Popen would keep it on a module-wide list and poll it

    @property
    def _owns_pid(self) -> bool:
        return self._popen.returncode is None and not (self._exit is not None and self._exit.unknown)

    def _close_exit_fd(self) -> None:
        if self.exit_fd >= 0:
            os.close(self.exit_fd)
            self.exit_fd = -1
