"""What a PPO's state dict is made of, and the strict way back: everything is checked before anything is replaced.

Only tensors, numbers, strings, lists and dicts, so `torch.load(..., weights_only=True)` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stepherd.core.errors import SpecError
from stepherd.rl.adam import Adam
from stepherd.rl.policy import Policy
from stepherd.rl.rollout import GRID_NAMES
from stepherd.spec.batch import AnyArray
from stepherd.spec.specs import ActionSpec, BehaviorSpec

FORMAT = 1  # raised when a reader must know that the meaning changed
KEYS = ("format", "behavior", "n_steps", "policy", "adam", "generator", "rollout")


def behavior_lines(behavior: BehaviorSpec) -> list[str]:
    """Return what must agree between a checkpoint and an env, one line each. Names may differ, sizes may not."""
    lines = [
        f"{spec.kind} {spec.shape}" + (f" of {spec.n_categories} choices" if spec.n_categories else "")
        for spec in behavior.observations
    ]
    action = behavior.action
    return [*lines, f"actions: {action.n_continuous} continuous, branches {action.branches}"]


def policy_state(policy: Policy) -> dict[str, Any]:
    """Return copies of the weights and of the observation statistics."""
    normalizer = policy.normalizer
    return {
        "network": {name: _kept(tensor) for name, tensor in policy.network.state_dict().items()},
        "normalizer": None
        if normalizer is None
        else {
            "count": normalizer.count,
            "mean": torch.from_numpy(normalizer.mean.copy()),
            "variance": torch.from_numpy(normalizer.variance.copy()),
        },
    }


def _kept(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, which every machine has: a checkpoint must load where there is no GPU."""
    return tensor.detach().to("cpu", copy=True)


def load_policy(policy: Policy, state: Mapping[str, Any]) -> None:
    """Replace weights and statistics by those of a checked state."""
    policy.network.load_state_dict(state["network"], strict=True)
    if policy.normalizer is not None:
        saved = state["normalizer"]
        policy.normalizer.restore(saved["count"], saved["mean"].numpy(), saved["variance"].numpy())


def adam_state(adam: Adam) -> dict[str, Any]:
    """Return copies of the optimiser's averages and its step count."""
    return {"n_steps": adam.n_steps, "mean": _kept(adam.mean), "square": _kept(adam.square)}


def load_adam(adam: Adam, state: Mapping[str, Any]) -> None:
    """Replace the optimiser's averages and step count by those of a checked state."""
    adam.n_steps = state["n_steps"]
    adam.mean.copy_(state["mean"])
    adam.square.copy_(state["square"])


def check_learner(state: Mapping[str, Any], policy: Policy, adam: Adam) -> None:
    """Raise a SpecError unless weights, statistics and optimiser of `state` fit, naming everything that does not."""
    behavior = policy.spec
    missing = [key for key in KEYS if key not in state]
    if missing:
        raise SpecError(
            f"the checkpoint of behavior {behavior.name!r} lacks {', '.join(missing)}: not a PPO checkpoint?"
        )
    if state["format"] != FORMAT:
        raise SpecError(
            f"the checkpoint of behavior {behavior.name!r} has format {state['format']}, this version reads {FORMAT}"
        )
    if not _is_count(state["n_steps"]):
        raise SpecError(f"the checkpoint of behavior {behavior.name!r} has counted {state['n_steps']!r} steps")
    check_behavior(state["behavior"], behavior)
    network, normalizer = state["policy"].get("network", {}), state["policy"].get("normalizer")
    check_tensors(network, policy.network.state_dict(), "network")
    check_tensors(state["adam"], {"mean": adam.mean, "square": adam.square}, "optimizer", also=frozenset({"n_steps"}))
    if (policy.normalizer is None) != (normalizer is None):
        was, now = ("without", "with") if normalizer is None else ("with", "without")
        raise SpecError(f"the checkpoint was trained {was} normalize, this run is {now}: set normalize alike")
    if policy.normalizer is not None:
        like = torch.from_numpy(policy.normalizer.mean)
        check_tensors(normalizer, {"mean": like, "variance": like}, "normalizer", also=frozenset({"count"}))


def checked_rollout(found: Mapping[str, Any], width: int, action: ActionSpec) -> dict[str, AnyArray]:
    """Return the arrays of a saved rollout after checking that they fit together and this behavior.

    Raises:
        SpecError: they do not; names the arrays.
    """
    shape = tuple(getattr(found.get("log_prob"), "shape", ()))
    if len(shape) != 2:
        raise SpecError(f"the checkpoint's rollout cannot be loaded: 'log_prob' has shape {shape}, not (steps, slots)")
    expected = {name: torch.empty(shape, device="meta") for name in GRID_NAMES}
    expected["obs"] = torch.empty((*shape, width), device="meta")
    expected["continuous"] = torch.empty((*shape, action.n_continuous), device="meta")
    expected["discrete"] = torch.empty((*shape, len(action.branches)), dtype=torch.int64, device="meta")
    expected["cut"] = torch.empty(shape, dtype=torch.bool, device="meta")
    expected["clock"] = torch.empty(shape[1:], dtype=torch.int64, device="meta")
    check_tensors(found, expected, "rollout")
    clock: AnyArray = found["clock"].numpy()
    if clock.min(initial=0) < 0 or clock.max(initial=0) > shape[0]:
        raise SpecError(f"the checkpoint's rollout cannot be loaded: 'clock' goes beyond its {shape[0]} steps")
    return {name: found[name].numpy() for name in expected}


def checked_generator(found: object) -> torch.Generator:
    """Return a generator in the saved state.

    Raises:
        SpecError: it is not the state of a CPU generator.
    """
    generator = torch.Generator()
    try:
        generator.set_state(found)  # type: ignore[arg-type]  # torch checks it
    except (TypeError, RuntimeError) as error:
        raise SpecError(f"the checkpoint's 'generator' is not a random state: {error}") from error
    return generator


def check_behavior(found: object, behavior: BehaviorSpec) -> None:
    """Raise a SpecError unless the checkpoint's `behavior_lines` are those of `behavior`."""
    expected = behavior_lines(behavior)
    if found == expected:
        return
    lines = found if isinstance(found, list) else []
    names = [f"observation {spec.name!r}" for spec in behavior.observations] + ["actions"]
    if len(lines) != len(expected):
        difference = f"it has {max(0, len(lines) - 1)} observations, the env {len(expected) - 1}"
    else:
        difference = "; ".join(
            f"{name}: checkpoint has {old!r}, env has {new!r}"
            for name, old, new in zip(names, lines, expected, strict=True)
            if old != new
        )
    raise SpecError(f"the checkpoint of behavior {behavior.name!r} is for another env: {difference}")


def check_tensors(
    found: Mapping[str, Any], expected: Mapping[str, Tensor], what: str, also: frozenset[str] = frozenset()
) -> None:
    """Raise a SpecError unless `found` has exactly the names, shapes and types of `expected`, all finite.

    `also`: names of plain numbers that must be there too, whole and not negative. The error lists everything that is
    wrong: a network is loaded whole or not at all.
    """
    names = [*expected, *sorted(also)]
    problems = [f"{name!r} is missing" for name in names if name not in found]
    problems += [f"{name!r} is not part of this network" for name in found if name not in names]
    for name in names:
        if name in found and name in expected:
            problems += _tensor_problems(name, found[name], expected[name])
        elif name in found and not _is_count(found[name]):
            problems.append(f"{name!r} is {found[name]!r}, not a count")
    if problems:
        raise SpecError(f"the checkpoint's {what} cannot be loaded: {'; '.join(problems)}")


def _is_count(number: object) -> bool:
    return isinstance(number, int) and number >= 0


def _tensor_problems(name: str, found: object, expected: Tensor) -> list[str]:
    if not isinstance(found, Tensor):
        return [f"{name!r} is a {type(found).__name__}, not a tensor"]
    if found.shape != expected.shape:
        return [f"{name!r} has shape {tuple(found.shape)}, this network {tuple(expected.shape)}"]
    if found.dtype != expected.dtype:
        return [f"{name!r} has type {found.dtype}, this network {expected.dtype}"]
    if found.is_floating_point() and not math.isfinite(float(found.sum())) and not bool(found.isfinite().all()):
        return [f"{name!r} holds numbers that are not finite: its training diverged, take an earlier checkpoint"]
    return []
