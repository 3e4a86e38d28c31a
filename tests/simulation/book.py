"""What a caller may expect of every env and of every failure, worked out from what was asked and what events say.

A second opinion on the manager's own books: kept in another way, from the outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.fake_backend import SLIPS_S, FakeBackend, FakeLink
from simulation.fake_env import Answer, Truth
from simulation.world import World
from stepherd.core.errors import EnvNeverReady, WorkerError, WorkerFailed
from stepherd.core.events import Event, WorkerLeaked, WorkerReady, WorkerRecycled, WorkerStarted
from stepherd.core.events import WorkerFailed as WorkerHasFailed
from stepherd.core.waiting import TICK_S
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.restarts import UNLIMITED, RestartPolicy
from stepherd.manager.subprocess_env_manager import EnvSeeds


@dataclass(slots=True)
class Expectation:
    """What is due from one env."""

    free: bool = True
    """As the caller sees it: its last answer was taken, nothing was sent since."""
    action: int | None = None
    """The action whose answer is due."""
    resets: bool = False
    """Whether the answer to a reset that failed half-way may come."""
    lost: bool = False
    """Whether a row marked lost is due."""
    between: bool = False
    """Whether the last row ended an episode, so that it may be held because its worker is to be recycled."""
    generation: int = 0
    """Of the last row."""


@dataclass(slots=True)
class Budget:
    """The restarts of one worker, booked once more."""

    policy: RestartPolicy
    booked: list[float] = field(default_factory=list)

    def book(self, now: float, restart_in_s: float | None) -> bool:
        """Book a failure, and what became of it: seconds until the restart, None for never. Return whether it may."""
        possible = {self._decide(now + SLIPS_S), self._decide(now - SLIPS_S)}  # the period may end just now
        if restart_in_s is None:
            return None in possible
        self.booked.append(now)
        return any(due_s is not None and abs(restart_in_s - due_s) < SLIPS_S for due_s in possible)

    def _decide(self, now: float) -> float | None:
        policy = self.policy
        n_recent = sum(now - at < policy.restarts_rate_limit_period_s for at in self.booked)
        if policy.max_lifetime_restarts != UNLIMITED and len(self.booked) >= policy.max_lifetime_restarts:
            return None
        if policy.restarts_rate_limit_n != UNLIMITED and n_recent >= policy.restarts_rate_limit_n:
            return None
        return min(policy.backoff_s * 2.0**n_recent, policy.backoff_max_s)


class Book:
    """The expectations of one pool. `on_event` is the pool's hook."""

    def __init__(
        self,
        world: World,
        backend: FakeBackend,
        truth: Truth,
        policies: tuple[RestartPolicy, RecyclePolicy],
        shape: tuple[int, int],
    ) -> None:
        n_workers, self.envs_per_worker = shape
        self.envs = [Expectation() for _ in range(n_workers * self.envs_per_worker)]
        self.sent: dict[int, int] = {}
        """The env of every action that was accepted."""
        self.delivered: set[int] = set()
        self.was_reset = self.is_resetting = self.draining = False
        self.broken: WorkerError | None = None
        """The error that ended the pool's good days."""
        self.n_failures = 0
        self.failed_links: set[FakeLink] = set()
        self.failed_workers: set[int] = set()
        self.leaked: set[int] = set()
        """The pids that were said to have been left behind."""
        self._world, self._backend, self._truth = world, backend, truth
        self.recycled_links: set[FakeLink] = set()
        self._recycle = policies[1]
        self._budgets = [Budget(policies[0]) for _ in range(n_workers)]
        self._ready: set[int] = set()
        self._starts: dict[int, float] = {}
        self._due_error: tuple[type[WorkerError], int] | None = None

    def on_event(self, event: Event) -> None:
        """Take note of an event, and check it against what is true."""
        self._world.note("event", "{}", event)
        match event:
            case WorkerStarted():
                self._note_start(event)
            case WorkerReady():
                self._ready.add(event.worker_id)
                self._truth.is_spec_known = True
            case WorkerHasFailed():
                self._note_failure(event)
            case WorkerRecycled():
                self._note_recycling(event)
            case WorkerLeaked():
                self.leaked.add(event.pid)

    def check_error(self, error: WorkerError | None) -> None:
        """Check that a call has raised what it had to, and nothing else."""
        check = self._world.check
        if self._due_error is not None:
            kind, worker_id = self._due_error
            self._due_error = None
            check(error is not None, "{} of worker {} was due and not raised", kind.__name__, worker_id)
            check(type(error) is kind and error.worker_id == worker_id, "{!r} instead of {}", error, kind.__name__)
            self.broken = error
        else:
            check(error is None or error is self.broken, "raises without a reason: {!r}", error)

    def take_row(self, env_id: int, lost: bool, answer: Answer) -> None:
        """Check a row that a `recv` or a `drain` has returned: it is what is due from that env."""
        env, truth = self.envs[env_id], self._truth
        first = truth.first.get(env_id)
        if lost:
            self._world.check(env.lost and answer == first, "env {} is lost without a reason: {}", env_id, answer)
            self._world.check(answer.generation > env.generation, "env {} is lost, but its process goes on", env_id)
            self._world.check(truth.seeds[env_id, answer.seed] == 1, "env {} replays its past", env_id)
        elif env.action is not None and answer == truth.answers.get(env.action):
            goes_on = answer.generation == env.generation and not env.lost
            self._world.check(goes_on, "a transition of env {} spans a restart", env_id)
            self.delivered.add(env.action)
        else:
            due = f"action {env.action}" if env.action is not None else "lost" if env.lost else "nothing"
            self._world.check(env.resets and answer == first, "env {} answers {}; due: {}", env_id, answer, due)
        env.action, env.resets, env.lost, env.free = None, False, False, True
        env.generation = answer.generation
        env.between = not self._recycle.is_off and (answer.terminated or answer.interrupted)

    def take_first_row(self, env_id: int, lost: bool, answer: Answer, seeds: EnvSeeds, *, seeded: bool) -> None:
        """Check a row that a `reset` has returned."""
        env = self.envs[env_id]
        self._world.check(not lost, "env {} is lost after a reset", env_id)
        self._world.check(answer == self._truth.first.get(env_id), "env {} answers {} to a reset", env_id, answer)
        allowed = {seeds.of(env_id, 0) if seeded else None}
        if answer.generation > env.generation:
            allowed.add(seeds.of(env_id, answer.generation))
        self._world.check(answer.seed in allowed, "env {} was seeded with {}, not {}", env_id, answer.seed, allowed)
        self.envs[env_id] = Expectation(generation=answer.generation)

    def in_flight(self) -> set[int]:
        """Return the envs that certainly owe the answer to an action."""
        return {
            env_id
            for env_id, env in enumerate(self.envs)
            if env.action is not None and not env.resets and not (env.between and env.action not in self._truth.begun)
        }

    def lying_there(self) -> set[int]:
        """Return the envs whose answer to what was sent is there, of workers with which nothing is wrong."""
        return {
            env_id
            for env_id in self.in_flight()
            if self.envs[env_id].action in self._truth.announced
            and self.link_of(self.worker_of(env_id)).process.is_fine
        }

    def worker_of(self, env_id: int) -> int:
        """Return the worker of an env."""
        return env_id // self.envs_per_worker

    def link_of(self, worker_id: int) -> FakeLink:
        """Return the last process of a worker."""
        return self._backend.last_of[worker_id]

    def _note_start(self, event: WorkerStarted) -> None:
        worker_id, check = event.worker_id, self._world.check
        links = [link for link in self._backend.links if link.worker_id == worker_id]
        check(len(links) == event.generation + 1 and links[-1].pid == event.pid, "no such start: {}", event)
        check(all(link.is_let_go for link in links[:-1]), "worker {} has two processes", worker_id)
        check(not self.draining, "worker {} is replaced though the run is over", worker_id)
        if event.generation:
            due = self._starts.pop(worker_id)
            call = self._world.call
            assert call is not None
            latest = max(due, call.began) + TICK_S + 0.01
            check(due - SLIPS_S <= self._world.now <= latest, "{} starts at the wrong time: {:.3f}", event, due)

    def _note_failure(self, event: WorkerHasFailed) -> None:
        worker_id, check = event.worker_id, self._world.check
        link = self.link_of(worker_id)
        self.n_failures += 1
        self.failed_workers.add(worker_id)
        if self._backend.refused == worker_id:
            self._backend.refused = None
            check("Resource temporarily unavailable" in event.text, "{} hides why", event)
        else:
            check((link.pid, event.generation) == (event.pid, link.process.generation), "no such process: {}", event)
            check(link not in self.failed_links, "{} fails twice", link.process.name)
            check(f"(pid {link.pid}" in event.text, "{} does not name its process", event)
            self.failed_links.add(link)
            self._check_cause(event.cause, event.text, link)
            self._write_off(worker_id)
        self._note_decision(worker_id, event.restart_in_s)

    def _note_recycling(self, event: WorkerRecycled) -> None:
        link, check = self.link_of(event.worker_id), self._world.check
        check(link.pid == event.pid and link not in self.failed_links, "no such process: {}", event)
        check(link.is_leaving, "{} was not asked to leave", link.process.name)
        limit, n_ended = self._recycle.after_episodes, link.process.n_episodes
        check(limit is not None and n_ended >= limit, "{} is recycled after {} episodes", link.process.name, n_ended)
        self.recycled_links.add(link)
        self._starts[event.worker_id] = self._world.now
        first = event.worker_id * self.envs_per_worker
        for env_id in range(first, first + self.envs_per_worker):
            env = self.envs[env_id]
            is_over = env.action not in self._truth.begun or self.is_resetting
            check(is_over, "env {} is recycled in the middle of a step", env_id)
            env.action, env.resets, env.lost = None, False, True

    def _note_decision(self, worker_id: int, restart_in_s: float | None) -> None:
        if self.draining:
            may = restart_in_s is None
        elif worker_id not in self._ready:
            may = restart_in_s is None
            self._due_error = (EnvNeverReady, worker_id)
        else:
            may = self._budgets[worker_id].book(self._world.now, restart_in_s)
            if restart_in_s is None:
                self._due_error = (WorkerFailed, worker_id)
            else:
                self._starts[worker_id] = self._world.now + restart_in_s
        self._world.check(may, "restarts worker {} in {} s: that is not its budget", worker_id, restart_in_s)

    def _check_cause(self, cause: str, text: str, link: FakeLink) -> None:
        process, now = link.process, self._world.now
        causes = set(process.troubles)
        if process.has_overrun or now >= process.overdue_at - 1e-6:
            causes.add("late")
        self._world.check(cause in causes, "{} failed because {}, not {}", process.name, causes, cause)
        if process.raised_first:
            self._world.check(
                cause == "raised" and str(process.raised) in text,
                "what {} raised is not in the report: {}",
                process.name,
                text,
            )

    def _write_off(self, worker_id: int) -> None:
        """Forget what was due from the envs of a worker that failed; when it is replaced, they come back lost."""
        first = worker_id * self.envs_per_worker
        for env in self.envs[first : first + self.envs_per_worker]:
            if self.draining:
                if env.action not in self._truth.published:
                    env.action = None
            else:
                env.action, env.resets, env.lost = None, False, True
