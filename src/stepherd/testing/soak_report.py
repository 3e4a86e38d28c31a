"""What a soak has found: the table people read, and the files that programs read."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from stepherd._version import __version__
from stepherd.core.deadline import Timeouts
from stepherd.testing.soak_record import CHECKS, OUTCOMES, CycleRecord, Violation

MIB = 2**20
SAMPLES_MIN = 20  # fewer cycles say nothing about a trend
WARMING_UP = 0.2  # of the cycles, in which caches fill
GROWTH_BYTES_MIN = 16 * 1024  # per cycle; memory comes and goes in pages, and allocators keep some
WIDTH = 80  # of the text; only violations are longer
SHOWN_MAX = 10  # violations in the text; the files have all


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """How the memory of the pool's process went from cycle to cycle."""

    first_bytes: int
    last_bytes: int
    per_cycle_bytes: float
    grows: bool
    """Whether it goes up steadily: in the first half of the cycles and in the second."""


def memory_trend(samples: Sequence[int]) -> MemoryTrend | None:
    """Return the trend of memory sizes, one after each cycle; None when there are too few to tell.

    The slope is the median of those between all pairs, so a single jump does not make one.
    """
    steady = _steady(samples)
    if len(steady) < SAMPLES_MIN:
        return None
    half = len(steady) // 2
    slopes = [_slope(steady[:half]), _slope(steady[half:])]
    grows = min(slopes) > GROWTH_BYTES_MIN and steady[-1] - steady[0] > GROWTH_BYTES_MIN * len(steady) / 2
    return MemoryTrend(steady[0], steady[-1], _slope(steady), grows)


def _steady(samples: Sequence[int]) -> Sequence[int]:
    return samples[int(len(samples) * WARMING_UP) :]


def _slope(samples: Sequence[int]) -> float:
    step = max(1, len(samples) // 100)  # thousands of cycles have millions of pairs
    points = list(enumerate(samples))[::step]
    return statistics.median((b - a) / (j - i) for n, (i, a) in enumerate(points) for j, b in points[n + 1 :])


@dataclass(frozen=True, slots=True)
class SoakReport:
    """What a soak has found. Good when `is_clean`; `str` of it is the table."""

    env: str
    num_envs: int
    envs_per_worker: int
    faults: tuple[str, ...]
    seed: int
    timeouts: Timeouts
    command: str
    """What does the same again."""
    cycles: tuple[CycleRecord, ...]
    """Those that are done, without the trial."""
    memory: tuple[int, ...]
    """Bytes of the pool's process after one cycle after the other."""
    found: tuple[Violation, ...]
    """The violations of the trial and of all cycles."""
    took_s: float
    was_interrupted: bool = False

    @property
    def violations(self) -> tuple[Violation, ...]:
        """All violations, that of the memory trend included."""
        trend = memory_trend(self.memory)
        if trend is None or not trend.grows:
            return self.found
        text = (
            f"the pool's process grows by {trend.per_cycle_bytes / 1024:.0f} KiB per cycle: "
            f"{trend.first_bytes / MIB:.1f} MiB → {trend.last_bytes / MIB:.1f} MiB"
        )
        return (*self.found, Violation("memory", len(self.cycles), text))

    @property
    def is_clean(self) -> bool:
        """Whether there is no violation."""
        return not self.violations

    @property
    def n_steps(self) -> int:
        """Steps delivered."""
        return sum(cycle.delivered for cycle in self.cycles)

    def check(self) -> None:
        """Check that there is no violation.

        Raises:
            AssertionError: there is one; the message is the table.
        """
        assert self.is_clean, f"\n{self}"

    def outcomes(self) -> dict[str, Counter[str]]:
        """Return how often each kind of fault had each outcome."""
        found: dict[str, Counter[str]] = {kind: Counter() for kind in self.faults}
        for cycle in self.cycles:
            for fault in cycle.faults:
                found.setdefault(fault.kind, Counter())[fault.outcome] += 1
        return found

    def times(self) -> dict[str, list[float]]:
        """Return how long things took in seconds, by what it was."""
        clean = [cycle for cycle in self.cycles if cycle.is_clean]
        struck = [cycle for cycle in self.cycles if not cycle.is_clean]
        faults = [fault for cycle in self.cycles for fault in cycle.faults]
        died = ("kill", "segv", "abort", "exit")
        return {
            "open": _known(cycle.open_s for cycle in self.cycles),
            "close, clean cycles": _known(cycle.close_s for cycle in clean),
            "close, cycles with faults": _known(cycle.close_s for cycle in struck),
            "a death noticed": _known(fault.noticed_s for fault in faults if fault.kind in died),
            "restart": [seconds for cycle in self.cycles for seconds in cycle.restarts_s],
            "gone after the parent": _known(cycle.gone_s for cycle in self.cycles),
        }

    def __str__(self) -> str:
        return "\n".join(_Text(self).lines())

    def to_json(self) -> str:
        """Return everything as JSON."""
        trend = memory_trend(self.memory)
        data = {
            "stepherd": __version__,
            "env": self.env,
            "num_envs": self.num_envs,
            "envs_per_worker": self.envs_per_worker,
            "faults": self.faults,
            "seed": self.seed,
            "command": self.command,
            "timeouts": dataclasses.asdict(self.timeouts),
            "took_s": self.took_s,
            "was_interrupted": self.was_interrupted,
            "is_clean": self.is_clean,
            "n_cycles": len(self.cycles),
            "steps": {name: sum(getattr(c, name) for c in self.cycles) for name in _COUNTS},
            "n_restarts": sum(cycle.n_restarts for cycle in self.cycles),
            "outcomes": self.outcomes(),
            "times_s": {name: _summary(values) for name, values in self.times().items()},
            "memory": dataclasses.asdict(trend) if trend is not None else None,
            "violations": [dataclasses.asdict(violation) for violation in self.violations],
            "cycles": [_plain(cycle) for cycle in self.cycles],
        }
        return json.dumps(data, indent=1, ensure_ascii=False)

    def to_junit(self) -> str:
        """Return a JUnit file: a test case for each check."""
        violations = self.violations
        suite = ET.Element("testsuite", name=_xml(f"stepherd soak {self.env}"), time=f"{self.took_s:.3f}")
        properties = ET.SubElement(suite, "properties")
        for name in ("env", "num_envs", "envs_per_worker", "seed", "command"):
            ET.SubElement(properties, "property", name=name, value=_xml(str(getattr(self, name))))
        n_failed = 0
        for check, truth in CHECKS.items():
            case = ET.SubElement(suite, "testcase", classname="stepherd.soak", name=check, time="0")
            of_this = [violation for violation in violations if violation.check == check]
            if of_this:
                n_failed += 1
                failure = ET.SubElement(case, "failure", type="violation", message=_xml(of_this[0].text[:300]))
                failure.text = _xml("\n".join([*map(str, of_this), f"again: {self.command}"]))
            elif check == "memory" and memory_trend(self.memory) is None:
                ET.SubElement(case, "skipped", message="too few cycles to tell")
            else:
                ET.SubElement(case, "system-out").text = truth
        n_skipped = len(suite.findall("testcase/skipped"))
        suite.attrib |= {"tests": str(len(CHECKS)), "failures": str(n_failed), "errors": "0", "skipped": str(n_skipped)}
        suites = ET.Element("testsuites")
        suites.append(suite)
        ET.indent(suites)
        return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


_COUNTS = ("sent", "delivered", "discarded", "unbegun")
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _xml(text: str) -> str:
    return _NOT_IN_XML.sub("�", text)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _plain(cycle: CycleRecord) -> dict[str, object]:
    data = dataclasses.asdict(cycle)
    del data["violations"]  # the report has them all
    return data


def _summary(values: Sequence[float]) -> dict[str, float | int] | None:
    if not values:
        return None
    return {"n": len(values), "p50": percentile(values, 50), "p99": percentile(values, 99), "max": max(values)}


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of `values` that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


@dataclass(frozen=True, slots=True)
class _Text:
    """The report as lines, none longer than 80 characters but for the violations."""

    report: SoakReport

    def lines(self) -> list[str]:
        report = self.report
        n = len(report.cycles)
        workers = f"{report.num_envs} worker{'s' * (report.num_envs != 1)}"
        if report.envs_per_worker > 1:
            workers += f" with {report.envs_per_worker} envs each"
        cycles = f"{n} cycle{'s' * (n != 1)}"
        head = f"{report.env}: {cycles}, {workers}, {duration(report.took_s)}, seed {report.seed}"
        if report.was_interrupted:
            head += " (interrupted)"
        return [head, "", *self._steps(), *self._faults(), *self._times(), *self._memory(), "", *self._verdict()]

    def _steps(self) -> list[str]:
        cycles = self.report.cycles
        sent, delivered, discarded, unbegun = (sum(getattr(c, name) for c in cycles) for name in _COUNTS)
        restarts = sum(cycle.n_restarts for cycle in cycles)
        return [
            f"  actions   {sent:,} sent = {delivered:,} delivered + {discarded:,} discarded + {unbegun:,} never begun",
            f"  workers   {restarts:,} restart{'s' * (restarts != 1)}",
        ]

    def _faults(self) -> list[str]:
        if not self.report.faults:
            return ["  faults    none asked for"]
        columns = ("struck", *OUTCOMES)
        lines = ["", f"  {'fault':<11}" + "".join(f"  {name}" for name in columns)]
        for kind, counts in self.report.outcomes().items():
            numbers = {"struck": sum(counts.values()) - counts["too late"], **counts}
            cells = [f"{numbers.get(name) or '-':>{len(name) + 2}}" for name in columns]
            lines.append(f"  {kind:<11}" + "".join(cells))
        return lines

    def _times(self) -> list[str]:
        lines = ["", f"  {'time':<26}{'p50':>11}{'p99':>11}{'max':>11}{'of':>8}"]
        for name, values in self.report.times().items():
            if values:
                figures = (percentile(values, 50), percentile(values, 99), max(values))
                lines.append(f"  {name:<26}" + "".join(f"{_seconds(s):>11}" for s in figures) + f"{len(values):>8}")
        return lines if len(lines) > 2 else []

    def _memory(self) -> list[str]:
        trend = memory_trend(self.report.memory)
        if trend is None:
            enough = next(n for n in itertools.count() if len(_steady(range(n))) >= SAMPLES_MIN)
            return ["", f"  memory    of the pool's process: a trend needs {enough} cycles"]
        per_cycle = f"{trend.per_cycle_bytes / 1024:+.1f} KiB per cycle"
        sizes = f"{trend.first_bytes / MIB:.1f} → {trend.last_bytes / MIB:.1f} MiB"
        return ["", f"  memory    of the pool's process: {sizes}, {per_cycle}"]

    def _verdict(self) -> list[str]:
        violations = self.report.violations
        if not violations and not self.report.cycles:
            return ["No cycle was done."]
        if not violations:
            return textwrap.wrap(f"0 violations of {len(CHECKS)} checks: {', '.join(CHECKS)}.", WIDTH)
        counts = Counter(violation.check for violation in violations)
        alike: dict[str, list[Violation]] = {}
        for violation in violations:
            alike.setdefault(violation.likeness, []).append(violation)
        lines = [_first_of(group) for group in list(alike.values())[:SHOWN_MAX]]
        if len(alike) > SHOWN_MAX:
            lines.append(f"… and {len(alike) - SHOWN_MAX} other kinds; --json FILE has them all")
        listed = ", ".join(f"{n} × {check}" for check, n in counts.most_common())
        plural = "s" * (len(violations) != 1)
        return [*lines, "", f"{len(violations)} violation{plural}: {listed}.", f"Again: {self.report.command}"]


def _first_of(alike: Sequence[Violation]) -> str:
    text = str(alike[0]).replace("\n", "\n    ")
    return text if len(alike) == 1 else f"{text}\n    … and {len(alike) - 1} more like this"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def duration(seconds: float) -> str:
    """Return `0:01:05` for 65 seconds."""
    minutes, left = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}"
