"""The options of `stepherd learn`: ML-Agents' names and ours, and what of them was really typed.

Values stay text here; the configuration reads and checks them as it does the file's, so one list has all mistakes.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepherd.training.config import Override


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the command line and the place it sets."""

    name: str
    path: tuple[str, ...]
    help: str = argparse.SUPPRESS
    metavar: str | None = None
    """What stands for the value; None for an option without one."""
    nargs: str | None = None

    @property
    def dest(self) -> str:
        """The attribute that argparse gives it."""
        return self.name.lstrip("-").replace("-", "_")


_ENV, _ENGINE, _RUN, _TORCH = "env_settings", "engine_settings", "checkpoint_settings", "torch_settings"

GROUPS: dict[str, tuple[Option, ...]] = {
    "the env": (
        Option("--env", (_ENV, "env_path"), "what to train on, e.g. gymnasium:CartPole-v1", "ENV"),
        Option("--num-envs", (_ENV, "num_envs"), "worker processes (default: 1)", "N"),
        Option("--envs-per-worker", (_ENV, "envs_per_worker"), "envs in each worker process (default: 1)", "N"),
        Option("--seed", (_ENV, "seed"), "root of all randomness; -1 draws one (default: -1)", "SEED"),
    ),
    "the run": (
        Option("--run-id", (_RUN, "run_id"), "name of the run and of its folder (default: ppo)", "RUN_ID"),
        Option("--results-dir", (_RUN, "results_dir"), "folder of all runs (default: results)", "DIR"),
        Option("--resume", (_RUN, "resume"), "go on with the run of this id"),
        Option("--force", (_RUN, "force"), "start again although the run's folder exists"),
        Option(
            "--initialize-from",
            (_RUN, "initialize_from"),
            "start a new run from the weights of another (default: none)",
            "RUN_ID",
        ),
        Option("--inference", (_RUN, "inference"), "act without learning; add --resume to load the run's weights"),
        Option(
            "--deterministic",
            ("behaviors", "*", "network_settings", "deterministic"),
            "take the most likely action instead of drawing one, for every behavior",
        ),
        Option(
            "--torch-device",
            (_TORCH, "device"),
            "cpu, cuda, cuda:1 (default: cuda if there is one, else cpu)",
            "DEVICE",
        ),
        Option("--debug", ("debug",), "log in detail"),
    ),
    "time limits, in seconds": (
        Option("--timeout-wait", (_ENV, "timeout_wait"), "for each of the next three not given (default: 60)", "S"),
        Option("--spawn-s", (_ENV, "spawn_s"), "start a worker and build its envs (default: --timeout-wait)", "S"),
        Option("--reset-s", (_ENV, "reset_s"), "one reset of one env (default: --timeout-wait)", "S"),
        Option("--step-s", (_ENV, "step_s"), "one step of one env (default: --timeout-wait)", "S"),
        Option("--grace-s", (_ENV, "grace_s"), "each polite request to end, of which there are two (default: 5)", "S"),
        Option("--kill-s", (_ENV, "kill_s"), "the operating system's time to end the killed (default: 5)", "S"),
    ),
    "restarts of failed workers": (
        Option(
            "--max-lifetime-restarts",
            (_ENV, "max_lifetime_restarts"),
            "of one worker over the whole run; -1: no limit (default: 10)",
            "N",
        ),
        Option(
            "--restarts-rate-limit-n",
            (_ENV, "restarts_rate_limit_n"),
            "of one worker within a period; -1: no limit (default: 1)",
            "N",
        ),
        Option(
            "--restarts-rate-limit-period-s",
            (_ENV, "restarts_rate_limit_period_s"),
            "length of that period in seconds (default: 60)",
            "S",
        ),
    ),
}
"""Options that are shown, by the heading they are shown under."""

UNBUILT = (
    Option("--env-args", (_ENV, "env_args"), metavar="ARG", nargs=argparse.REMAINDER),
    Option("--base-port", (_ENV, "base_port"), metavar="PORT"),
    Option("--num-areas", (_ENV, "num_areas"), metavar="N"),
    Option("--width", (_ENGINE, "width"), metavar="N"),
    Option("--height", (_ENGINE, "height"), metavar="N"),
    Option("--quality-level", (_ENGINE, "quality_level"), metavar="N"),
    Option("--time-scale", (_ENGINE, "time_scale"), metavar="X"),
    Option("--target-frame-rate", (_ENGINE, "target_frame_rate"), metavar="N"),
    Option("--capture-frame-rate", (_ENGINE, "capture_frame_rate"), metavar="N"),
    Option("--no-graphics", (_ENGINE, "no_graphics")),
    Option("--no-graphics-monitor", (_ENGINE, "no_graphics_monitor")),
)
"""Options of ML-Agents that the configuration refuses until what they ask for is built."""

HIDDEN = (
    Option("--load", (_RUN, "load_model")),
    Option("--train", (_RUN, "train_model")),
)
"""Options that ML-Agents has given up and still takes."""

_DESCRIPTION = (
    "Train the agents of an env. CONFIG is a trainer configuration as ML-Agents has it; an option given here beats"
    " what the file says, and what neither says has its default."
)
_EXAMPLES = """\
examples:
  stepherd learn examples/cartpole.yaml --num-envs 8
  stepherd learn --env gymnasium:Acrobot-v1 --run-id acrobot --num-envs 4
  stepherd learn examples/cartpole.yaml --run-id cartpole --resume
"""


class StrictParser(argparse.ArgumentParser):
    """A parser that takes no abbreviations and says which option was meant; a mistake ends the process with 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def parse_known_args(  # type: ignore[override]  # typeshed overloads it for namespaces of other types
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse and let nothing unknown pass: the parser of a command knows its own options best."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown)}")
        return parsed, unknown

    def _meant(self, unknown: list[str]) -> str:
        typed = [word.partition("=")[0] for word in unknown if word.startswith("--")]
        options = [name for action in self._actions for name in action.option_strings]
        close = [match for word in typed for match in difflib.get_close_matches(word, options, 1)]
        return f"; did you mean {' and '.join(close)}?" if close else ""


def learn_parser(prog: str = "stepherd learn") -> StrictParser:
    """Return the parser of `stepherd learn` as a program of its own."""
    parser = StrictParser(prog=prog)
    add_learn_options(parser)
    return parser


def add_learn_options(parser: argparse.ArgumentParser) -> None:
    """Make `parser` the parser of `stepherd learn`, help included."""
    parser.usage = "%(prog)s [CONFIG] [options]"
    parser.description = _DESCRIPTION
    parser.epilog = _EXAMPLES
    parser.formatter_class = _HelpFormatter
    parser.add_argument(
        "config", nargs="?", metavar="CONFIG", help="trainer configuration, YAML (default: PPO's defaults)"
    )
    for heading, options in GROUPS.items():
        group = parser.add_argument_group(heading)
        for option in options:
            _add(group, option)
    names = ", ".join(option.name for option in UNBUILT)
    unbuilt = parser.add_argument_group("options of ML-Agents that are not built yet and refused", names)
    for option in (*UNBUILT, *HIDDEN):
        _add(unbuilt, option)


def typed_overrides(typed: argparse.Namespace) -> tuple[Override, ...]:
    """Return what was typed, in the order of the help, for `load_config`."""
    # Here and not above: pydantic is slow to import, and --help has no use for it.
    from stepherd.training.config import Override

    options = [option for group in GROUPS.values() for option in group]
    values = [(option, getattr(typed, option.dest, None)) for option in (*options, *UNBUILT, *HIDDEN)]
    return tuple(
        Override(option.name, option.path, tuple(value) if isinstance(value, list) else value)
        for option, value in values
        if value is not None
    )


class _HelpFormatter(argparse.HelpFormatter):
    """Keeps the examples as they are and leaves room for the names of options."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, max_help_position=28, **more)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text == _EXAMPLES else super()._fill_text(text, width, indent)


def _add(group: argparse._ArgumentGroup, option: Option) -> None:
    # SUPPRESS: only what was typed appears in the namespace, so a default never beats the file.
    if option.metavar is None:
        group.add_argument(option.name, action="store_true", default=argparse.SUPPRESS, help=option.help)
    else:
        group.add_argument(
            option.name,
            metavar=option.metavar,
            nargs=option.nargs,
            default=argparse.SUPPRESS,
            help=option.help,
        )
