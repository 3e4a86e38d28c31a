"""`python -m stepherd.worker LEASH_FD BELL_FD`: started by an env manager, never by hand.

The leash comes first, before numpy and any user code, so that there is no moment in which the worker could be
orphaned.
"""

from __future__ import annotations

import sys

from stepherd.process import leash


def main(arguments: list[str]) -> int:
    """Live one worker's life and return its exit code."""
    if len(arguments) != 2 or not all(argument.isdigit() for argument in arguments):
        print("stepherd.worker is started by Stepherd itself, not by hand", file=sys.stderr)  # noqa: T201
        return 2
    leash.put_on(int(arguments[0]))

    from stepherd.worker.boot import live  # only now: it imports numpy

    return live(int(arguments[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
