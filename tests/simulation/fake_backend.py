"""The seam of a manager, kept by pretended processes; whoever waits or holds on to something wrongly is caught here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulation.fake_env import Truth
from simulation.fake_process import FakeProcess
from simulation.weather import Weather
from simulation.world import World
from stepherd.core.deadline import Clock, Deadline
from stepherd.core.waiting import TICK_S
from stepherd.manager.lateness import EXIT_KNOWN_S, STACK_S
from stepherd.process.exits import Exit
from stepherd.spec.specs import EnvSpec
from stepherd.transport.bell import BellBroken, Kind, Message

WAKES_MAX = 5  # in a row for the same reason, of which nothing is made: that is a busy loop
PROCESSES_MAX = 60  # then the weather clears up, or a crash in every start would go on for hours
P_SHUFFLED = 0.2
SLIPS_S = 0.005  # what may lie between asking for something and ringing

# How long after a trouble could be noticed a worker must be let go, while the manager is at work.
WITHIN_S = {
    "raised": TICK_S,
    "protocol": TICK_S,
    "died": EXIT_KNOWN_S + TICK_S,  # the bell closes first, how it ended is known later
    "late": STACK_S + TICK_S,
}


class FakeLink:
    """Keeps the `Link` protocol for one pretended process."""

    def __init__(self, backend: FakeBackend, process: FakeProcess, worker_id: int) -> None:
        self.process, self.worker_id = process, worker_id
        self.is_reaped = self.is_abandoned = self.is_killed = False
        self.n_wakes = 0
        """Waits in a row that it ended and of which nothing was made."""
        self._backend, self._world = backend, backend.world
        self._listens = self._watches_exit = True
        self._mapped: memoryview | None = None
        self._leaves_by: float | None = None
        self._is_given_up = False
        process.on_change = self._see_whether_it_wakes

    @property
    def pid(self) -> int:
        """See `Link`."""
        return self.process.pid

    @property
    def is_let_go(self) -> bool:
        """Whether the manager is done with the process, but for its corpse."""
        return self.is_reaped or self.is_abandoned or self.is_killed

    @property
    def is_free(self) -> bool:
        """Whether nothing is held any more: no bell, no block, no process."""
        return (self.is_reaped or self.is_abandoned) and not self._listens and self._mapped is None

    def ring(self, kind: Kind, note: bytes = b"") -> None:
        """See `Link`."""
        self._world.slip()
        if kind is Kind.RING:
            self.process.note_request()
        if kind is Kind.CLOSE:
            self._note_close()
        if not self._listens or not self.process.bell_is_open:
            raise BellBroken("nobody is there")
        if self.process.nature.is_deaf and self._world.rng.random() < 0.1:
            raise BellBroken("no buffer space available")
        self.process.hear(Message(kind, note))

    def hear(self) -> Message | None:
        """See `Link`."""
        self._world.slip()
        if not self._listens:
            return None
        self.n_wakes = 0
        if self.process.said:
            message = self.process.said.popleft()
            self._see_whether_it_wakes()
            return message
        if self.process.bell_is_open:
            return None
        self._is_given_up = True
        return Message(Kind.GONE)

    def map_block(self, fd: int, size: int) -> memoryview:
        """See `Link`."""
        self._world.check(fd == self.pid, "the block of {} is taken for that of {}", fd, self.pid)
        self._world.check(self._mapped is None, "a block is mapped twice")
        self._world.check(size == len(self.process.memory), "a block is mapped with a wrong size")
        self._mapped = memoryview(self.process.memory)
        return self._mapped

    def hang_up(self) -> None:
        """See `Link`."""
        self._world.slip()
        if self._listens:
            self._listens = False
            self.process.lose_manager()
        if self.process.exit is not None:
            self._watches_exit = False
        self._see_whether_it_wakes()

    def drop(self) -> None:
        """See `Link`."""
        if self._mapped is not None:
            self._mapped.release()
            self._mapped = None

    def wake(self) -> None:
        """See `Link`."""

    def trim_log(self) -> None:
        """See `Link`."""

    def log_tail(self) -> str:
        """See `Link`."""
        return f"It printed: I am process {self.pid}"

    def look(self) -> Exit | None:
        """See `Link`."""
        self._world.slip()
        return self.process.exit

    def terminate(self) -> None:
        """See `Link`."""
        self._world.slip()
        if not self.is_reaped:
            self._world.note("manager", "sends SIGTERM to {}", self.process.name)
            self.process.terminate()

    def kill(self) -> None:
        """See `Link`."""
        self._world.slip()
        self.is_killed = True
        if not self.is_reaped:
            self._world.note("manager", "kills {}", self.process.name)
            self.process.kill()

    def reap(self) -> bool:
        """See `Link`."""
        self._world.slip()
        if self.process.exit is None:
            return False
        self.is_reaped = True
        self._let_go()
        return True

    def abandon(self) -> None:
        """See `Link`."""
        self.kill()
        self.is_abandoned = True
        self._let_go()

    def ask_for_stack(self) -> None:
        """See `Link`."""
        process, now = self.process, self._world.now
        self._is_given_up = True
        self._world.note("manager", "finds {} late", process.name)
        is_late = process.has_overrun or now >= process.overdue_at - SLIPS_S
        self._world.check(
            is_late, "{} is taken for late, {:.3f} s before it is", process.name, process.overdue_at - now
        )

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to close though its pool goes on."""
        return self._leaves_by is not None

    def check_it_was_noticed(self, since: float) -> None:
        """Check that the process has been let go if its manager, at work `since` then, has had time to."""
        if self.is_let_go:
            return
        if self._leaves_by is not None:
            due = max(self._leaves_by, since) + TICK_S + 0.01
            self._world.check(self._world.now <= due, "nobody has noticed that {} does not leave", self.process.name)
            return
        troubles = {**self.process.troubles, "late": self.process.overdue_at}
        for trouble, at in troubles.items():
            due = max(at, since) + WITHIN_S[trouble] + 0.01
            self._world.check(self._world.now <= due, "nobody has noticed that {} is {}", self.process.name, trouble)

    def _note_close(self) -> None:
        call = self._world.call
        if call is not None and call.name in ("enter", "close"):
            self._backend.is_closing = True
        elif self._leaves_by is None:
            self._world.check(not self._is_given_up, "{} is to leave, though it has failed", self.process.name)
            self._leaves_by = self._world.now + self._backend.grace_s

    def _let_go(self) -> None:
        self.hang_up()
        self._watches_exit = False
        self._see_whether_it_wakes()

    def _see_whether_it_wakes(self) -> None:
        process = self.process
        wakes = self._listens and (process.said or not process.bell_is_open)
        wakes = wakes or (self._watches_exit and process.exit is not None and process.nature.tells_exit)
        self._backend.set_awake(self, wakes=bool(wakes))


class FakeBackend:
    """Keeps the `Backend` protocol. `links` has every process ever started, in order."""

    def __init__(self, world: World, weather: Weather, truth: Truth, spec: EnvSpec) -> None:
        self.world = world
        self.links: list[FakeLink] = []
        self.last_of: dict[int, FakeLink] = {}
        """The last process of each worker."""
        self.refused: int | None = None
        """The worker for which the last attempt to start a process failed."""
        self.is_closing = self.is_closed = False
        self.grace_s = weather.timeouts.grace_s
        self._weather, self._truth, self._spec = weather, truth, spec
        self._awake: dict[FakeLink, None] = {}

    @property
    def clock(self) -> Clock:
        """See `Backend`."""
        return self.world.read_clock

    def spawn(self, worker_id: int, generation: int) -> FakeLink:
        """See `Backend`."""
        self.world.check(not self.is_closed, "a process is started after the close")
        self.refused = None
        if self.world.rng.random() < self._weather.p_refusal and (generation or self.world.rng.random() < 0.1):
            self.refused = worker_id
            raise OSError(11, "Resource temporarily unavailable")
        pid = 100 + len(self.links)
        if len(self.links) >= PROCESSES_MAX:
            self._weather.clear_up()
        process = FakeProcess(
            self.world, self._weather, self._truth, self._spec, f"{worker_id}.{generation}/{pid}", generation, pid
        )
        link = FakeLink(self, process, worker_id)
        self.links.append(link)
        self.last_of[worker_id] = link
        return link

    def wait(self, deadline: Deadline) -> Sequence[FakeLink]:
        """See `Backend`."""
        world, call = self.world, self.world.call
        world.check(not self.is_closed, "waits after everything is closed")
        world.check(call is not None and call.may_wait, "waits where it must not")
        assert call is not None
        world.check(math.isfinite(deadline.at) and deadline.clock == self.clock, "waits without an end: {}", deadline)
        world.check(
            deadline.at <= call.ends + 1e-6, "waits past the end of its call, {:.3f} s", deadline.at - call.ends
        )
        world.slip()
        world.wait(min(deadline.at, world.now + TICK_S), lambda: self._awake)
        awake = list(self._awake)
        if world.rng.random() < P_SHUFFLED:
            world.rng.shuffle(awake)
        for link in awake:
            link.n_wakes += 1
            world.check(link.n_wakes < WAKES_MAX, "{} ends every wait, and nothing is made of it", link.process.name)
        if not self.is_closing:
            for link in self.last_of.values():
                link.check_it_was_noticed(call.began)
        return awake

    def sweep(self, worker_id: int | None = None) -> list[tuple[int, str]]:
        """See `Backend`."""
        return []

    def close(self) -> None:
        """See `Backend`."""
        for link in self.links:
            self.world.check(link.is_reaped or link.is_abandoned, "{} is still held", link.process.name)
        self.is_closed = True

    def set_awake(self, link: FakeLink, *, wakes: bool) -> None:
        """Note whether a link wakes a wait from now on."""
        if wakes:
            self._awake[link] = None
        else:
            self._awake.pop(link, None)
            link.n_wakes = 0
