"""No seed makes the manager break a promise."""

from __future__ import annotations

import pytest

from simulation.seed import run_seed


@pytest.mark.slow
def test_no_seed_breaks_a_promise(seeds: range) -> None:
    for seed in seeds:
        run_seed(seed, tell=len(seeds) == 1)
