"""What ML-Agents' configuration can ask for and Stepherd cannot do yet: known, refused in one sentence, never ignored.

Later work deletes rows here and adds fields to `models`. A key that says "off" is accepted, so that a complete
configuration written by ML-Agents loads; below a refused key nothing is checked.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from stepherd._version import __version__
from stepherd.training.config.tree import KeyPath, Problem, Scalar, Section, Tree, found, with_value, without

BEHAVIOR: KeyPath = ("behaviors", "*")
DEFAULTS: KeyPath = ("default_settings",)


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """One key that Stepherd does not serve yet."""

    path: KeyPath
    what: str
    """Completes the sentence "Stepherd has not built … yet"."""
    off: tuple[object, ...] = (None,)
    """Values that ask for nothing; a section of values that all do is such a value too."""

    def refusal(self, of_an_option: bool = False) -> str:
        """Return the one sentence; an option can simply be left out, so it is not told the value that says off."""
        usual = next((_word(value) for value in self.off if isinstance(value, (str, int, float))), None)
        return not_built(self.what) + (f"; leave it at {usual}" if usual and not of_an_option else "")


def not_built(what: str) -> str:
    """Return the sentence that refuses `what`."""
    return f"Stepherd {__version__} has not built {what} yet"


_NETWORK_OFF = {
    "normalize": False,
    "hidden_units": 128,
    "num_layers": 2,
    "vis_encode_type": "simple",
    "goal_conditioning_type": "hyper",
    "deterministic": False,
    "memory": None,
}

_OF_A_BEHAVIOR = (
    Unbuilt(("hyperparameters", "shared_critic"), "a critic that shares the policy's network", (False,)),
    Unbuilt(("network_settings", "vis_encode_type"), "a choice of visual encoders", ("simple",)),
    Unbuilt(("network_settings", "goal_conditioning_type"), "goal conditioning", ("hyper", "none")),
    Unbuilt(("network_settings", "memory"), "recurrent memory"),
    Unbuilt(("reward_signals", "extrinsic", "network_settings"), "networks for reward signals", (_NETWORK_OFF,)),
    Unbuilt(("reward_signals", "curiosity"), "the curiosity reward signal"),
    Unbuilt(("reward_signals", "gail"), "the GAIL reward signal"),
    Unbuilt(("reward_signals", "rnd"), "the RND reward signal"),
    Unbuilt(("behavioral_cloning",), "behavioral cloning"),
    Unbuilt(("self_play",), "self-play"),
    Unbuilt(("threaded",), "trainers in threads of their own", (False,)),
)

_ENGINE = "Unity's engine settings"
_OF_THE_RUN = (
    Unbuilt(("env_settings", "env_args"), "arguments for simulators", (None, [])),
    Unbuilt(("env_settings", "base_port"), "a choice of Unity's ports", (5005,)),
    Unbuilt(("env_settings", "num_areas"), "several training areas in one simulator", (1,)),
    Unbuilt(("engine_settings", "width"), _ENGINE, (84,)),
    Unbuilt(("engine_settings", "height"), _ENGINE, (84,)),
    Unbuilt(("engine_settings", "quality_level"), _ENGINE, (5,)),
    Unbuilt(("engine_settings", "time_scale"), _ENGINE, (20,)),
    Unbuilt(("engine_settings", "target_frame_rate"), _ENGINE, (-1,)),
    Unbuilt(("engine_settings", "capture_frame_rate"), _ENGINE, (60,)),
    Unbuilt(("engine_settings", "no_graphics"), _ENGINE, (False,)),
    Unbuilt(("engine_settings", "no_graphics_monitor"), _ENGINE, (False,)),
    Unbuilt(("environment_parameters",), "environment parameters, samplers and curricula", (None, {})),
)

ROWS = (
    tuple([Unbuilt((*scope, *row.path), row.what, row.off) for scope in (DEFAULTS, BEHAVIOR) for row in _OF_A_BEHAVIOR])
    + _OF_THE_RUN
)
"""The table. `"*"` in a path is the name of a behavior."""

TRAINERS = {"sac": "SAC", "poca": "MA-POCA"}
"""Trainers of ML-Agents that are not built, by their name in the file."""

HYPERPARAMETERS_OF_SAC = (
    "buffer_init_steps",
    "init_entcoef",
    "save_replay_buffer",
    "tau",
    "steps_per_update",
    "reward_signal_steps_per_update",
)


def keys_below(path: KeyPath) -> Iterator[str]:
    """Yield the keys that the table knows directly below the pattern `path`."""
    for row in ROWS:
        if row.path[:-1] == path:
            yield row.path[-1]


def refuse_unbuilt(root: Section) -> tuple[Section, list[Problem]]:
    """Return `root` without the keys of the table, and a problem for each that asks for something."""
    problems = []
    for row in ROWS:
        for path, tree in found(root, row.path):
            if isinstance(tree, Scalar) and tree.is_blank:
                problems.append(tree.place.says("is empty; remove the line"))
            elif not any(_is_off(tree, off) for off in row.off):
                problems.append(tree.place.says(row.refusal(tree.place.is_option)))
                root = _with_some_signal(root, path, tree)
            root = without(root, path)
    for scope in (DEFAULTS, BEHAVIOR):
        for path, behavior in found(root, scope):
            changed = behavior
            if isinstance(behavior, Section):
                changed, more = _refuse_trainer(behavior)
                problems += more
            if changed is not behavior:
                root = with_value(root, path, changed)
    return root, problems


def _with_some_signal(root: Section, path: KeyPath, refused: Tree) -> Section:
    """Return `root` with an extrinsic reward in place of a lone refused one, which is one mistake and not two."""
    extrinsic = (*path[:-1], "extrinsic")
    if path[-2:-1] != ("reward_signals",) or any(found(root, extrinsic)):
        return root
    return with_value(root, extrinsic, Section(refused.place))


def _refuse_trainer(behavior: Section) -> tuple[Section, list[Problem]]:
    trainer = behavior.get("trainer_type")
    if isinstance(trainer, Scalar) and isinstance(trainer.value, str) and trainer.value != "ppo":
        refused = trainer.place.says(_trainer_refusal(trainer.value))
        # What is left is checked as if it were PPO's; these belong to the trainer that is refused.
        left = without(behavior, ("hyperparameters",)) if "hyperparameters" in behavior else behavior
        return with_value(left, ("trainer_type",), Scalar("ppo", "ppo", trainer.place)), [refused]
    problems = []
    for name in HYPERPARAMETERS_OF_SAC:
        for path, tree in found(behavior, ("hyperparameters", name)):
            problems.append(tree.place.says("belongs to SAC, not to PPO"))
            behavior = without(behavior, path)
    return behavior, problems


def _trainer_refusal(name: str) -> str:
    if name in TRAINERS:
        return not_built(TRAINERS[name])
    close = difflib.get_close_matches(name.lower(), ["ppo", *TRAINERS], 1, 0.5)
    if close:
        return f"expected ppo, found {name!r}; did you mean '{close[0]}'?"
    return not_built(f"trainers from plugins, such as {name!r},")


def _is_off(tree: Tree, off: object) -> bool:
    if isinstance(tree, Scalar):
        return tree.value == off and isinstance(tree.value, bool) == isinstance(off, bool)
    if isinstance(tree, Section):
        return isinstance(off, dict) and all(key in off and _is_off(tree[key], off[key]) for key in tree)
    return isinstance(off, list) and not tree


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
