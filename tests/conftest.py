"""What holds for every test: whatever it starts or opens is gone when it ends."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester", "stepherd.testing.no_leftovers"]


@pytest.fixture(autouse=True)
def nothing_is_left_behind(no_leftovers: None) -> None:
    """Apply `no_leftovers` to every test, first of all fixtures, so that it looks when all others are torn down."""
