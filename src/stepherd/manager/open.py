"""The front door: from a user's words to a pool of envs."""

from __future__ import annotations

import functools
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stepherd.core.deadline import Timeouts
from stepherd.core.events import Event, EventHook
from stepherd.manager.launch import LocalBackend
from stepherd.manager.recycling import RecyclePolicy
from stepherd.manager.restarts import RestartPolicy
from stepherd.manager.subprocess_env_manager import EnvSeeds, SubprocessEnvManager, patience_s
from stepherd.manager.supervisor import Supervisor
from stepherd.transport.notes import Job


def open_env_manager(
    env: str | Callable[..., Any],
    *,
    num_workers: int,
    envs_per_worker: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    seed: int | None = None,
    timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
    restarts: RestartPolicy = RestartPolicy(),  # noqa: B008 - frozen
    recycle: RecyclePolicy = RecyclePolicy(),  # noqa: B008 - frozen
    log_dir: str | os.PathLike[str] | None = None,
    on_event: EventHook | None = None,
) -> SubprocessEnvManager:
    """Return a pool of `num_workers * envs_per_worker` copies of an env, for use in a `with` block.

        with stepherd.open_env_manager("gymnasium:CartPole-v1", num_workers=8) as envs:
            batch = envs.reset(seed=1)

    `env` is a URI (`gymnasium:CartPole-v1`, `gymnasium:pkg.mod:Env-v0`, `python:pkg.mod:make_env`) or a callable that
    returns an env; lambdas, closures and functions of the main script are fine, and the script needs no
    `if __name__ == "__main__":`. It is called with `env_kwargs`, in the workers only.
    `restarts` says how often a failed worker is replaced, `recycle` when a healthy one is.
    What workers print goes to `log_dir/worker-<id>.log`; without a folder only the last lines are kept, for errors.
    Entering the block starts the workers and waits for them for at most `timeouts.spawn_s`.

    Raises:
        TypeError: `env` is neither, for example an env that was built already.
        ValueError: a count is below 1, or the callable cannot be pickled.
        EnvNeverReady: (on entering) a worker could not build its envs; carries the env's own traceback.
        WorkerFailed: (on entering) a worker that was ready kept failing while others were still starting.
        OSError: (on entering) the system has no process, descriptor or memory left for a worker.
    """
    if num_workers < 1 or envs_per_worker < 1:
        raise ValueError(f"a pool needs workers and envs: num_workers={num_workers}, envs_per_worker={envs_per_worker}")
    source = env if isinstance(env, str) else _pickled(env)
    kwargs = _pickled_kwargs(env_kwargs or {})
    sys_path = tuple(_absolute(entry) for entry in sys.path)

    def job_of(env_ids: range) -> Job:
        return Job(source, kwargs, tuple(env_ids), sys_path)

    seeds = EnvSeeds(seed)
    supervisor = Supervisor(
        LocalBackend(Path(log_dir) if log_dir is not None else None),
        job_of,
        [range(i * envs_per_worker, (i + 1) * envs_per_worker) for i in range(num_workers)],
        env_name=env if isinstance(env, str) else _name_of(env),
        seed_of=seeds.of,
        timeouts=timeouts,
        restarts=restarts,
        recycle=recycle,
        on_event=on_event or _ignore,
    )
    patience = patience_s(timeouts, restarts.backoff_max_s, envs_per_worker)
    return SubprocessEnvManager(supervisor, seeds, patience, timeouts.grace_s)


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)  # noqa: PTH100 - keeps entries that are no paths
    except FileNotFoundError:
        return entry  # the current folder is gone


def _pickled(env: Any) -> bytes:
    if not callable(env):
        raise TypeError(
            f"env must be a URI or a callable that returns an env, not {type(env).__name__}. For an env that is built "
            "already, pass what builds it: `lambda: MyEnv(...)`"
        )
    import cloudpickle  # not needed for URIs

    try:
        data: bytes = cloudpickle.dumps(env)
    except Exception as error:
        raise ValueError(f"{_name_of(env)} cannot be sent to a worker: {error}") from error
    return data


def _pickled_kwargs(kwargs: Mapping[str, Any]) -> bytes:
    import cloudpickle

    for name, value in kwargs.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise ValueError(f"env_kwargs[{name!r}] cannot be sent to a worker: {error}") from error
    data: bytes = cloudpickle.dumps(dict(kwargs)) if kwargs else pickle.dumps({})
    return data


def _name_of(env: Callable[..., Any]) -> str:
    while isinstance(env, functools.partial):
        env = env.func
    return getattr(env, "__qualname__", None) or type(env).__qualname__


def _ignore(event: Event) -> None:
    """Nobody listens."""
