"""A small behavior, what its slots answer, and a PPO that plays it: shared by the tests of PPO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from stepherd.rl.ppo import PPO, PPOSettings
from stepherd.spec.batch import Actions, AnyArray, BehaviorSteps
from stepherd.spec.specs import ActionSpec, BehaviorSpec, ObservationSpec

DISCRETE = ActionSpec(branches=(3,))
CONTINUOUS = ActionSpec(2, (), (-1.0, 0.0), (1.0, 4.0))
HYBRID = ActionSpec(1, (2, 3), (-1.0,), (1.0,))
SMALL = PPOSettings(batch_size=16, buffer_size=32, num_epoch=2, hidden_units=8, time_horizon=8, max_steps=1000)


def spec_of(action: ActionSpec = DISCRETE, *observations: ObservationSpec) -> BehaviorSpec:
    return BehaviorSpec("Walker", observations or (ObservationSpec("legs", (2,), "float64"),), action)


def steps_of(
    *obs: AnyArray,
    reward: npt.ArrayLike = 0.0,
    deciding: npt.ArrayLike = True,
    terminated: npt.ArrayLike = False,
    interrupted: npt.ArrayLike = False,
    final_obs: Sequence[AnyArray] = (),
) -> BehaviorSteps:
    """What n slots answer; whatever is not given is the same for all. Unset final observations are NaN, like poison."""
    n = len(obs[0])
    return BehaviorSteps(
        obs=obs,
        final_obs=tuple(final_obs) or tuple(np.full(array.shape, np.nan) for array in obs),
        reward=np.broadcast_to(np.array(reward, dtype=np.float64), n).copy(),
        deciding=np.broadcast_to(np.array(deciding), n).copy(),
        terminated=np.broadcast_to(np.array(terminated), n).copy(),
        interrupted=np.broadcast_to(np.array(interrupted), n).copy(),
    )


def nobody(n: int) -> npt.NDArray[np.bool_]:
    return np.zeros(n, dtype=np.bool_)


def turn(ppo: PPO, steps: BehaviorSteps) -> Actions:
    """Record the answer of slots 0 ... n-1 and act on it."""
    slots = np.arange(len(steps.reward))
    ppo.record(slots, steps, nobody(len(slots)))
    return ppo.act(slots, steps)


def fill(ppo: PPO, rng: np.random.Generator, n_slots: int = 4) -> None:
    """Play random episodes in an env without meaning until an update is due."""
    while not ppo.is_full:
        turn(
            ppo,
            steps_of(
                rng.normal(size=(n_slots, 2)),
                reward=rng.normal(size=n_slots),
                terminated=rng.random(n_slots) < 0.1,
                interrupted=rng.random(n_slots) < 0.1,
                final_obs=(rng.normal(size=(n_slots, 2)),),
            ),
        )


def critic(ppo: PPO, obs: AnyArray) -> npt.NDArray[np.float32]:
    with torch.no_grad():
        return ppo.policy.network.value(torch.from_numpy(np.asarray(obs, dtype=np.float32))).numpy()
