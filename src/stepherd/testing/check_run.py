"""Checks whether an env is safe to run in parallel: tries it in real workers and says what it found.

    from stepherd.testing.check_run import check_env

    def test_my_env_is_safe_to_run_in_parallel() -> None:
        check_env("python:my_package.envs:make_env").check()

No line of the env runs in the calling process.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepherd._version import __version__
from stepherd.core.deadline import Timeouts
from stepherd.testing.check_findings import Finding, Severity, findings
from stepherd.testing.check_trials import Arrangement, Laboratory, Trial
from stepherd.testing.soak_request import as_source, pickled

STEPS = 1000
BUDGET_S = 10.0
LIMITS = Timeouts(grace_s=3.0)
MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL"}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check has found. Good when `is_safe`; `str` of it is the list."""

    env: str
    findings: tuple[Finding, ...]
    took_s: float
    was_built: bool
    """Whether the env could be built at all."""

    @property
    def is_safe(self) -> bool:
        """Whether nothing failed; there may be warnings."""
        return not self.n("fail")

    def n(self, severity: Severity) -> int:
        """Return how many findings have this severity."""
        return Counter(finding.severity for finding in self.findings)[severity]

    def check(self) -> None:
        """Check that nothing failed.

        Raises:
            AssertionError: something did; the message is the list.
        """
        assert self.is_safe, f"\n{self}"

    def text(self, width: int = 80) -> str:
        """Return the list, wrapped to a width."""
        name_width = max(len(finding.name) for finding in self.findings)
        lines = [*_wrapped(f"{self.env}, checked in {self.took_s:.1f} s", width), ""]
        for finding in self.findings:
            first = f"{MARKS[finding.severity]:<5} {finding.name:<{name_width}}  "
            sentence, *quoted = finding.text.split("\n")
            lines += _wrapped(sentence, width, first)
            lines += [f"        {line}" for line in quoted]
        return "\n".join([*lines, "", *_wrapped(self._verdict(), width)])

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> str:
        """Return everything as JSON."""
        data = {
            "stepherd": __version__,
            "env": self.env,
            "is_safe": self.is_safe,
            "took_s": self.took_s,
            "findings": [dataclasses.asdict(finding) for finding in self.findings],
        }
        return json.dumps(data, indent=1, ensure_ascii=False)

    def _verdict(self) -> str:
        if not self.was_built:
            return "It could not be built, so there was nothing to check."
        n_warn, n_fail = self.n("warn"), self.n("fail")
        counts = f"{self.n('ok')} ok, {n_warn} warning{'s' * (n_warn != 1)}, {n_fail} failure{'s' * (n_fail != 1)}"
        if n_fail:
            return f"{counts}: not safe to run in parallel yet."
        return (
            f"{counts}: safe to run in parallel." if not n_warn else f"{counts}: safe to run in parallel, but read on."
        )


def check_env(
    env: str | Callable[..., Any],
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    steps: int = STEPS,
    budget_s: float = BUDGET_S,
    seed: int = 1,
    timeouts: Timeouts = LIMITS,
    on_progress: Callable[[str], None] | None = None,
) -> CheckReport:
    """Try `env`, a URI or a callable that returns an env, in worker processes, and return what was found.

    Each of five trials takes `steps` steps, or as many as fit into `budget_s` seconds. `on_progress` is called with
    the name of each trial before it begins. Blocks for five times the budget and what starting and closing takes,
    within `timeouts`.

    Raises:
        ValueError: a number is out of range, or `env` cannot be sent to a worker.
        SpecError: `env` is a string, and not a URI.
    """
    if steps < 1 or budget_s <= 0 or seed < 0:
        raise ValueError(f"steps must be 1 or more, budget_s above 0 and seed 0 or more: {steps}, {budget_s}, {seed}")
    name = env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__qualname__)
    tell = on_progress or _ignore
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stepherd-check-") as folder:
        source, kwargs = as_source(env), pickled(dict(env_kwargs or {}))
        laboratory = Laboratory(source, kwargs, name, Path(folder), steps, budget_s, timeouts)
        trials: dict[str, Trial] = {}
        for arrangement in (
            Arrangement("alone", seed=seed, samples_memory=True),
            Arrangement("again", seed=seed),
            Arrangement("other seed", seed=seed + 1),
            Arrangement("two workers", num_workers=2, seed=seed),
            Arrangement("two in one", envs_per_worker=2, seed=seed),
        ):
            tell(arrangement.name)
            trials[arrangement.name] = laboratory.run(arrangement)
            if not trials["alone"].went_well:
                break  # everything else would fail of the same
        found = tuple(findings(trials))
    return CheckReport(name, found, time.monotonic() - began_at, was_built=not trials["alone"].never_ready)


def _ignore(name: str) -> None:
    """Nobody looks on."""


def _wrapped(text: str, width: int, first: str = "") -> list[str]:
    """Return lines in which nothing that could be copied is broken."""
    return textwrap.wrap(
        text,
        max(40, width),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )
