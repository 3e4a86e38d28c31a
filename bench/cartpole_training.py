"""CartPole to a mean return of 475: Stepherd against Stable-Baselines3, side by side in one run.

    python bench/cartpole_training.py --peer-python .venv-peers/bin/python --seeds 1 2 3

Both run PPO with the rl-zoo hyperparameters for CartPole-v1 (8 envs in 8 processes, 256 steps an update, 20 epochs,
100,000 steps), each run in a process of its own, in turn A B A B …, on one torch thread, which is the better setting
for both. Reported: wall seconds for the whole run, and until the mean of the last 100 episodes reached 475, start-up
included; then the ratios Stepherd / SB3 with their spread. CPU time is not compared: the peer's workers are children of
a fork server that nobody waits for, so the system never adds them up. The peer needs a Python with `stable-baselines3`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
THRESHOLD = 475.0

OURS = """
import json, sys, time
begun = time.monotonic()
import torch
torch.set_num_threads(1)
from stepherd.training.config import Override, load_config
from stepherd.training.stop_signals import stop_signals
from stepherd.training.trainer_controller import train

class Watcher:
    reached_s = None
    def update(self, progress):
        mean, episodes = progress.behaviors[0].mean_reward_last_100, progress.behaviors[0].n_episodes
        if self.reached_s is None and episodes >= 100 and mean >= THRESHOLD:
            self.reached_s = time.monotonic() - begun
    def summary(self, summary): ...
    def message(self, text): ...

def option(*path, value):
    return Override("the benchmark", path, value)

config = load_config("examples/cartpole.yaml", [
    option("env_settings", "num_envs", value="8"),
    option("env_settings", "seed", value=sys.argv[1]),
    option("checkpoint_settings", "results_dir", value=sys.argv[2]),
])
watcher = Watcher()
with stop_signals() as stop:
    outcome = train(config, stop, watcher)
print(json.dumps({"mean": outcome.mean_rewards["CartPole"], "reached_s": watcher.reached_s}))
"""

PEER = """
import json, sys, time
begun = time.monotonic()
import numpy as np
import torch
torch.set_num_threads(1)
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv

class Reached(BaseCallback):
    reached_s = None
    def _on_step(self):
        buffer = self.model.ep_info_buffer
        if self.reached_s is None and len(buffer) == 100 and np.mean([e["r"] for e in buffer]) >= THRESHOLD:
            self.reached_s = time.monotonic() - begun
        return True

if __name__ == "__main__":
    seed = int(sys.argv[1])
    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed, vec_env_cls=SubprocVecEnv)
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
                learning_rate=lambda left: left * 1e-3, clip_range=lambda left: left * 0.2, seed=seed, device="cpu")
    callback = Reached()
    model.learn(100_000, callback=callback)
    mean = float(np.mean([e["r"] for e in model.ep_info_buffer]))
    envs.close()
    print(json.dumps({"mean": mean, "reached_s": callback.reached_s}))
"""


def main() -> None:
    """Run the comparison and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True, help="a Python that has stable-baselines3")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--timeout-s", type=float, default=600.0, help="bound of one run")
    typed = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {"stepherd": [], "sb3": []}
    print(f"{'':10} seed  wall s  to {THRESHOLD:.0f}   mean", flush=True)
    for seed in typed.seeds:
        with tempfile.TemporaryDirectory() as results:
            runs = {
                "stepherd": [sys.executable, "-c", OURS.replace("THRESHOLD", str(THRESHOLD)), str(seed), results],
                "sb3": [typed.peer_python, _script(Path(results)), str(seed)],
            }
            for name, command in runs.items():
                row = _measure(command, typed.timeout_s)
                rows[name].append(row)
                print(
                    f"{name:10} {seed:4} {row['wall_s']:7.1f} {row['reached_s']:7.1f} {row['mean']:6.1f}",
                    flush=True,
                )
    for figure in ("wall_s", "reached_s"):
        ratios = [ours[figure] / peer[figure] for ours, peer in zip(rows["stepherd"], rows["sb3"], strict=True)]
        print(
            f"{figure:9} stepherd / sb3: median {statistics.median(ratios):.2f}, "
            f"from {min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} pairs"
        )


def _script(folder: Path) -> str:
    path = folder / "peer.py"  # a file, because its workers import the main module again
    path.write_text(PEER.replace("THRESHOLD", str(THRESHOLD)))
    return str(path)


def _measure(command: list[str], timeout_s: float) -> dict[str, float]:
    begun_at = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        timeout=timeout_s,
        check=True,
        text=True,
    )
    wall_s = time.monotonic() - begun_at
    result = json.loads(done.stdout.splitlines()[-1])
    return {
        "wall_s": wall_s,
        "reached_s": result["reached_s"] if result["reached_s"] is not None else float("nan"),
        "mean": result["mean"],
    }


if __name__ == "__main__":
    main()
