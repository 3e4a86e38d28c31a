"""How many seeds are run, and which: `--seeds COUNT`, or `--seed N` to see one again."""

from __future__ import annotations

import pytest

from simulation.seed import N_SEEDS

CHUNK = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the simulation."""
    group = parser.getgroup("simulation")
    group.addoption("--seeds", type=int, default=N_SEEDS, help=f"how many seeds the simulation runs ({N_SEEDS})")
    group.addoption("--seed", type=int, default=None, help="run this seed of the simulation only, and show its story")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test that takes `seeds` some of them."""
    if "seeds" not in metafunc.fixturenames:
        return
    one = metafunc.config.getoption("--seed", None)
    count = metafunc.config.getoption("--seeds", N_SEEDS)
    chunks = [range(first, min(first + CHUNK, count)) for first in range(0, count, CHUNK)]
    if one is not None:
        chunks = [range(one, one + 1)]
    metafunc.parametrize("seeds", chunks, ids=[f"{chunk.start}-{chunk.stop - 1}" for chunk in chunks])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--seed`, leave out what takes no seed: somebody wants to see that one again."""
    if config.getoption("--seed", None) is not None:
        items[:] = [item for item in items if not _is_beside_the_point(item)]


def _is_beside_the_point(item: pytest.Item) -> bool:
    return item.path.parent.name == "simulation" and "seeds" not in getattr(item, "fixturenames", ())
