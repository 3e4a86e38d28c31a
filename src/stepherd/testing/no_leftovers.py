"""The pytest fixture `no_leftovers`: fails a test that leaves a process, descriptor, file, port or thread behind.

Name this module in `pytest_plugins`, then ask for the fixture, or have an autouse fixture ask for it. The test runs
with a temporary folder of its own, so that nothing another program does on the machine can be blamed on it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest

from stepherd.core.deadline import Deadline
from stepherd.testing.leftovers import GONE_WITHIN_S, watch_leftovers


@pytest.fixture(scope="session")
def temporary_folder_of_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make a folder that pytest keeps for a while the temporary folder of the tests and of all that they start."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture
def no_leftovers(temporary_folder_of_ours: None) -> Iterator[None]:  # noqa: ARG001 - has to come first
    """Fail the test when something it started or opened is still there two seconds after its end, and kill that."""
    with watch_leftovers() as watch:
        yield
    leftovers = watch.wait(Deadline.after(GONE_WITHIN_S))
    leftovers.kill_processes()
    if leftovers:
        pytest.fail(str(leftovers), pytrace=False)
