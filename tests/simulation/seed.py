"""One seed from beginning to end: draw a world, open a pool in it, let somebody use it, and check what is left."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from simulation.book import Book
from simulation.caller import Caller, check_that_it_is_closed
from simulation.fake_backend import FakeBackend
from simulation.fake_env import NARROW, WIDE, Truth
from simulation.fake_process import FakeProcess
from simulation.weather import draw_policy, draw_recycling, draw_timeouts, draw_weather
from simulation.world import World
from stepherd.manager.report import CloseReport, WorkerReport
from stepherd.manager.subprocess_env_manager import EnvSeeds, SubprocessEnvManager, patience_s
from stepherd.manager.supervisor import CAUSES, Supervisor
from stepherd.transport.notes import Job

N_SEEDS = 1000  # in the suite
LINES_MAX = 400  # of a story that a test shows; `--seed` shows it all
DISCARDS = {*CAUSES.values(), "a reset came before its outcome was taken", "it was not taken before the close"}


class SeedFailed(AssertionError):
    """A seed has found something. The message tells what, the whole story, and how to see it again."""

    def __init__(self, seed: int, violation: Exception, world: World) -> None:
        self.seed, self.violation = seed, violation
        lines = world.story().splitlines()
        left_out = [f"… {len(lines) - LINES_MAX} lines before this …"] if len(lines) > LINES_MAX else []
        told = "\n".join([*left_out, *lines[-LINES_MAX:]])
        super().__init__(
            f"seed {seed}: the manager {violation}\n{told}\n{world.now:12.6f}  the manager {violation}\n"
            f"Again: python -m pytest tests/simulation --seed {seed}"
        )


def run_seeds(seeds: Iterable[int]) -> list[World]:
    """Run seeds one after the other and return their worlds. Raises the first `SeedFailed`."""
    return [run_seed(seed) for seed in seeds]


def run_seed(seed: int, *, tell: bool = False) -> World:
    """Run a seed and return its world, in which everything has come to its end; `tell` prints all that happened.

    Raises:
        SeedFailed: a promise was broken.
    """
    rng = Random(seed)
    world = World(rng, p_slip=rng.choice((0.0, 0.0, 0.05, 0.3)))
    try:
        _run(rng, world)
    except Exception as violation:
        raise SeedFailed(seed, violation, world) from violation
    finally:
        if tell:
            print(world.story())
    return world


def _run(rng: Random, world: World) -> None:
    timeouts, policy, truth = draw_timeouts(rng), draw_policy(rng), Truth()
    weather = draw_weather(rng, timeouts)
    n_workers, envs_per_worker = rng.randint(1, 4), rng.choice((1, 1, 2, 3))
    spec = WIDE if rng.random() < 0.2 else NARROW
    backend = FakeBackend(world, weather, truth, spec)
    recycle = draw_recycling(rng)
    book = Book(world, backend, truth, (policy, recycle), (n_workers, envs_per_worker))
    seeds = EnvSeeds(7)
    supervisor = Supervisor(
        backend,
        lambda env_ids: Job("python:pretended:env", b"", tuple(env_ids), ()),
        [range(i * envs_per_worker, (i + 1) * envs_per_worker) for i in range(n_workers)],
        env_name="pretended",
        seed_of=seeds.of,
        timeouts=timeouts,
        restarts=policy,
        recycle=recycle,
        on_event=book.on_event,
    )
    patience = patience_s(timeouts, policy.backoff_max_s, envs_per_worker)
    manager = SubprocessEnvManager(supervisor, seeds, patience, timeouts.grace_s)
    world.note("seed", "{} workers of {} envs", n_workers, envs_per_worker)
    world.note("seed", "{}; {}; {}", timeouts, policy, recycle)
    world.note("seed", "{}", weather)
    if rng.random() < 0.1:
        world.later(rng.random() * rng.choice((0.1, 10.0, 60.0)), world.interrupt)
        world.later(rng.random() * rng.choice((10.0, 60.0)), world.interrupt)
    Caller(world, weather, book, truth, manager, spec, patience).live(rng.choice((3, 10, 30, 100)))
    world.interrupted = False
    report = manager.close()
    check_that_it_is_closed(world, manager, report)
    check_nothing_is_left(world, backend)
    check_account(world, backend, book, truth, report)


def check_nothing_is_left(world: World, backend: FakeBackend) -> None:
    """Check that no process, bell or block is held any more."""
    world.check(backend.is_closed, "leaves its waiting open")
    for link in backend.links:
        name = link.process.name
        world.check(link.is_free, "still holds {}", name)
        world.check(link.is_reaped or link.is_killed, "leaves {} alone without killing it", name)


def check_account(world: World, backend: FakeBackend, book: Book, truth: Truth, report: CloseReport) -> None:
    """Check the report of the close against all that was done and has happened."""
    for worker in report.workers:
        sent = {action for action, env_id in book.sent.items() if env_id in worker.env_ids}
        begun, delivered = sent & truth.begun, sent & book.delivered
        counts = (worker.sent, worker.delivered, sum(worker.discarded.values()), worker.unbegun, worker.executed)
        true = (len(sent), len(delivered), len(begun - delivered), len(sent - begun), len(begun))
        world.check(counts == true, "reports {} for worker {}, not {}", counts, worker.worker_id, true)
        world.check(set(worker.discarded) <= DISCARDS, "discards for no known reason: {}", worker.discarded)
        _check_ends(world, backend, book, worker)
    unknown = truth.begun - book.sent.keys()
    world.check(not unknown, "has let actions {} be executed that nobody sent", unknown)
    total = (report.sent, report.sent)
    world.check(total == (report.delivered + report.discarded + report.unbegun, len(book.sent)), "loses count")


def _check_ends(world: World, backend: FakeBackend, book: Book, worker: WorkerReport) -> None:
    links = [link for link in backend.links if link.worker_id == worker.worker_id]
    if not links:
        world.check(worker.exit == "never started" and not worker.pid, "ends what was never started: {}", worker)
        return
    last, left = links[-1], {link.pid for link in links if link.is_abandoned}
    recycled = book.recycled_links & set(links)
    counts, true = (worker.n_restarts, worker.n_recycled), (len(set(links[:-1]) - recycled), len(recycled))
    world.check(counts == true, "counts {} restarts of {}, not {}", counts, last.process.name, true)
    world.check(worker.leaked == bool(left), "hides that {} still run", left)
    world.check(left <= book.leaked or world.was_interrupted, "says to nobody that {} still run", left)
    world.check(worker.pid == last.pid, "takes {} for the last process, not {}", worker.pid, last.pid)
    ends = {"still runs" if last.is_abandoned else "", str(last.process.exit)}
    world.check(worker.exit in ends, "says of {}: {}", last.process.name, worker.exit)
    failed = worker.worker_id in book.failed_workers
    world.check(not failed or worker.error is not None, "hides the error of {}", last.process.name)
    said = "\n".join([worker.error or "", *worker.problems])
    for link in {last, *recycled} - book.failed_links:
        _check_end(world, link.process, said)


def _check_end(world: World, process: FakeProcess, said: str) -> None:
    if process.raised_first:
        world.check(str(process.raised) in said, "hides what {} raised: {!r}", process.name, said)
    if process.problem is not None:
        world.check(process.problem in said, "hides how {} closed: {!r}", process.name, said)
    ended_well = process.exit is not None and process.exit.clean and process.has_closed
    world.check(ended_well or said, "hides that {} did not end well", process.name)
