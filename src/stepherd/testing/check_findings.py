"""What a check concludes from its trials: one finding for each question, in a sentence that says what to do.

Pure: trials in, findings out.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stepherd.testing.check_probe import Facts, short
from stepherd.testing.check_trials import Trial
from stepherd.testing.soak_report import MIB, memory_trend

Severity = Literal["ok", "warn", "fail"]

PRINTS_MUCH_BYTES = 200  # a step; a line or two
CLOSES_SLOWLY_S = 1.0
STEPS_SLOWLY = 5.0  # times the median at which the slowest step in a hundred is worth a word
ROUND_TRIP_S = 100e-6  # what asking a worker costs, with all that belongs to it, on an ordinary machine
ENVS_PER_WORKER_MAX = 16
LINES_MAX = 12  # of a report that a finding quotes


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question."""

    name: str
    severity: Severity
    text: str
    """What was found and, unless all is well, what to do."""


Trials = Mapping[str, Trial]
"""By the names of their arrangements: "alone", "again", "other seed", "two workers", "two in one"."""


def findings(trials: Trials) -> Iterator[Finding]:
    """Yield the findings in the order in which a person would ask."""
    alone = trials["alone"]
    if alone.never_ready:
        yield Finding(
            "construct", "fail", f"it cannot be built in a worker; mend this first:\n{_cut(alone.never_ready)}"
        )
        return
    facts = alone.facts[0]
    yield Finding("construct", "ok", _built(alone, facts))
    first = [*_calls(alone, facts), *_values(facts)]
    if not alone.went_well:
        yield from (finding for finding in (*first, _closes(alone)) if finding.severity != "ok")
        return
    yield from first
    yield from _seeds(trials)
    yield from _side_by_side(trials)
    yield _files(trials)
    yield _episodes(alone, facts)
    if facts.is_spied:  # a simulator with arrays only has no space to be outside of, and none to return
        yield _observations(facts)
    yield _prints(alone)
    yield _closes(alone)
    yield _leaves(alone, facts)
    yield _memory(facts)
    yield _speed(trials, facts)


def _built(alone: Trial, facts: Facts) -> str:
    memory = f"; its worker then holds {facts.memory_bytes / MIB:.0f} MiB" if facts.memory_bytes else ""
    return f"built in {_duration(facts.build_s)}, a worker with it starts in {_duration(alone.open_s)}{memory}"


def _calls(alone: Trial, facts: Facts) -> Iterator[Finding]:
    problems = _of(facts, "api")
    if alone.failure and problems:
        yield Finding("calls", "fail", f"{'; '.join(problems)}; follow Gymnasium's, then check again")
    elif alone.failure:
        yield Finding("calls", "fail", f"it failed; mend this first:\n{_cut(alone.failure)}")
    elif problems:
        yield Finding("calls", "warn", f"{'; '.join(problems)}: follow Gymnasium's API, other tools rely on it")
    else:
        choices = (
            f", {' × '.join(map(str, alone.choices))} different choices" if alone.choices else ", also at the bounds"
        )
        done = f"{facts.n_steps:,} steps and {len(facts.resets_s):,} resets"
        yield Finding("calls", "ok", f"{done} went well, with random actions{choices}")


def _values(facts: Facts) -> Iterator[Finding]:
    outside, dtype = _of(facts, "space"), _of(facts, "dtype")
    if outside:
        yield Finding("spaces", "fail", f"{'; '.join(outside)}: correct the space or what is observed")
    elif dtype:
        yield Finding("spaces", "warn", f"{'; '.join(dtype)}: Stepherd converts it, at a cost; return what is declared")
    elif facts.is_spied:
        yield Finding("spaces", "ok", "every observation was in its space, with its shape and dtype")
    nan, reward = _of(facts, "nan"), _of(facts, "reward")
    if nan or reward:
        yield Finding(
            "numbers", "fail", f"{'; '.join([*nan, *reward])}: one such number ruins a policy; find its source"
        )
    else:
        yield Finding("numbers", "ok", "no NaN was observed, and every reward was finite")


def _seeds(trials: Trials) -> Iterator[Finding]:
    alone, again, other = trials["alone"], trials["again"], trials["other seed"]
    at = first_difference(alone, again)
    if not again.went_well:
        yield Finding("repeats", "fail", f"it went well once and failed the second time:\n{_cut(_why(again))}")
    elif at is not None:
        yield Finding(
            "repeats",
            "warn",
            f"the same seed and actions give something else from step {at} on in another process: draw everything "
            "random from self.np_random, which reset(seed=…) seeds, or runs cannot be repeated",
        )
    else:
        yield Finding(
            "repeats", "ok", f"the same seed and actions give the same {alone.n_steps:,} steps in another process"
        )
    if other.went_well and again.went_well and first_difference(alone, other) is None:
        yield Finding(
            "seeds",
            "warn",
            "another seed changes nothing: all workers will see the same episodes as long as they act alike; call "
            "super().reset(seed=seed) and draw from self.np_random, unless the env is meant to have no randomness",
        )
    elif other.went_well:
        yield Finding("seeds", "ok", "another seed gives other episodes")
    random = alone.facts[0].global_random
    if random:
        used = " and ".join(f"{name} (in {where})" for name, where in random.items())
        yield Finding(
            "global random",
            "warn",
            f"it draws from {used}, which all code of a process shares, other envs too: draw from self.np_random",
        )
    else:
        yield Finding("global random", "ok", "it leaves random and numpy.random of its process alone")


def _side_by_side(trials: Trials) -> Iterator[Finding]:
    alone, two, one = trials["alone"], trials["two workers"], trials["two in one"]
    repeats = first_difference(alone, trials["again"]) is None and trials["again"].went_well
    ports = _same_ports(trials)
    if not two.went_well:
        why = f" (it listens on port {', '.join(map(str, ports))} in every process)" if ports else ""
        yield Finding(
            "two workers",
            "fail",
            f"it fails as soon as two run at once{why}: let the system choose ports (port 0) and names "
            f"(tempfile):\n{_cut(_why(two))}",
        )
    elif ports:
        yield Finding(
            "two workers",
            "fail",
            f"every process listens on port {', '.join(map(str, ports))}, so they may talk to each other's simulator: "
            "let the system choose (port 0)",
        )
    elif repeats and (at := first_difference(alone, two)) is not None:
        yield Finding(
            "two workers",
            "fail",
            f"next to a second worker it gives something else from step {at} on: the two share something outside, a "
            "file, a port or a server; give each its own",
        )
    else:
        yield Finding("two workers", "ok", "two run at once without disturbing each other")
    yield _two_in_one(one, alone, repeats)


def _two_in_one(one: Trial, alone: Trial, repeats: bool) -> Finding:
    if not one.went_well:
        text = f"two in one worker fail; keep --envs-per-worker 1:\n{_why(one).splitlines()[0]}"
        return Finding("two in one", "warn", text)
    at = first_difference(alone, one) if repeats else None
    if at is not None:
        return Finding(
            "two in one",
            "warn",
            f"next to a second env in the same worker it gives something else from step {at} on: the two share a "
            "global or class variable, or a global random state; keep --envs-per-worker 1 or give each its own",
        )
    return Finding("two in one", "ok", "two in one worker do not disturb each other")


def _files(trials: Trials) -> Finding:
    first, second, two = trials["alone"], trials["again"], trials["two workers"]
    shared: dict[str, bool] = {}
    for one, other in ((first.facts, second.facts), (two.facts[:1], two.facts[1:])):
        for path, appends in _opened_by_both(one, other):
            shared[path] = shared.get(path, True) and appends
    known = {path.rpartition("/")[2] for path in shared}
    for path in set(first.temporary_files) & set(second.temporary_files):  # also what native code has opened
        if path.rpartition("/")[2] not in known:
            shared[path] = False
    for name in (first.changed_here & second.changed_here) - known:
        shared[f"./{name}"] = False
    if not shared:
        return Finding("files", "ok", "no two of them write to the same file")
    listed = ", ".join(sorted(path.replace(first.temporary, "$TMPDIR") for path in shared)[:5])
    listed += " …" if len(shared) > 5 else ""
    if all(shared.values()):
        return Finding("files", "warn", f"all append to the same file, {listed}: their lines will mix; add os.getpid()")
    return Finding(
        "files", "fail", f"all write to the same file, {listed}: put os.getpid() into the name, or use tempfile"
    )


def _opened_by_both(one: Sequence[Facts], other: Sequence[Facts]) -> Iterator[tuple[str, bool]]:
    """Yield what both have opened for writing, with whether only to append."""
    mine = {path: appends for facts in one for path, appends in facts.files.items()}
    theirs = {path: appends for facts in other for path, appends in facts.files.items()}
    for path in mine.keys() & theirs.keys():
        yield path, mine[path] and theirs[path]


def _same_ports(trials: Trials) -> list[int]:
    one, other = trials["alone"].facts, trials["again"].facts
    return sorted({port for facts in one for port in facts.ports} & {port for facts in other for port in facts.ports})


def _episodes(alone: Trial, facts: Facts) -> Finding:
    if facts.n_episodes:
        each = facts.n_steps / facts.n_episodes
        return Finding(
            "episodes",
            "ok",
            f"{facts.n_episodes:,} episode{'s' * (facts.n_episodes != 1)} ended, after {each:,.0f} steps on average",
        )
    return Finding(
        "episodes",
        "warn",
        f"no episode ended within {alone.n_steps:,} random steps: if none may ever, wrap it in "
        "gymnasium.wrappers.TimeLimit, or returns are never known",
    )


def _observations(facts: Facts) -> Finding:
    if facts.reuses_observations:
        return Finding(
            "observations",
            "warn",
            "it returns the same array each time and changes it in place: harmless here, where every observation is "
            "copied at once; code that keeps those of a bare env must copy them",
        )
    return Finding("observations", "ok", "each observation is an array of its own")


def _prints(alone: Trial) -> Finding:
    per_step = alone.log_bytes / max(1, alone.n_steps)
    if per_step > PRINTS_MUCH_BYTES:
        return Finding(
            "output",
            "warn",
            f"it prints {per_step:,.0f} bytes a step: that slows it down and fills the disk; print less",
        )
    amount = f"{alone.log_bytes:,} bytes in all" if alone.log_bytes else "nothing"
    return Finding("output", "ok", f"it prints {amount}")


def _closes(alone: Trial) -> Finding:
    problems = [problem for worker in alone.report.workers for problem in worker.problems] if alone.report else []
    if problems:
        return Finding(
            "close", "fail", f"{'; '.join(map(_cut, problems))}: close() must end all it has begun, and soon"
        )
    seconds = alone.facts[0].close_s or 0.0
    if seconds > CLOSES_SLOWLY_S:
        return Finding("close", "warn", f"close() takes {_duration(seconds)}: a pool gives it grace_s, then ends it")
    return Finding(
        "close", "ok", f"closed in {_duration(seconds)}, its worker was gone after {_duration(alone.close_s)}"
    )


def _leaves(alone: Trial, facts: Facts) -> Finding:
    left = alone.leftovers
    things = [*map(short, left.processes), *map(str, left.files), *(f"port {port}" for _, port in left.ports)]
    if things:
        return Finding(
            "leftovers", "fail", f"it leaves {', '.join(things)}: nobody else can end or remove that; close() must"
        )
    if facts.processes_left:
        return Finding(
            "leftovers",
            "warn",
            f"after close() there was still {', '.join(facts.processes_left)}: Stepherd ends all that belongs to a "
            "worker's group, others do not; close() should",
        )
    if facts.threads_left:
        counts = Counter(facts.threads_left)
        names = ", ".join(f"{name!r}" + (f" ({n} times)" if n > 1 else "") for name, n in counts.most_common(5))
        return Finding(
            "leftovers",
            "fail",
            f"threads go on after close() and keep the process from ending: {names}; end them there",
        )
    if alone.temporary_files:
        listed = ", ".join(alone.temporary_files[:5]).replace(alone.temporary, "$TMPDIR")
        return Finding("leftovers", "warn", f"it leaves {listed}: remove it in close()")
    if facts.moved_to:
        return Finding(
            "leftovers",
            "warn",
            f"it changes into {facts.moved_to.replace(alone.temporary, '$TMPDIR')}: relative paths of others break",
        )
    return Finding("leftovers", "ok", "after close() nothing is left: no process, thread, file or port")


def _memory(facts: Facts) -> Finding:
    trend = memory_trend(facts.samples)
    if trend is None:
        return Finding("memory", "ok", "too few steps to see a trend; give it more with --steps")
    per_step = (trend.last_bytes - trend.first_bytes) / max(1.0, facts.n_steps * 0.8)
    if trend.grows:
        return Finding(
            "memory",
            "warn",
            f"its worker grows by {per_step * 1000 / MIB:.1f} MiB every 1,000 steps: look for a list that only gets "
            "longer; a million steps would take that a thousand times",
        )
    return Finding("memory", "ok", f"its worker stays at {trend.last_bytes / MIB:.0f} MiB")


def _speed(trials: Trials, facts: Facts) -> Finding:
    median = statistics.median(facts.steps_s)
    slow = sorted(facts.steps_s)[int(len(facts.steps_s) * 0.99)]
    text = f"a step takes {_duration(median)} (one in a hundred {_duration(slow)} or more)"
    if facts.resets_s:
        text += f", a reset {_duration(statistics.median(facts.resets_s))}"
    n = advised_envs_per_worker(median)
    again = trials["again"]
    repeats = again.went_well and first_difference(trials["alone"], again) is None
    gets_along = _two_in_one(trials["two in one"], trials["alone"], repeats).severity == "ok"
    if n == 1:
        return Finding("speed", "ok", f"{text}: one env per worker, and as many workers as cores, is right")
    if not gets_along:
        return Finding("speed", "ok", f"{text}: {n} envs per worker would pay, if two in one worker got along")
    return Finding("speed", "ok", f"{text}: asking a worker costs more, so use --envs-per-worker {n}")


def advised_envs_per_worker(step_s: float) -> int:
    """Return how many envs make a worker's turn worth the asking: a power of two."""
    n = 1
    while n < ENVS_PER_WORKER_MAX and n * step_s < ROUND_TRIP_S:
        n *= 2
    return n


def first_difference(one: Trial, other: Trial) -> int | None:
    """Return the first row, counted from 0, the reset, in which the first envs of two trials differ; None for none."""
    if not one.rows or not other.rows:
        return None
    pairs = zip(one.rows[0], other.rows[0], strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), None)


def _why(trial: Trial) -> str:
    return trial.never_ready or trial.failure


def _of(facts: Facts, about: str) -> list[str]:
    return list(facts.problems.get(about, {}).values())


def _cut(text: str) -> str:
    """Return the first line, which says who, and the last ones, which say what."""
    first, *more = text.splitlines()
    return "\n".join([first, *([] if len(more) <= LINES_MAX else ["  …"]), *more[-LINES_MAX:]])


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"
