"""`stepherd`: picks the command. What a command needs is imported when it runs, so `--help` is quick."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stepherd._version import __version__
from stepherd.cli.check import add_check_options
from stepherd.cli.options import StrictParser, add_learn_options
from stepherd.cli.soak import add_soak_options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 2 a mistake in what was asked for, others by command."""
    parser = StrictParser(prog="stepherd", description="Runs many simulators in parallel and trains agents on them.")
    parser.add_argument("--version", action="version", version=f"stepherd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=StrictParser)
    add_learn_options(commands.add_parser("learn", help="train the agents of an env"))
    add_soak_options(commands.add_parser("soak", help="open, step and close an env again and again, with faults"))
    add_check_options(commands.add_parser("check", help="find out whether an env is safe to run in parallel"))
    typed = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    if typed.command != "learn":
        code: int = typed.run(typed)
        return code

    from stepherd.cli.learn import learn  # only now: it imports the training stack

    return learn(typed)
