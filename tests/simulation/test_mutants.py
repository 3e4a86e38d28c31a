"""The simulation finds a manager with a bug, whichever it is."""

from __future__ import annotations

import pytest

from simulation.mutants import Mutant, all_mutants
from simulation.seed import N_SEEDS, SeedFailed, run_seeds


@pytest.mark.slow
@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.__name__)
def test_a_manager_with_a_bug_is_found_out(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)

    with pytest.raises(SeedFailed):
        run_seeds(range(N_SEEDS))
