"""The trials of a check: runs a watched env in real workers, in a few arrangements, and notes what came of each.

The same env with the same seed and the same actions is run alone, alone again, next to another worker and next to
another env in its worker: what differs between two of these is what the arrangement does to it.
"""

from __future__ import annotations

import shutil
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stepherd.core.deadline import Deadline, Timeouts
from stepherd.core.errors import EnvNeverReady, TooFewReady, WorkerFailed
from stepherd.core.waiting import TICK_S
from stepherd.manager.open import open_env_manager
from stepherd.manager.report import CloseReport
from stepherd.manager.restarts import NEVER
from stepherd.manager.subprocess_env_manager import SubprocessEnvManager
from stepherd.spec.batch import Actions, StepBatch
from stepherd.spec.specs import EnvSpec
from stepherd.testing.check_probe import CheckFactory, Facts, read_facts
from stepherd.testing.leftovers import GONE_WITHIN_S, SHARED_MEMORY, Leftovers, watch_leftovers
from stepherd.testing.soak_actions import draw_actions

SAMPLES = 30  # of the memory in a trial; each costs a garbage collection
ACTION_SEED = 20_260_101  # of the actions: the same in every trial


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the env is run in one trial."""

    name: str
    num_workers: int = 1
    envs_per_worker: int = 1
    seed: int = 1
    samples_memory: bool = False


@dataclass(slots=True)
class Trial:
    """What came of one trial."""

    arrangement: Arrangement
    open_s: float = 0.0
    close_s: float = 0.0
    never_ready: str = ""
    """Why the envs could not be built."""
    failure: str = ""
    """Why it ended before its time."""
    rows: list[list[int]] = field(default_factory=list)
    """For each env a checksum of every row it gave, in order: a reset, then steps."""
    facts: list[Facts] = field(default_factory=list)
    """Of each env, in the order in which they were built."""
    report: CloseReport | None = None
    leftovers: Leftovers = field(default_factory=Leftovers)
    temporary: str = ""
    """The temporary folder of the envs."""
    temporary_files: tuple[str, ...] = ()
    """What was left in it."""
    changed_here: frozenset[str] = frozenset()
    """What was made or changed in the current folder meanwhile."""
    log_bytes: int = 0
    """What the first worker printed."""
    spec: EnvSpec | None = None
    choices: tuple[int, ...] = ()
    """How many different choices were sent for each branch."""

    @property
    def went_well(self) -> bool:
        """Whether it ran to its end."""
        return not self.never_ready and not self.failure

    @property
    def n_steps(self) -> int:
        """Steps of the first env."""
        return max(0, len(self.rows[0]) - 1) if self.rows else 0


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Where trials are run: what env, how long, within which limits."""

    source: str | bytes
    kwargs: bytes
    name: str
    folder: Path
    """The check's own; a trial makes a folder in it."""
    n_steps: int
    budget_s: float
    """A trial takes no new step after so long."""
    timeouts: Timeouts

    def run(self, arrangement: Arrangement) -> Trial:
        """Run a trial. Blocks within the budget and the time limits."""
        trial = Trial(arrangement)
        folder = self.folder / arrangement.name.replace(" ", "-")
        temporary = self.folder / "tmp"  # the same in all trials: a fixed name in it shows
        shutil.rmtree(temporary, ignore_errors=True)
        for place in (folder / "facts", temporary):
            place.mkdir(parents=True)
        factory = CheckFactory(
            self.source,
            self.kwargs,
            str(folder / "facts"),
            str(temporary),
            max(1, self.n_steps // SAMPLES) if arrangement.samples_memory else 0,
            self.name,
        )
        before = _changes_here()
        with watch_leftovers([SHARED_MEMORY] if SHARED_MEMORY.is_dir() else []) as watch:
            self._use(trial, factory, folder)
        trial.leftovers = watch.wait(Deadline.after(GONE_WITHIN_S))
        trial.leftovers.kill_processes()
        trial.changed_here = frozenset(name for name, when in _changes_here().items() if before.get(name) != when)
        trial.facts = read_facts(folder / "facts")
        trial.temporary = str(temporary)
        trial.temporary_files = tuple(sorted(str(path) for path in temporary.rglob("*") if path.is_file()))
        log = folder / "worker-0.log"
        trial.log_bytes = log.stat().st_size if log.exists() else 0
        return trial

    def _use(self, trial: Trial, factory: CheckFactory, log_dir: Path) -> None:
        arrangement = trial.arrangement
        pool = open_env_manager(
            factory,
            num_workers=arrangement.num_workers,
            envs_per_worker=arrangement.envs_per_worker,
            seed=arrangement.seed,
            timeouts=self.timeouts,
            restarts=NEVER,
            log_dir=log_dir,
        )
        began_at = time.monotonic()
        try:
            with pool:
                trial.open_s = time.monotonic() - began_at
                trial.spec = pool.spec
                self._step(trial, pool)
        except EnvNeverReady as error:
            trial.never_ready = str(error)
        except (WorkerFailed, TooFewReady) as error:
            trial.failure = str(error).partition("\nIt is not replaced again")[0]  # we have asked for that
        trial.report = pool.close()
        trial.close_s = trial.report.took_s

    def _step(self, trial: Trial, pool: SubprocessEnvManager) -> None:
        """Step all envs together; at the end, reset them in the middle of an episode and go on a little."""
        n_envs = pool.n_envs
        within_s = n_envs * (self.timeouts.step_s + self.timeouts.reset_s) + 2 * TICK_S  # then it says who is late
        rngs = [np.random.default_rng([ACTION_SEED, env_id]) for env_id in range(n_envs)]
        seen: list[set[int]] = [set() for behavior in pool.spec.behaviors for _ in behavior.action.branches]
        trial.rows = [[checksum] for checksum in _checksums(pool.reset())]
        deadline = Deadline.after(self.budget_s)
        for _ in range(self.n_steps):
            if deadline.passed:
                break
            actions = _stacked([draw_actions(pool.spec, 1, rng) for rng in rngs])
            pool.send(actions)
            for rows, checksum in zip(trial.rows, _checksums(pool.recv(n_envs, within_s=within_s)), strict=True):
                rows.append(checksum)
            branches = [column for of in actions.values() for column in np.moveaxis(of.discrete, -1, 0)]
            for choices, column in zip(seen, branches, strict=True):
                choices.update(column.ravel().tolist())
        trial.choices = tuple(len(choices) for choices in seen)
        pool.reset()
        pool.send(_stacked([draw_actions(pool.spec, 1, rng) for rng in rngs]))
        pool.recv(n_envs, within_s=within_s)


def _stacked(actions: list[dict[str, Actions]]) -> dict[str, Actions]:
    return {
        name: Actions(
            np.concatenate([one[name].continuous for one in actions]),
            np.concatenate([one[name].discrete for one in actions]),
        )
        for name in actions[0]
    }


def _checksums(batch: StepBatch) -> Iterator[int]:
    """Yield a checksum of each row: what was observed, earned and ended."""
    for row in range(len(batch)):
        checksum = 0
        for steps in batch.behaviors.values():
            ended = bool(steps.ended[row].any())
            for array in (*steps.obs, *(steps.final_obs if ended else ())):
                checksum = zlib.crc32(array[row].tobytes(), checksum)
            for values in (steps.reward, steps.terminated, steps.interrupted):
                checksum = zlib.crc32(values[row].tobytes(), checksum)
        yield checksum


def _changes_here() -> dict[str, int]:
    """Return when each entry of the current folder was last changed."""
    found = {}
    for path in Path.cwd().iterdir():
        try:
            found[path.name] = path.stat().st_mtime_ns
        except OSError:  # it is gone again
            continue
    return found
