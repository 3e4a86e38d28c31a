"""What a manager knows of one worker: its process of the moment, its envs, its budget and its ledger.

SPAWNING ──READY──▶ UP ──bell closed──▶ GOING ──exit known──▶ DOWN ──respawn──▶ SPAWNING
    └───────────────┴── raised, late ─────────────────────────▶ DOWN
                    └── CLOSE, CLOSED ──▶ GOING ──▶ DOWN
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from stepherd.manager.launch import Link
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.report import WorkerReport
from stepherd.manager.restarts import RestartHistory
from stepherd.process.exits import Exit
from stepherd.process.memory import rss_bytes
from stepherd.spec.specs import EnvSpec
from stepherd.transport.control import Control, Phase
from stepherd.transport.layout import Layout, Rows


class WorkerState(enum.Enum):
    """Where a worker is in its life."""

    SPAWNING = "spawning"
    UP = "up"
    LEAVING = "closing"  # healthy; it was asked to close its envs and make room for a new process
    GOING = "going"  # it is lost: its exit status, or the stack it was late in, is not known yet
    DOWN = "down"


@dataclass(slots=True)
class Ledger:
    """Every action ever sent to one worker, over all its processes."""

    sent: int = 0
    delivered: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    unbegun: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """The mapped block of one process."""

    control: Control
    hot: Rows
    cold: Rows
    actions: Rows


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a worker failed."""

    kind: Literal["died", "raised", "late", "protocol"]
    """What events and ledgers call it."""
    what: str
    """The rest of the sentence that begins with the worker's name."""
    details: str = ""
    """More lines, such as a traceback."""
    shows_log: bool = True


class EnvWorker:
    """One worker. Bookkeeping only; what to do about it is the manager's business."""

    def __init__(self, worker_id: int, env_ids: range, restarts: RestartHistory) -> None:
        self.worker_id = worker_id
        self.env_ids = env_ids
        self.restarts = restarts
        self.ledger = Ledger()
        self.state = WorkerState.DOWN
        self.generation = -1
        self.link: Link | None = None
        self.memory: Memory | None = None
        self.spec: EnvSpec | None = None
        self.spawned_at = 0.0
        self.asked_at = 0.0
        """When it was last asked for something."""
        self.going_since = 0.0
        self.verdict: Cause | None = None
        """Why it is let go, when that is decided and only its stack is waited for."""
        self.respawn_at: float | None = None
        self.was_ready = False
        """Whether any of its processes has ever built the envs."""
        self.sent_to_env = [0] * len(env_ids)
        """Steps sent to each env of the present process."""
        self.recycle_why: str | None = None
        """Why its process is to be replaced though it is healthy."""
        self.has_closed = False
        """Whether it has said that its envs are closed, so that it can be recycled."""
        self.was_recycled = False
        """Whether its last process was replaced healthy."""
        self.n_recycled = self.n_restarts = 0
        self._episodes = [0] * len(env_ids)
        self._is_between_episodes = [False] * len(env_ids)
        self.error: str | None = None
        self.exit: Exit | None = None
        self.problems: list[str] = []
        self.leaked_pids: list[int] = []
        """Its processes that could not be ended; not only the last one."""

    @property
    def pid(self) -> int:
        """The process id of the last process, 0 before the first."""
        return self.link.pid if self.link is not None else 0

    def begin_life(self, link: Link, now: float) -> None:
        """Take on a newly started process."""
        assert self.memory is None, "the block of the process before was not dropped"
        self.link = link
        self.n_restarts += self.generation >= 0 and not self.was_recycled
        self.was_recycled = False
        self.generation += 1
        self.state = WorkerState.SPAWNING
        self.spawned_at = now
        self.respawn_at = None
        self.verdict = None
        self.exit = None
        self.sent_to_env = [0] * len(self.env_ids)
        self.recycle_why = None
        self.has_closed = False
        self._episodes = [0] * len(self.env_ids)
        self._is_between_episodes = [False] * len(self.env_ids)

    def take_block(self, spec: EnvSpec, layout: Layout, block_fd: int) -> None:
        """Map the block of a worker that has built its envs."""
        assert self.link is not None
        n_envs = len(self.env_ids)
        buffer = self.link.map_block(block_fd, layout.block_bytes(n_envs))
        self.memory = Memory(Control(buffer, n_envs), *layout.split(buffer, n_envs))
        self.spec = spec
        self.state = WorkerState.UP
        self.was_ready = True

    def drop_block(self) -> None:
        """Give up the block; answers in it are gone."""
        if self.memory is not None and self.link is not None:
            self.memory.control.release()
            self.memory = None
            self.link.drop()

    def owed(self) -> list[int]:
        """Return the envs it was asked for and has not answered, whether anybody has listened since or not."""
        if self.memory is None:
            return []
        control = self.memory.control
        return [env_id for i, env_id in enumerate(self.env_ids) if control.request(i) != control.done(i)]

    def note_episode(self, index: int, policy: RecyclePolicy) -> None:
        """See whether the last answer of its env number `index` ended an episode, and whether that was one too many."""
        assert self.memory is not None
        episodes = self.memory.control.episodes(index)
        self._is_between_episodes[index] = episodes > self._episodes[index]
        if self._is_between_episodes[index] and self.recycle_why is None:
            self._episodes[index] = episodes
            self.recycle_why = policy.why(sum(self._episodes), rss_bytes(self.pid) if policy.above_rss_mib else None)
        self._episodes[index] = episodes

    def is_between_episodes(self, env_id: int) -> bool:
        """Return whether the last answer of an env was the end of an episode and the beginning of the next."""
        return self._is_between_episodes[env_id - self.env_ids.start]

    def write_off(self, index: int, cause: str) -> None:
        """Account for a step of its env number `index` whose outcome nobody will get."""
        assert self.memory is not None
        if self.memory.control.begun(index) >= self.sent_to_env[index]:
            self.ledger.discarded[cause] += 1
        else:
            self.ledger.unbegun += 1

    def doing(self) -> str:
        """Return what the worker is doing, or was when it died, in words."""
        if self.memory is None:
            return "building its envs"
        phase, index, _ = self.memory.control.phase()
        env = f"env {self.env_ids[index]}"
        if phase is Phase.STEPPING:
            return f"stepping {env} (step {self.memory.control.begun(index)} in this process)"
        if phase is Phase.RESETTING:
            return f"resetting {env} (after {self.memory.control.finished(index)} steps in this process)"
        return f"closing {env}" if phase is Phase.CLOSING else "idle"

    def report(self) -> WorkerReport:
        """Return the final account."""
        return WorkerReport(
            worker_id=self.worker_id,
            env_ids=tuple(self.env_ids),
            pid=self.pid,
            exit=self._exit_in_words(),
            n_restarts=self.n_restarts,
            n_recycled=self.n_recycled,
            sent=self.ledger.sent,
            delivered=self.ledger.delivered,
            discarded=dict(self.ledger.discarded),
            unbegun=self.ledger.unbegun,
            error=self.error,
            leaked=bool(self.leaked_pids),
            leaked_pids=tuple(self.leaked_pids),
            problems=tuple(self.problems),
        )

    def _exit_in_words(self) -> str:
        if self.link is None:
            return "never started"
        return "still runs" if self.exit is None else str(self.exit)
