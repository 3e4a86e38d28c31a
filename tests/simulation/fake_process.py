"""A pretended worker process: follows the protocol of `worker/serve.py` step by step until its fate befalls it.

Its life is a generator that yields how long the next thing takes, or None while it waits for a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

from simulation.fake_env import ODD, FakeEnv, Truth
from simulation.weather import EXITS, Fate, Weather
from simulation.world import NEVER, World
from stepherd.process.exits import Exit
from stepherd.spec.specs import EnvSpec
from stepherd.transport.bell import Kind, Message
from stepherd.transport.block import POISON
from stepherd.transport.control import _DONE, LINE_WORDS, Command, Control, Phase, control_bytes
from stepherd.transport.layout import Layout
from stepherd.transport.notes import Closing, Failure, Job, Ready, read_note, write_note
from stepherd.worker.serve import RING_AT_LEAST_NS

Life = Generator[float | None, None, Exit]
Part = Generator[float | None, None, None]
P_GUARDED = 0.9  # that nothing befalls a first process while it starts: its failure ends the whole story
P_BAD_CLOSE = 0.1
RING_AT_LEAST_S = RING_AT_LEAST_NS / 1e9


class Ends(Exception):
    """The process ends here."""


class FakeProcess:
    """One process. Whoever changes what a manager could notice calls `on_change`."""

    def __init__(
        self, world: World, weather: Weather, truth: Truth, spec: EnvSpec, name: str, generation: int, pid: int
    ) -> None:
        self.name, self.pid = name, pid
        self.nature = weather.nature()
        self.on_change: Callable[[], None] = lambda: None
        self.said: deque[Message] = deque()
        self.bell_is_open = True
        self.exit: Exit | None = None
        self.memory = bytearray()
        self.troubles: dict[str, float] = {}
        """What has gone wrong, as an event would call it, and since when a manager can notice it."""
        self.raised: str | None = None
        """What it said it raised, if it said so."""
        self.problem: str | None = None
        """What it said went wrong in its close."""
        self.has_closed = False
        """Whether it closed its envs and said so."""
        self.has_overrun = False
        """Whether it has ever exceeded a limit."""
        self._world, self._weather, self._truth = world, weather, truth
        self._spec, self.generation = spec, generation
        self._heard: deque[Message] = deque()
        self._is_heard = self._runs = True
        self._waits = False
        self._limit_s, self._since = weather.timeouts.spawn_s, world.now
        self._n_envs = 0
        self._is_idle = False
        self._hangs_softly = True
        self._asked_at: float | None = None
        self._unannounced: dict[int, int] = {}
        self._control: Control | None = None
        self._life = self._live()
        if self.nature.accident is not None:
            seconds, fate = self.nature.accident
            world.later(seconds, lambda: self._meet_with_accident(fate))
        world.later(weather.lag(), self._go_on)

    # What the manager does to it.

    def hear(self, message: Message) -> None:
        """Let it have a message."""
        self._heard.append(message)
        self._wake()

    def note_request(self) -> None:
        """Note that its block asks something of it from now on."""
        if self._asked_at is None:
            self._asked_at = self._world.now

    def lose_manager(self) -> None:
        """Let it notice that its manager has hung up."""
        self._is_heard = False
        self._wake()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._world.later(self.nature.sigterm_s, self._end_by_sigterm)

    def kill(self) -> None:
        """Send SIGKILL: it does nothing more from now on, though it may take a while to be gone."""
        self._runs = False
        self._world.later(self.nature.kill_s, lambda: self._end(Exit(None, 9)))

    # What an observer with eyes everywhere sees of it.

    @property
    def overdue_at(self) -> float:
        """When it exceeds, or has exceeded, the limit it is under; NEVER while nothing is asked of it."""
        control = self._control
        if control is None:
            return self._since + self._limit_s
        if self._asked_at is None:
            return NEVER
        limit_s = self._limit_s
        if self._is_idle:
            due = [i for i in range(self._n_envs) if control.request(i) != control.done(i)]
            limits = self._weather.timeouts
            limit_s = limits.reset_s if any(control.command(i)[0] is Command.RESET for i in due) else limits.step_s
        return max(self._since, self._asked_at) + limit_s

    @property
    def is_fine(self) -> bool:
        """Whether nothing has gone wrong with it so far."""
        return not self.troubles and not self.has_overrun

    @property
    def raised_first(self) -> bool:
        """Whether what it raised is the first that went wrong with it, and could be said."""
        first = min(self.troubles, key=self.troubles.__getitem__, default="")
        return self.raised is not None and first == "raised" and not self.has_overrun

    @property
    def n_episodes(self) -> int:
        """How many episodes its envs have ended."""
        return sum(self._control.episodes(i) for i in range(self._n_envs)) if self._control is not None else 0

    # Its life.

    def _live(self) -> Life:
        message = yield from self._next_message()
        if message.kind is not Kind.JOB:
            return Exit(0)
        env_ids = read_note(message.note, Job).env_ids
        self._n_envs = len(env_ids)
        for _ in env_ids:
            is_guarded = not self.generation and self._weather.rng.random() < P_GUARDED
            yield from self._work(self._weather.timeouts.spawn_s / len(env_ids), is_guarded=is_guarded)
        is_odd = self.nature.is_odd and self._truth.is_spec_known
        spec = ODD if is_odd else self._spec
        layout = Layout.of(spec)
        start = control_bytes(self._n_envs)
        self.memory = bytearray(layout.block_bytes(self._n_envs))
        self.memory[start:] = bytes([POISON]) * (len(self.memory) - start)
        buffer = memoryview(self.memory)
        self._leave()
        self._control = control = Control(buffer, self._n_envs)
        if is_odd:
            self._note_trouble("protocol")
        self._say(Kind.READY, write_note(Ready(spec)), self.pid)
        self._become_idle(in_words=False)
        yield self._weather.lag()
        envs = (
            [
                FakeEnv(env_id, self.generation, self._truth, arrays, self._weather.rng, self._weather.p_end)
                for env_id, arrays in zip(env_ids, layout.per_env(buffer, self._n_envs), strict=True)
            ]
            if not is_odd
            else []
        )
        self._become_idle()
        while (yield from self._next_message()).kind is Kind.RING:
            yield from self._serve(control, envs)
        yield from self._close(control)
        return Exit(0)

    def _serve(self, control: Control, envs: list[FakeEnv]) -> Part:
        rung_at = self._world.now
        for index, env in enumerate(envs):
            if control.request(index) == control.done(index):
                continue
            yield from self._answer(control, index, env)
            if self._world.now - rung_at > RING_AT_LEAST_S:
                self._announce()
                rung_at = self._world.now
                yield from self._suffer()
        self._become_idle()
        if self._unannounced:
            yield from self._suffer()
            self._announce()
            yield from self._suffer()

    def _answer(self, control: Control, index: int, env: FakeEnv) -> Part:
        request, (command, seed) = control.request(index), control.command(index)
        limits = self._weather.timeouts
        action = 0
        if command is Command.RESET:
            self._enter(control, Phase.RESETTING, index, limits.reset_s)
            yield from self._work(limits.reset_s)
            env.reset(seed)
        else:
            self._enter(control, Phase.STEPPING, index, limits.step_s)
            control.begin_step(index)
            action = env.begin_step()
            yield from self._work(limits.step_s)
            ended = env.step(action)
            control.finish_step(index, ended)
            if ended:
                self._enter(control, Phase.RESETTING, index, limits.reset_s)
                yield from self._work(limits.reset_s)
                env.next_episode(action)
        yield from self._suffer(index)
        self._leave()
        control.answer(index, request)
        if all(control.request(i) == control.done(i) for i in range(self._n_envs)):
            self._asked_at = None
        self._truth.published.add(action)
        self._unannounced[index] = action
        self._world.note(self.name, "has answered for its env {} ({} {})", index, command.name, action or "")
        yield from self._suffer()

    def _close(self, control: Control) -> Part:
        for index in range(self._n_envs):
            control.enter(Phase.CLOSING, index, self._now_ns())
            yield from self._work(self._weather.timeouts.grace_s)
        problem = None
        if self._weather.fates and self._weather.rng.random() < P_BAD_CLOSE:
            problem = f"close() raised in {self.pid}"
        self._say(Kind.CLOSED, write_note(Closing((problem,) if problem else ())))
        self.problem, self.has_closed = None if self.troubles else problem, True

    def _work(self, limit_s: float, *, is_guarded: bool = False) -> Part:
        seconds = min(self._weather.duration(limit_s), limit_s * 0.9 if is_guarded else NEVER)
        before = self._weather.rng.random()
        yield before * seconds
        if not is_guarded:
            yield from self._suffer()
        yield (1 - before) * seconds

    def _suffer(self, index: int | None = None) -> Part:
        fate = self._weather.fate()
        if fate is None:
            return
        if fate is Fate.ANSWERS_STALE and index is not None and self._control is not None:
            words = memoryview(self.memory)[: control_bytes(self._n_envs)].cast("Q")
            request = self._control.request(index)
            words[(1 + index) * LINE_WORDS + _DONE] = max(0, request + self._weather.rng.choice((-1, 1, 1000)))
            self._say(Kind.RING)
            self._meet_with(Fate.HANGS)
        else:
            self._meet_with(fate)
        if not self._runs:
            yield NEVER

    def _next_message(self) -> Generator[float | None, None, Message]:
        while not self._heard:
            if not self._is_heard:
                return Message(Kind.GONE)
            yield None
        return self._heard.popleft()

    def _go_on(self) -> None:
        self._waits = False
        if not self._runs:
            return
        try:
            pause = next(self._life)
        except StopIteration as end:
            self._stop(end.value)
        except Ends:
            self._stop(Exit(1))
        else:
            if pause is None:
                self._waits = True
            else:
                self._world.later(pause, self._go_on)

    def _wake(self) -> None:
        if self._waits:
            self._waits = False
            self._world.later(self._weather.lag(), self._go_on)

    # What it does and what befalls it.

    def _meet_with(self, fate: Fate) -> None:
        """Let its fate befall it, whatever it is doing."""
        if not self._runs:
            return
        self._world.note(self.name, "{}", fate.value)
        lag = self._weather.lag()
        match fate:
            case Fate.DIES:
                self._stop(self._weather.rng.choice(EXITS))
            case Fate.DIES_SILENTLY:
                self._runs = False
                self._world.later(lag, lambda: self._end(self._weather.rng.choice(EXITS), silently=True))
            case Fate.LINGERS:
                self._stop(self._weather.rng.choice(EXITS), self._weather.rng.random() * 1.5)
            case Fate.RAISES:
                self._raise()
            case Fate.FREEZES | Fate.HANGS | Fate.ANSWERS_STALE:
                self._hang(answers_sigterm=fate is not Fate.FREEZES)
            case Fate.HANGS_UP:
                self._hang(answers_sigterm=True)
                self._close_bell()
            case Fate.BABBLES:
                kinds = (Kind.JOB, Kind.CLOSE, Kind.CLOSED, Kind.READY) if self._control else (Kind.CLOSE, Kind.RING)
                self._misspeak(Message(self._weather.rng.choice(kinds)), "protocol")
            case Fate.SPEAKS_GIBBERISH:
                kind = Kind.FAILED if self._control else self._weather.rng.choice((Kind.FAILED, Kind.READY))
                note = self._weather.rng.choice((b"", b"gibberish", write_note(Closing())))
                self._misspeak(Message(kind, note), "protocol")
            case Fate.WRITES_GARBAGE:
                self._misspeak(Message(Kind.GONE), "died")
            case Fate.RINGS_FOR_NOTHING:
                for _ in range(self._weather.rng.randint(1, 5) if self._control else 0):
                    self._utter(Message(Kind.RING))

    def _meet_with_accident(self, fate: Fate) -> None:
        if self.generation or self._control is not None:  # who cannot even start the first time ends the whole story
            self._meet_with(fate)

    def _raise(self) -> None:
        error = f"ValueError: raised in {self.pid}"
        self._note_trouble("raised")
        if self._utter(Message(Kind.FAILED, write_note(Failure(error, "Traceback: …")))):
            self.raised = error
        self._stop(Exit(1))

    def _misspeak(self, message: Message, trouble: str) -> None:
        self._note_trouble(trouble)
        self._utter(message)

    def _hang(self, *, answers_sigterm: bool) -> None:
        self._runs = False
        self._hangs_softly = answers_sigterm

    def _enter(self, control: Control, phase: Phase, index: int, limit_s: float) -> None:
        self._leave()
        control.enter(phase, index, self._now_ns())
        self._is_idle, self._since, self._limit_s = False, self._world.now, limit_s

    def _become_idle(self, *, in_words: bool = True) -> None:
        assert self._control is not None
        self._leave()
        if in_words:
            self._control.enter(Phase.IDLE, 0, self._now_ns())
        self._is_idle, self._since = True, self._world.now

    def _leave(self) -> None:
        if self._world.now >= self.overdue_at:
            self.has_overrun = True

    def _announce(self) -> None:
        self._leave()
        self._say(Kind.RING)
        self._truth.announced.update(self._unannounced.values())
        self._unannounced.clear()

    def _say(self, kind: Kind, note: bytes = b"", block_fd: int = -1) -> None:
        if not self._utter(Message(kind, note, block_fd)):
            raise Ends  # nobody is left to tell

    def _utter(self, message: Message) -> bool:
        if not self._is_heard or not self.bell_is_open:
            return False
        self.said.append(message)
        self.on_change()
        return True

    def _stop(self, exit_status: Exit, lingers_s: float = 0.0) -> None:
        self._runs = False
        self._close_bell()
        self._world.later(self.nature.exit_s + lingers_s, lambda: self._end(exit_status))

    def _close_bell(self) -> None:
        if self.bell_is_open:
            self.bell_is_open = False
            self._note_trouble("died")
            self.on_change()

    def _end_by_sigterm(self) -> None:
        if self._runs or self._hangs_softly:
            self._end(Exit(None, 15))

    def _end(self, exit_status: Exit, *, silently: bool = False) -> None:
        if self.exit is None:
            self._world.note(self.name, "ends: {}", exit_status)
            self._runs = False
            if not silently:
                self.bell_is_open = False
            self._note_trouble("died")
            self.exit = exit_status
            self.on_change()

    def _note_trouble(self, cause: str) -> None:
        self.troubles.setdefault(cause, self._world.now)

    def _now_ns(self) -> int:
        return round(self._world.now * 1e9)
