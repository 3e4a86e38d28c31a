"""The worker's entry point puts on the leash before anything heavy, and explains itself to a person."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from faults.processes import PATIENCE_S
from stepherd.worker.__main__ import main

if sys.platform == "win32":
    pytest.skip("there are no workers on Windows yet", allow_module_level=True)


@pytest.mark.parametrize("arguments", [[], ["1"], ["1", "2", "3"], ["one", "2"], ["-1", "2"]])
def test_a_person_who_starts_it_by_hand_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(arguments)

    assert code == 2
    assert "not by hand" in capsys.readouterr().err


@pytest.mark.slow
def test_the_leash_is_on_before_numpy_is_imported() -> None:
    program = (
        "import sys\n"
        "import stepherd.worker.__main__ as worker\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('numpy', 'gymnasium', 'torch')))"
    )

    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )

    assert run.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_worker_whose_manager_is_gone_already_ends_without_a_word() -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    process = subprocess.run(
        [sys.executable, "-m", "stepherd.worker", str(read_end), "0"],
        pass_fds=[read_end],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(read_end)

    assert process.returncode == 1
    assert process.stderr.strip() == "the parent process is gone"
