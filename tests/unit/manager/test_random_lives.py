"""The whole manager through random lives: whatever workers do, the rules hold. A failing seed replays by its number."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from stepherd.core.deadline import Timeouts
from stepherd.core.errors import EnvNeverReady, TooFewReady, WorkerFailed
from stepherd.core.events import WorkerFailed as Failure
from stepherd.core.events import WorkerRecycled, WorkerStarted
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.restarts import RestartPolicy
from stepherd.process.exits import Exit
from stepherd.spec.batch import StepBatch
from stepherd.transport.control import Phase
from unit.manager.fake_backend import NEVER, Act, Moment, Nature, Outcome
from unit.manager.fake_pool import FakePool, make_pool

TIMEOUTS = Timeouts(spawn_s=20.0, reset_s=8.0, step_s=4.0, grace_s=2.0, kill_s=1.0)
FAULTS = [Outcome.RAISES, Outcome.ENDS, Outcome.HANGS, Outcome.HANGS_UP, Outcome.BABBLES]
EXITS = [Exit(0), Exit(1), Exit(3), Exit(None, 9), Exit(None, 11)]


@dataclass
class Expected:
    """The numbers an env must show next, as its caller knows them."""

    episode: int = 0
    t: int = 0
    action: int = -1


class Life:
    """One pool and its caller, both led by one random generator."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        chance = self.random.choice([0.0, 0.01, 0.05, 0.2])

        def plan(moment: Moment) -> Act:
            takes = self.random.choice([0.0, 0.0001, 0.001, 0.1, 1.0, 3.9])
            fails = self.random.random() < (chance if moment.phase is not Phase.SPAWNING else chance / 20)
            then = self.random.choice(FAULTS) if fails else Outcome.GOES_ON
            return Act(takes, then, self.random.choice(EXITS))

        def nature_of(worker_id: int, generation: int) -> Nature:
            return Nature(
                ends_s=self.random.choice([0.0, 0.01, 1.0]),
                sigterm_s=self.random.choice([0.0001, 0.01, NEVER]),
                kill_s=self.random.choice([0.0, 0.0001, 0.3]),
            )

        self.pool: FakePool = make_pool(
            plan,
            num_workers=self.random.randint(1, 5),
            envs_per_worker=self.random.choice([1, 1, 2, 4]),
            timeouts=TIMEOUTS,
            restarts=RestartPolicy(
                self.random.choice([-1, 0, 3]),
                self.random.choice([-1, 2]),
                60.0,
                self.random.choice([0.0, 0.5]),
                10.0,
            ),
            recycle=RecyclePolicy(self.random.choice([None, None, 1, 3])),
            nature_of=nature_of,
            episode_length=self.random.randint(1, 6),
            seed=seed,
        )
        self.length = self.pool.backend.episode_length
        self.expected = [Expected() for _ in range(self.pool.manager.n_envs)]
        self.in_flight: set[int] = set()
        self.delivered = 0

    def live(self) -> None:
        """Open the pool, work with it, close it at a random moment, and check the account."""
        try:
            with self.pool.manager:
                self.check(self.pool.manager.reset(), is_reset=True)
                for _ in range(self.random.randint(0, 60)):
                    self.turn()
                if self.random.random() < 0.5:
                    self.check(self.pool.manager.drain())
        except (EnvNeverReady, WorkerFailed, TooFewReady):  # the last: a reset whose workers failed again and again
            pass
        begun = self.pool.backend.clock()
        report = self.pool.manager.close()
        assert self.pool.backend.clock() == begun, "the second close did something"
        assert report.took_s <= TIMEOUTS.close_s + 1e-6
        assert report.delivered == self.delivered
        self.pool.check_account(report)
        self.check_events()

    def turn(self) -> None:
        """Do one random thing that a caller may do."""
        manager, n_envs = self.pool.manager, self.pool.manager.n_envs
        self.pool.backend.let_pass(self.random.choice([0.0, 0.0001, 0.1]))
        choice = self.random.random()
        if choice < 0.03:
            self.check(manager.reset(self.random.choice([None, 5])), is_reset=True)
            return
        free = [env_id for env_id in range(n_envs) if env_id not in self.in_flight]
        if free and choice < 0.6:
            chosen = self.random.sample(free, self.random.randint(1, len(free)))
            action = self.random.randint(0, 999)
            self.pool.send(action, chosen)
            for env_id in chosen:
                self.expected[env_id].action = action
            self.in_flight.update(chosen)
        elif choice < 0.7:
            self.pool.backend.let_pass(self.random.choice([0.0001, 0.1, 5.0]))
        elif self.in_flight:
            try:
                min_envs = self.random.choice([None, 0, 1, len(self.in_flight)])
                self.check(manager.recv(min_envs, self.random.choice([None, 0.0, 1.0])))
            except TooFewReady:
                pass

    def check(self, batch: StepBatch, is_reset: bool = False) -> None:
        """Check every number of a batch against what must come next."""
        steps = batch["A"]
        ids = [int(env_id) for env_id in batch.env_ids]
        assert ids == sorted(set(ids))
        if is_reset:
            assert ids == list(range(self.pool.manager.n_envs))
            assert not batch.lost.any()
            self.in_flight.clear()
        for row, env_id in enumerate(ids):
            expected, obs = self.expected[env_id], steps.obs[0][row, 0].tolist()
            if is_reset or batch.lost[row]:
                assert obs[2:] == [0.0, -1.0]
                assert steps.reward[row, 0] == 0.0
                assert not steps.ended[row, 0]
                if batch.lost[row]:
                    assert obs[1] == 1.0
                expected.episode, expected.t = int(obs[1]), 0
            else:
                assert env_id in self.in_flight, "an answer to nothing"
                self.check_step(expected, obs, steps.final_obs[0][row, 0].tolist(), bool(steps.ended[row, 0]))
                reward_episode = expected.episode - bool(steps.ended[row, 0])
                reward_t = self.length if steps.ended[row, 0] else expected.t
                assert steps.reward[row, 0] == 100.0 * reward_episode + reward_t
                self.delivered += 1
            assert steps.deciding[row, 0]
        self.in_flight.difference_update(ids)

    def check_step(self, expected: Expected, obs: list[float], final_obs: list[float], ended: bool) -> None:
        expected.t += 1
        assert ended == (expected.t == self.length)
        last = final_obs if ended else obs
        assert last[1:] == [expected.episode, expected.t, expected.action]
        if ended:
            expected.episode, expected.t = expected.episode + 1, 0
            assert obs[1:] == [expected.episode, 0.0, -1.0]

    def check_events(self) -> None:
        """Check that every process was announced, and every failure named once."""
        started = [e for e in self.pool.events if isinstance(e, WorkerStarted)]
        failed = [e for e in self.pool.events if isinstance(e, Failure)]
        assert [e.pid for e in started] == [link.pid for link in self.pool.backend.links]
        assert len({e.pid for e in failed}) == len(failed)
        replaced = [e for e in failed if e.restart_in_s is not None]
        recycled = [e for e in self.pool.events if isinstance(e, WorkerRecycled)]
        assert not {e.pid for e in recycled} & {e.pid for e in failed}
        assert len(started) <= len(self.pool.supervisor.workers) + len(replaced) + len(recycled)


@pytest.mark.parametrize("first_seed", range(0, 300, 50))
def test_the_rules_hold_in_fifty_random_lives(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        print(f"seed {seed}")  # the last one printed is the one that failed
        Life(seed).live()
