"""Pretended worker processes on a clock of their own: the whole of a manager runs on them, in no time.

A *plan* says what each worker does at each *moment* of its life: how long it takes and what becomes of it. Workers
follow the protocol as real ones do, one thing at a time, and step envs whose numbers are exact: an env observes
`[seed, episode, step, action]` and earns `100 * episode + step`, as `CountingEnv` does.

Nothing here waits: time jumps to the next thing that happens. Whoever asks without letting time pass is caught.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from stepherd.core.deadline import Clock, Deadline
from stepherd.core.waiting import TICK_S
from stepherd.process.exits import Exit
from stepherd.spec.batch import EnvActions, EnvSteps
from stepherd.spec.specs import ActionSpec, BehaviorSpec, EnvSpec, ObservationSpec
from stepherd.transport.bell import BellBroken, Kind, Message
from stepherd.transport.control import Command, Control, Phase, control_bytes
from stepherd.transport.layout import Layout
from stepherd.transport.notes import Closing, Failure, Job, Ready, read_note, write_note
from unit.core.fake_clock import FakeClock

SPEC = EnvSpec((BehaviorSpec("A", (ObservationSpec("obs", (4,), "float64"),), ActionSpec(branches=(1000,))),))
LAG_S = 0.0001  # between two things that follow from one another, such as a closed bell and a known exit
SPINS_MAX = 5  # waits in a row that may return though nothing has happened and no time has passed
NEVER = float("inf")
FAILED, KILLED = Exit(1), Exit(None, 9)


class Outcome(enum.Enum):
    """What becomes of a worker at a moment."""

    GOES_ON = "goes on"
    RAISES = "raises"
    ENDS = "ends"
    HANGS = "hangs"
    HANGS_UP = "closes its bell and hangs"
    BABBLES = "says what it may not say"


@dataclass(frozen=True, slots=True)
class Moment:
    """What a worker is about to do."""

    worker_id: int
    generation: int
    phase: Phase
    env: int
    """The worker's own count, from 0."""
    n: int
    """How often this process has been here with this env, from 0."""


@dataclass(frozen=True, slots=True)
class Act:
    """What it does then."""

    takes_s: float = 0.001
    then: Outcome = Outcome.GOES_ON
    exit: Exit = FAILED


@dataclass(frozen=True, slots=True)
class Nature:
    """What one process is like, whatever it does."""

    ends_s: float = 0.0
    """From its last words to its end."""
    sigterm_s: float = LAG_S
    """From a SIGTERM to its end; `NEVER` for one that ignores it."""
    kill_s: float = LAG_S
    """From a kill to its end; `NEVER` for one that sleeps in the kernel."""
    spec: EnvSpec = SPEC


Plan = Callable[[Moment], Act]
Life = Generator[float | None, None, Exit | None]
"""What a worker does: yields how long the next thing takes, or `None` to wait for a message; returns how it ends."""


def all_goes_well(_: Moment) -> Act:
    """The plan of a healthy pool."""
    return Act()


class FakeBackend:
    """Keeps the `Backend` protocol. `links` has every process ever started, in order."""

    def __init__(
        self,
        plan: Plan = all_goes_well,
        nature_of: Callable[[int, int], Nature] = lambda worker_id, generation: Nature(),
        *,
        episode_length: int = 10,
    ) -> None:
        self._clock = FakeClock()
        self.plan, self.nature_of, self.episode_length = plan, nature_of, episode_length
        self.links: list[FakeLink] = []
        self.refusals: deque[OSError | None] = deque()
        """What the next attempts to start a process raise; `None` for one that goes well."""
        self.n_waits = 0
        self.closed = False
        self.n_happened = 0
        """Counts what happens in the world, and what the manager does about it."""
        self._spins, self._last_seen = 0, (0.0, 0)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    @property
    def clock(self) -> Clock:
        """See `Backend`."""
        return self._clock

    def spawn(self, worker_id: int, generation: int) -> FakeLink:
        """See `Backend`."""
        if self.refusals and (refusal := self.refusals.popleft()) is not None:
            raise refusal
        link = FakeLink(self, worker_id, generation, pid=100 + len(self.links))
        self.links.append(link)
        return link

    def wait(self, deadline: Deadline) -> Sequence[FakeLink]:
        """See `Backend`. Runs what happens until then."""
        assert not self.closed
        self.n_waits += 1
        until = min(deadline.at, self._clock.now + TICK_S)
        while not (ready := [link for link in self.links if link.wakes]) and self._due and self._due[0][0] <= until:
            self._run_next()
        if not ready:
            self._clock.now = max(self._clock.now, until)
        happened = (self._clock.now, self.n_happened)
        self._spins = self._spins + 1 if happened == self._last_seen else 0
        self._last_seen = happened
        assert self._spins < SPINS_MAX, "the manager waits again and again while time stands still"
        return ready

    def sweep(self, worker_id: int | None = None) -> list[tuple[int, str]]:
        """See `Backend`."""
        return []

    def close(self) -> None:
        """See `Backend`."""
        assert not any(link.wakes for link in self.links), "a link still wakes the wait"
        self.closed = True

    def let_pass(self, seconds: float) -> None:
        """Let time pass while the manager's owner does something else."""
        self.n_happened += 1
        until = self._clock.now + seconds
        while self._due and self._due[0][0] <= until:
            self._run_next()
        self._clock.now = until

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` so many seconds from now."""
        if seconds != NEVER:
            heapq.heappush(self._due, (self._clock.now + seconds, next(self._order), action))

    def of(self, worker_id: int) -> FakeLink:
        """Return the last process of a worker."""
        return [link for link in self.links if link.worker_id == worker_id][-1]

    def _run_next(self) -> None:
        self.n_happened += 1
        at, _, action = heapq.heappop(self._due)
        self._clock.now = max(self._clock.now, at)
        action()


class FakeLink:
    """Keeps the `Link` protocol for one pretended process, and is that process."""

    def __init__(self, backend: FakeBackend, worker_id: int, generation: int, pid: int) -> None:
        self.backend, self.worker_id, self.generation = backend, worker_id, generation
        self._pid = pid
        self.nature = backend.nature_of(worker_id, generation)
        self.exit: Exit | None = None
        self.reaped = self.abandoned = False
        self.steps_begun = 0
        """Counted by the envs themselves, not on the control lines."""
        self.stacks_asked = 0
        self._heard: deque[Message] = deque()
        self._said: deque[Message] = deque()
        self._manager_listens = self._worker_listens = True
        self._exit_wakes = True
        self._is_frozen = False
        self._memory = bytearray()
        self._mapped: memoryview | None = None
        self._waits_for_message = False
        self._life = self._live()
        self._go_on()

    # The manager's side.

    @property
    def pid(self) -> int:
        """See `Link`."""
        return self._pid

    @property
    def wakes(self) -> bool:
        """Whether a wait returns because of this link."""
        bell = self._manager_listens and (bool(self._said) or not self._worker_listens)
        return bell or (self._exit_wakes and self.exit is not None)

    def ring(self, kind: Kind, note: bytes = b"") -> None:
        """See `Link`."""
        if not self._manager_listens or not self._worker_listens:
            raise BellBroken("nobody is there")
        self._heard.append(Message(kind, note))
        self._wake()

    def hear(self) -> Message | None:
        """See `Link`."""
        if not self._manager_listens:
            return None
        if self._said:
            self.backend.n_happened += 1
            return self._said.popleft()
        return None if self._worker_listens else Message(Kind.GONE)

    def map_block(self, fd: int, size: int) -> memoryview:
        """See `Link`."""
        assert fd == self.pid, "the block of another process"
        assert size <= len(self._memory)
        self._mapped = memoryview(self._memory)
        return self._mapped

    def hang_up(self) -> None:
        """See `Link`."""
        self.backend.n_happened += self._manager_listens
        self._manager_listens = False
        self._wake()
        if self.exit is not None:
            self._exit_wakes = False

    def drop(self) -> None:
        """See `Link`."""
        if self._mapped is not None:
            self._mapped.release()
            self._mapped = None

    def ask_for_stack(self) -> None:
        """See `Link`."""
        self.stacks_asked += 1

    def wake(self) -> None:
        """See `Link`."""

    def trim_log(self) -> None:
        """See `Link`."""

    def log_tail(self) -> str:
        """See `Link`."""
        return f"It printed: I am process {self.pid}"

    def look(self) -> Exit | None:
        """See `Link`."""
        return self.exit

    def terminate(self) -> None:
        """See `Link`."""
        if not self.reaped:
            self.backend.later(self.nature.sigterm_s, lambda: self._end(Exit(None, 15)))

    def kill(self) -> None:
        """See `Link`."""
        if not self.reaped:
            self._is_frozen = True  # it may take its time to go, but does nothing any more
            self.backend.later(self.nature.kill_s, lambda: self._end(Exit(None, 9)))

    def reap(self) -> bool:
        """See `Link`."""
        if self.exit is None:
            return False
        self.reaped = True
        self._let_go()
        return True

    def abandon(self) -> None:
        """See `Link`."""
        self.abandoned = True
        self._let_go()

    def _let_go(self) -> None:
        self._manager_listens = self._exit_wakes = False

    # The worker's side.

    def die(self, exit_status: Exit = KILLED) -> None:
        """End the process from outside, now."""
        self._end(exit_status)

    def _go_on(self) -> None:
        if self.exit is not None or self._is_frozen:
            return
        try:
            pause = next(self._life)
        except StopIteration as stop:
            self._close_bell()
            ending: Exit = stop.value
            self.backend.later(LAG_S + self.nature.ends_s, lambda: self._end(ending))
            return
        if pause is not None:
            self.backend.later(pause, self._go_on)
        else:
            self._waits_for_message = True

    def _end(self, exit_status: Exit) -> None:
        if self.exit is None:
            self._close_bell()
            self.exit = exit_status

    def _close_bell(self) -> None:
        self._worker_listens = False

    def _say(self, kind: Kind, note: bytes = b"", block_fd: int = -1) -> None:
        self._said.append(Message(kind, note, block_fd))

    def _hear(self) -> Generator[float | None, None, Message]:
        while not self._heard:
            if not self._manager_listens:
                return Message(Kind.GONE)
            yield None
        return self._heard.popleft()

    def _wake(self) -> None:
        if self._waits_for_message:
            self._waits_for_message = False
            self.backend.later(LAG_S, self._go_on)

    def _live(self) -> Life:
        message = yield from self._hear()
        if message.kind is not Kind.JOB:
            return Exit(0)
        n_envs = len(read_note(message.note, Job).env_ids)
        n_calls = [dict.fromkeys(Phase, 0) for _ in range(n_envs)]

        def meet(phase: Phase, env: int) -> Act:
            n_calls[env][phase] += 1
            return self.backend.plan(Moment(self.worker_id, self.generation, phase, env, n_calls[env][phase] - 1))

        for index in range(n_envs):
            if (ending := (yield from self._undergo(meet(Phase.SPAWNING, index)))) is not None:
                return ending
        layout = Layout.of(self.nature.spec)
        self._memory = bytearray(layout.block_bytes(n_envs))
        self._memory[control_bytes(n_envs) :] = b"\xff" * (len(self._memory) - control_bytes(n_envs))
        buffer = memoryview(self._memory)
        control = Control(buffer, n_envs)
        self._say(Kind.READY, write_note(Ready(self.nature.spec)), self.pid)
        yield LAG_S
        envs = [_CountingEnv(self.backend.episode_length, *arrays) for arrays in layout.per_env(buffer, n_envs)]
        control.enter(Phase.IDLE, 0, self._now_ns())
        while True:
            if (yield from self._hear()).kind is not Kind.RING:
                break
            for index, env in enumerate(envs):
                if control.request(index) != control.done(index):
                    ending = yield from self._answer(control, index, env, meet)
                    if ending is not None:
                        return ending
            control.enter(Phase.IDLE, 0, self._now_ns())
        problems = []
        for index in range(n_envs):
            control.enter(Phase.CLOSING, index, self._now_ns())
            act = meet(Phase.CLOSING, index)
            if act.then is Outcome.RAISES:
                problems.append("close() raised ValueError: planned")
            elif (ending := (yield from self._undergo(act))) is not None:
                return ending
        self._say(Kind.CLOSED, write_note(Closing(tuple(problems))))
        return Exit(0)

    def _answer(self, control: Control, index: int, env: _CountingEnv, meet: Callable[[Phase, int], Act]) -> Life:
        command, seed = control.command(index)
        phase = Phase.RESETTING if command is Command.RESET else Phase.STEPPING
        control.enter(phase, index, self._now_ns())
        if command is Command.STEP:
            control.begin_step(index)
            self.steps_begun += 1
        if (ending := (yield from self._undergo(meet(phase, index)))) is not None:
            return ending
        if command is Command.RESET:
            env.reset(seed)
        else:
            ended = env.step()
            control.finish_step(index, ended)
            if ended:
                control.enter(Phase.RESETTING, index, self._now_ns())
                if (ending := (yield from self._undergo(meet(Phase.RESETTING, index)))) is not None:
                    return ending
                env.next_episode()
        control.answer(index, control.request(index))
        self._say(Kind.RING)
        return None

    def _undergo(self, act: Act) -> Life:
        yield act.takes_s
        if act.then is Outcome.RAISES:
            self._say(Kind.FAILED, write_note(Failure("ValueError: planned", "Traceback: planned")))
            return Exit(1)
        if act.then is Outcome.ENDS:
            return act.exit
        if act.then is Outcome.BABBLES:
            self._say(Kind.CLOSED, write_note(Closing()))
        if act.then is Outcome.HANGS_UP:
            self._close_bell()
        while act.then in (Outcome.HANGS, Outcome.HANGS_UP, Outcome.BABBLES):
            yield NEVER
        return None

    def _now_ns(self) -> int:
        return round(self.backend.clock() * 1e9)


class _CountingEnv:
    """The numbers of one env."""

    def __init__(self, length: int, steps: EnvSteps, actions: EnvActions) -> None:
        self._length, self._steps, self._actions = length, steps["A"], actions["A"]
        self._seed, self._episode, self._t = -1, 0, 0

    def reset(self, seed: int | None) -> None:
        self._seed = -1 if seed is None else seed
        self._begin_episode()
        self._steps.reward[0] = 0.0
        self._steps.deciding[0] = True
        self._steps.terminated[0] = self._steps.interrupted[0] = False

    def step(self) -> bool:
        self._t += 1
        ended = self._t >= self._length
        target = self._steps.final_obs if ended else self._steps.obs
        target[0][0] = [self._seed, self._episode, self._t, self._actions.discrete[0, 0]]
        self._steps.reward[0] = 100.0 * self._episode + self._t
        self._steps.terminated[0], self._steps.interrupted[0] = ended, False
        return ended

    def next_episode(self) -> None:
        self._seed = -1
        self._begin_episode()

    def _begin_episode(self) -> None:
        self._episode += 1
        self._t = 0
        self._steps.obs[0][0] = [self._seed, self._episode, 0, -1]
