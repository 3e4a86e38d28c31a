"""The contract, kept by workers that are processes of this machine, with one env each and with several."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import stepherd
from contract.env_manager_contract import EnvManagerContract, Factory, OpenEnvs
from faults.processes import PATIENCE_S
from stepherd.core.deadline import Timeouts
from stepherd.manager.env_manager import EnvManager

if sys.platform == "win32":
    pytest.skip("there are no workers on Windows yet", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


class TestOneEnvPerWorker(EnvManagerContract):
    """The contract with as many workers as envs."""

    @pytest.fixture
    def open_envs(self) -> OpenEnvs:
        """Open a pool."""

        def open_them(
            env: Factory, n_envs: int, *, env_kwargs: Mapping[str, Any] | None = None, seed: int | None = None
        ) -> AbstractContextManager[EnvManager]:
            k = self.envs_per_worker if n_envs % self.envs_per_worker == 0 else n_envs
            return stepherd.open_env_manager(
                env,
                num_workers=n_envs // k,
                envs_per_worker=k,
                env_kwargs=env_kwargs,
                seed=seed,
                timeouts=Timeouts(grace_s=20.0),
            )

        return open_them


class TestSeveralEnvsPerWorker(TestOneEnvPerWorker):
    """The contract with two envs in each worker, or with all in one where their number is odd."""

    envs_per_worker = 2


SCRIPT = """
import stepherd
from stepherd.testing.faulty_envs import CountingEnv

length = 3

class MyEnv(CountingEnv):
    def _reward(self):
        return float(length)

def make():
    return MyEnv(length=length)

{what}
with stepherd.open_env_manager({factory}, num_workers=2) as envs:
    batch = envs.reset(seed=1)
    print(sorted(batch.behaviors), batch.env_ids.tolist())
print(envs.close().leaked)
"""


@pytest.mark.parametrize(
    ("factory", "what", "name"),
    [
        ("make", "", "MyEnv"),
        ("MyEnv", "", "MyEnv"),
        ("lambda: MyEnv(length=length)", "", "MyEnv"),
        ("functools.partial(MyEnv, length=2)", "import functools", "MyEnv"),
        (
            "closure",
            "def outer():\n    n = 4\n    return lambda: CountingEnv(length=n)\nclosure = outer()",
            "CountingEnv",
        ),
        ("CountingEnv", "", "CountingEnv"),
    ],
    ids=["function", "class", "lambda", "partial", "closure", "importable"],
)
@pytest.mark.parametrize("how", ["script", "stdin"])
def test_a_script_needs_no_main_guard_whatever_its_factory(
    factory: str, what: str, name: str, how: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).format(factory=factory, what=what))
    command = [sys.executable, str(script)] if how == "script" else [sys.executable, "-"]

    run = subprocess.run(
        command,
        input=script.read_text() if how == "stdin" else None,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert run.stderr == ""
    assert run.stdout.splitlines() == [f"['{name}'] [0, 1]", "()"]
