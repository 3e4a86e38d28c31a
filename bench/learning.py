"""The examples learn: trains each with `stepherd learn` and holds its mean return against what counts as solved.

    python bench/learning.py                        # all of them, seed 1
    python bench/learning.py lunarlander --seeds 1 2 3

Reported for each run: the mean return of the last 100 episodes, agent steps, wall seconds, steps/s. Exit code 1 if
one falls short. LunarLander needs `gymnasium[box2d]`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOLVED = {"cartpole": 475.0, "acrobot": -100.0, "lunarlander": 200.0, "pendulum": -250.0, "courier": 0.7}
OPTIONS = {"cartpole": ["--num-envs", "8"], "courier": ["--num-envs", "2", "--envs-per-worker", "2"]}


def main() -> int:
    """Train, print the table, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SOLVED), metavar="NAME", help=f"of {', '.join(SOLVED)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--timeout-s", type=float, default=3600.0, help="bound of one run")
    typed = parser.parse_args()
    short = 0
    print(f"{'':12} seed     mean   solved at     steps   wall s  steps/s", flush=True)
    for name in typed.names:
        for seed in typed.seeds:
            begun_at = time.monotonic()
            mean, steps = _train(name, seed, typed.timeout_s)
            took_s = time.monotonic() - begun_at
            short += mean < SOLVED[name]
            print(
                f"{name:12} {seed:4} {mean:8.1f} {SOLVED[name]:11.1f} {steps:9} {took_s:8.1f} {steps / took_s:8.0f}",
                flush=True,
            )
    return 1 if short else 0


def _train(name: str, seed: int, timeout_s: float) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as results:
        options = ["--seed", str(seed), "--results-dir", results, *OPTIONS.get(name, [])]
        done = subprocess.run(
            [sys.executable, "-m", "stepherd", "learn", f"examples/{name}.yaml", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            timeout=timeout_s,
            check=True,
            text=True,
        )
    found = re.search(r": (\d+) steps, mean reward of the last 100 episodes (-?\d+\.\d+)", done.stdout)
    assert found, done.stdout
    return float(found[2]), int(found[1])


if __name__ == "__main__":
    sys.exit(main())
