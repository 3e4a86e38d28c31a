"""`stepherd`: picks the command. What a command needs is imported when it runs, so `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stepherd._version import __version__
from stepherd.cli.options import StrictParser, add_learn_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 2 a mistake in what was asked for, others see `learn`."""
    parser = StrictParser(prog="stepherd", description="Runs many simulators in parallel and trains agents on them.")
    parser.add_argument("--version", action="version", version=f"stepherd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=StrictParser)
    add_learn_options(commands.add_parser("learn", help="train the agents of an env"))
    typed = parser.parse_args(sys.argv[1:] if arguments is None else arguments)

    from stepherd.cli.learn import learn  # only now: it imports the training stack

    return learn(typed)
