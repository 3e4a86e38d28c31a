"""What every kind of env manager keeps to, whatever is behind it: subclass this and say how one is opened."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

from contract.envs import ACTION_SPACES, OBSERVATION_SPACE, EchoEnv, GatedEnv, NestedEnv, nested_observation
from faults.processes import wait_until
from stepherd.core.errors import EnvBusy, EnvNeverReady, ManagerClosed, TooFewReady
from stepherd.envs.spaces import action_spec, observation_leaves
from stepherd.manager.env_manager import EnvManager
from stepherd.manager.report import CloseReport
from stepherd.spec.batch import Actions, StepBatch
from stepherd.testing.faulty_envs import CountingEnv, RaisingEnv, steps_counted

Factory = str | Callable[..., Any]


class OpenEnvs(Protocol):
    """Opens a manager of `n_envs` envs, spread over workers as the backend likes."""

    def __call__(
        self, env: Factory, n_envs: int, *, env_kwargs: Mapping[str, Any] | None = None, seed: int | None = None
    ) -> AbstractContextManager[EnvManager]: ...


def choose(envs: EnvManager, choices: npt.ArrayLike, env_ids: list[int] | None = None) -> None:
    """Send one discrete choice to each of some envs."""
    discrete = np.asarray(choices, np.int32).reshape(-1, 1, 1)
    envs.send(Actions(np.zeros((len(discrete), 1, 0)), discrete), env_ids)


def rows_of(batch: StepBatch) -> npt.NDArray[np.float64]:
    """Return the observations of `CountingEnv`s: [seed, episode, step, action] for each row."""
    (steps,) = batch.behaviors.values()
    return np.asarray(steps.obs[0][:, 0])


def receive(envs: EnvManager, n: int) -> dict[int, list[float]]:
    """Wait until `n` envs have answered, in as many batches as it takes; return what each observed."""
    answered: dict[int, list[float]] = {}
    while len(answered) < n:
        batch = envs.recv(1)
        answered.update(zip(batch.env_ids.tolist(), rows_of(batch).tolist(), strict=True))
    return answered


def check_account(report: CloseReport, executed: int) -> None:
    """Check that the report adds up and agrees with what the envs have counted."""
    assert report.sent == report.delivered + report.discarded + report.unbegun
    assert report.executed == executed
    for worker in report.workers:
        assert worker.sent == worker.executed + worker.unbegun


class EnvManagerContract:
    """The suite. A subclass has a fixture `open_envs`."""

    envs_per_worker = 1

    # Resetting.

    def test_a_reset_returns_the_first_observation_of_every_env(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 3) as envs:
            batch = envs.reset(seed=1)

            (steps,) = batch.behaviors.values()
            assert batch.env_ids.tolist() == [0, 1, 2]
            assert not batch.lost.any()
            assert rows_of(batch)[:, 1:].tolist() == [[1.0, 0.0, -1.0]] * 3
            assert steps.reward.tolist() == [[0.0]] * 3
            assert steps.deciding.all()
            assert not steps.ended.any()

    def test_seeds_are_the_same_every_time_and_different_for_every_env(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 4) as envs:
            first = rows_of(envs.reset(seed=5))[:, 0].tolist()
            other = rows_of(envs.reset(seed=6))[:, 0].tolist()
            again = rows_of(envs.reset(seed=5))[:, 0].tolist()

            assert len(set(first)) == len(set(other)) == 4
            assert not set(first) & set(other)
            assert again == first

    def test_the_pools_own_seed_counts_for_the_first_reset_and_later_ones_go_on(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 2, seed=5) as envs:
            first = rows_of(envs.reset())[:, 0].tolist()
            second = rows_of(envs.reset())[:, 0].tolist()
            given = rows_of(envs.reset(seed=5))[:, 0].tolist()

            assert first == given
            assert second == [-1.0, -1.0]

    def test_a_reset_in_the_middle_of_everything_begins_anew_and_counts_what_it_threw_away(
        self, open_envs: OpenEnvs, tmp_path: Path
    ) -> None:
        counter = tmp_path / "counter"
        with open_envs(CountingEnv, 3, env_kwargs={"counter_path": str(counter)}) as envs:
            envs.reset()
            choose(envs, [1, 2, 3])
            envs.recv()
            choose(envs, [4, 5], [0, 2])

            batch = envs.reset()

            assert rows_of(batch)[:, 1:].tolist() == [[2.0, 0.0, -1.0]] * 3
            report = envs.close()
        assert (report.sent, report.delivered, report.discarded) == (5, 3, 2)
        check_account(report, steps_counted(counter))

    # Stepping.

    @pytest.mark.parametrize("truncates", [False, True])
    def test_every_number_of_every_step_is_right_over_many_episodes(self, open_envs: OpenEnvs, truncates: bool) -> None:
        length, n_steps = 7, 40
        with open_envs(CountingEnv, 3, env_kwargs={"length": length, "truncates": truncates}) as envs:
            envs.reset(seed=1)
            for step in range(n_steps):
                choices = [(100 * env_id + step) % 1000 for env_id in range(3)]
                choose(envs, choices)
                batch = envs.recv()

                (steps,) = batch.behaviors.values()
                episode, t = 1 + step // length, 1 + step % length
                ended = t == length
                assert batch.env_ids.tolist() == [0, 1, 2]
                assert steps.reward.tolist() == [[100.0 * episode + t]] * 3
                assert steps.terminated.tolist() == [[ended and not truncates]] * 3
                assert steps.interrupted.tolist() == [[ended and truncates]] * 3
                assert steps.deciding.all()
                last = steps.final_obs[0] if ended else steps.obs[0]
                assert last[:, 0, 1:].tolist() == [[episode, t, choice] for choice in choices]
                if ended:
                    assert rows_of(batch)[:, 1:].tolist() == [[episode + 1.0, 0.0, -1.0]] * 3

    def test_an_env_behaves_as_it_does_in_a_plain_loop(self, open_envs: OpenEnvs) -> None:
        n_envs, n_steps, random = 3, 300, np.random.default_rng(0)
        with open_envs(CountingEnv, n_envs, seed=3) as envs:
            seeds = [int(seed) for seed in rows_of(envs.reset())[:, 0]]
        plain = [gymnasium.make("CartPole-v1") for _ in range(n_envs)]
        first = [env.reset(seed=seed)[0] for env, seed in zip(plain, seeds, strict=True)]

        with open_envs("gymnasium:CartPole-v1", n_envs, seed=3) as envs:
            np.testing.assert_array_equal(envs.reset()["CartPole"].obs[0][:, 0], np.array(first))
            for _ in range(n_steps):
                choices = random.integers(0, 2, n_envs)
                choose(envs, choices)
                steps = envs.recv()["CartPole"]
                for row, env in enumerate(plain):
                    obs, reward, terminated, truncated, _ = env.step(choices[row])
                    if terminated or truncated:
                        np.testing.assert_array_equal(steps.final_obs[0][row, 0], obs)
                        obs, _ = env.reset()
                    np.testing.assert_array_equal(steps.obs[0][row, 0], obs)
                    assert steps.reward[row, 0] == reward
                    assert (steps.terminated[row, 0], steps.interrupted[row, 0]) == (terminated, truncated)
        for env in plain:
            env.close()

    def test_whoever_is_ready_need_not_wait_for_the_slowest(self, open_envs: OpenEnvs, tmp_path: Path) -> None:
        if self.envs_per_worker > 1:
            pytest.skip("envs of one worker take turns")
        gate = tmp_path / "gate"
        with open_envs(GatedEnv, 4, env_kwargs={"gate_path": str(gate)}) as envs:
            envs.reset()
            choose(envs, [0, 1, 2, 3])
            fast = receive(envs, 3)
            for turn in range(10, 15):
                choose(envs, [turn] * 3, sorted(fast))
                assert receive(envs, 3).keys() == fast.keys()
            gate.touch()
            (slow,) = {0, 1, 2, 3} - fast.keys()

            last = envs.recv()

            assert last.env_ids.tolist() == [slow]
            assert rows_of(last)[0, 2:].tolist() == [1.0, float(slow)]

    def test_two_halves_can_take_turns(self, open_envs: OpenEnvs) -> None:
        halves, answered = ([0, 1], [2, 3]), dict[int, list[float]]()
        with open_envs(CountingEnv, 4, env_kwargs={"length": 1000}) as envs:
            envs.reset()
            choose(envs, [0, 0], halves[0])
            for turn in range(1, 60):
                choose(envs, [turn, turn], halves[turn % 2])
                due = halves[(turn - 1) % 2]
                while not answered.keys() >= set(due):
                    answered.update(receive(envs, 1))
                for env_id in due:
                    assert answered.pop(env_id)[2:] == [(turn + 1) // 2, turn - 1]

            report = (envs.drain(), envs.close())[1]
            assert report.sent == report.delivered == 120

    def test_rows_come_in_the_order_of_the_envs_whatever_order_they_were_sent_in(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 4) as envs:
            envs.reset()
            choose(envs, [30, 10, 20], [3, 1, 2])

            batch = envs.recv(3)

            assert batch.env_ids.tolist() == [1, 2, 3]
            assert rows_of(batch)[:, 3].tolist() == [10.0, 20.0, 30.0]

    def test_a_copy_of_a_batch_is_kept_whatever_follows(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 2) as envs:
            kept = [envs.reset().copy()]
            for choice in range(5):
                choose(envs, [choice, choice])
                kept.append(envs.recv().copy())

            assert [rows_of(batch)[0, 3] for batch in kept] == [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]

    # What is carried.

    @pytest.mark.parametrize("kind", sorted(ACTION_SPACES))
    def test_every_kind_of_action_arrives_exactly(self, open_envs: OpenEnvs, kind: str) -> None:
        space, n_envs = ACTION_SPACES[kind], 2
        spec = action_spec(space)
        start = np.ravel(getattr(space, "start", 0)) if spec.branches else 0
        space.seed(3)
        with open_envs(EchoEnv, n_envs, env_kwargs={"kind": kind}) as envs:
            envs.reset()
            for _ in range(20):
                wanted = np.array([np.ravel(space.sample()) for _ in range(n_envs)], np.float64)
                continuous, discrete = (wanted[:, None, :], np.zeros((n_envs, 1, 0), np.int32))
                if spec.branches:
                    discrete = (wanted - start).astype(np.int32)[:, None, :]
                    continuous = np.zeros((n_envs, 1, 0))
                envs.send(Actions(continuous, discrete))

                np.testing.assert_array_equal(rows_of(envs.recv()), wanted)

    def test_every_kind_of_observation_arrives_exactly(self, open_envs: OpenEnvs) -> None:
        leaves = list(observation_leaves(OBSERVATION_SPACE))
        with open_envs(NestedEnv, 2) as envs:
            batches = [envs.reset().copy()]
            for _ in range(4):
                choose(envs, [0, 1])
                batches.append(envs.recv().copy())

            assert [o.name for o in envs.spec.behaviors[0].observations] == [spec.name for _, spec in leaves]
            for batch, t, final_t in zip(batches, [0, 1, 2, 0, 1], [None, None, None, 3, None], strict=True):
                steps = batch["NestedEnv"]
                for number, (path, spec) in enumerate(leaves):
                    for arrays, time in ((steps.obs, t), (steps.final_obs, final_t)):
                        if time is None:
                            continue
                        value: Any = nested_observation(time)
                        for key in path:
                            value = value[key]
                        np.testing.assert_array_equal(arrays[number][0, 0], value)
                        np.testing.assert_array_equal(arrays[number][1, 0], value)
                        assert arrays[number].dtype == spec.dtype

    def test_a_space_that_cannot_be_carried_is_named_before_anything_runs(self, open_envs: OpenEnvs) -> None:
        def make() -> gymnasium.Env[Any, Any]:
            env = CountingEnv()
            env.observation_space = gymnasium.spaces.Dict(note=gymnasium.spaces.Text(5))  # type: ignore[assignment]  # that is the point
            return env

        with pytest.raises(EnvNeverReady, match=r"Text\(.*at 'note'.*cannot be carried"), open_envs(make, 2):
            pytest.fail("it opened")

    # Refusing.

    def test_an_env_that_works_takes_no_second_action(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 2) as envs:
            envs.reset()
            choose(envs, [1], [1])

            with pytest.raises(EnvBusy, match="env 1"):
                choose(envs, [2, 2])

            assert rows_of(envs.recv(1))[:, 3].tolist() == [1.0]
            choose(envs, [3], [0])
            assert rows_of(envs.recv(1))[:, 2:].tolist() == [[1.0, 3.0]]

    def test_answers_that_came_too_late_for_one_recv_come_with_the_next(
        self, open_envs: OpenEnvs, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        with open_envs(GatedEnv, 3, env_kwargs={"gate_path": str(gate)}) as envs:
            envs.reset()
            choose(envs, [0, 0, 0])
            with pytest.raises(TooFewReady):
                envs.recv(3, within_s=0.05)
            gate.touch()

            batch = envs.recv(3)

            assert batch.env_ids.tolist() == [0, 1, 2]

    def test_more_answers_than_envs_in_flight_are_refused_at_once(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 3) as envs:
            envs.reset()
            with pytest.raises(TooFewReady):
                envs.recv()
            choose(envs, [1], [2])

            with pytest.raises(TooFewReady):
                envs.recv(2, within_s=3600.0)

            assert envs.recv(1).env_ids.tolist() == [2]

    @pytest.mark.parametrize("shape", [(2, 1, 2), (1, 1, 1), (3,)])
    def test_actions_of_another_shape_are_refused_and_nothing_is_sent(
        self, open_envs: OpenEnvs, shape: tuple[int, ...]
    ) -> None:
        with open_envs(CountingEnv, 2) as envs:
            envs.reset()

            with pytest.raises(ValueError, match="shape"):
                envs.send(Actions(np.zeros((2, 1, 0)), np.zeros(shape, np.int32)))

            choose(envs, [1, 2])
            assert rows_of(envs.recv())[:, 2:].tolist() == [[1.0, 1.0], [1.0, 2.0]]

    def test_an_error_in_a_constructor_is_shown_as_it_was_raised(self, open_envs: OpenEnvs) -> None:
        with (
            pytest.raises(EnvNeverReady, match=r"(?s)ValueError: deliberate.*Traceback"),
            open_envs(RaisingEnv, 2, env_kwargs={"where": "constructor"}),
        ):
            pytest.fail("it opened")

    # Ending.

    def test_a_drain_brings_home_whatever_is_in_flight(self, open_envs: OpenEnvs, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        with open_envs(CountingEnv, 4, env_kwargs={"counter_path": str(counter)}) as envs:
            envs.reset()
            choose(envs, [7, 8, 9], [0, 1, 3])

            batch = envs.drain()

            assert batch.env_ids.tolist() == [0, 1, 3]
            assert rows_of(batch)[:, 3].tolist() == [7.0, 8.0, 9.0]
            report = envs.close()
        assert (report.sent, report.delivered, report.discarded, report.unbegun) == (3, 3, 0, 0)
        check_account(report, steps_counted(counter))

    def test_the_report_counts_what_the_envs_have_counted(self, open_envs: OpenEnvs, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        with open_envs(CountingEnv, 4, env_kwargs={"counter_path": str(counter), "length": 3}) as envs:
            envs.reset()
            for step in range(10):
                choose(envs, [step] * 4)
                envs.recv()
            choose(envs, [0, 0], [1, 2])
            report = envs.close()

        assert (report.sent, report.delivered, report.sent - report.delivered) == (42, 40, 2)
        check_account(report, steps_counted(counter))

    def test_closing_twice_gives_the_same_report(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 2) as envs:
            first = envs.close()

            assert envs.close() is first
        assert envs.close() is first

    def test_closing_without_a_reset_is_fine(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 2) as envs:
            pass

        report = envs.close()
        assert (report.sent, report.leaked) == (0, ())
        assert all(worker.error is None and worker.problems == () for worker in report.workers)

    def test_nothing_works_after_the_close(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 2) as envs:
            envs.reset()

        for call in (envs.reset, envs.recv, envs.drain, lambda: choose(envs, [0, 0]), lambda: envs.spec):
            with pytest.raises(ManagerClosed):
                call()

    def test_an_exception_in_the_block_goes_through_and_everything_is_closed(self, open_envs: OpenEnvs) -> None:
        opened: list[EnvManager] = []

        def work() -> None:
            with open_envs(CountingEnv, 2) as envs:
                opened.append(envs)
                envs.reset()
                choose(envs, [1, 1])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work()

        report = opened[0].close()
        assert report.leaked == ()
        assert report.sent == report.delivered + report.discarded + report.unbegun

    def test_a_glance_shows_every_worker_at_any_time(self, open_envs: OpenEnvs) -> None:
        with open_envs(CountingEnv, 2) as envs:
            envs.reset()
            choose(envs, [1, 1])
            envs.recv()

            statuses = envs.statuses()

            assert sum(status.n_steps for status in statuses) == 2
            assert all(status.pid > 0 and status.n_restarts == 0 and status.busy_s > 0 for status in statuses)
            wait_until(lambda: {status.state for status in envs.statuses()} == {"idle"}, "all are idle")

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_a_forked_copy_of_the_owner_cannot_use_the_pool_and_does_not_disturb_it(self, open_envs: OpenEnvs) -> None:
        if sys.platform == "win32":
            return
        with open_envs(CountingEnv, 2) as envs:
            envs.reset()
            child = os.fork()
            if child == 0:
                os._exit(_use_in_a_forked_copy(envs))

            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

            assert code == 5, "calls were not refused"
            choose(envs, [1, 2])
            assert rows_of(envs.recv())[:, 3].tolist() == [1.0, 2.0]
        assert envs.close().leaked == ()


def _use_in_a_forked_copy(envs: EnvManager) -> int:
    """Return how many of five calls were refused."""
    n_refused = 0
    for call in (envs.reset, envs.recv, envs.drain, envs.close, lambda: choose(envs, [0, 0])):
        try:
            call()
        except ManagerClosed:
            n_refused += 1
        except BaseException:
            return -1
    return n_refused
