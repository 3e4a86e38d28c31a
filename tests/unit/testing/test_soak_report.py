"""A report can be read by people on 80 columns, by CI, and by programs; and tells growth from noise."""

from __future__ import annotations

import json
import random
from xml.etree import ElementTree as ET

import pytest

from stepherd.core.deadline import Timeouts
from stepherd.testing.soak_record import CHECKS, CycleRecord, FaultOutcome, Violation
from stepherd.testing.soak_report import MIB, SoakReport, duration, memory_trend, percentile

COMMAND = "stepherd soak gymnasium:CartPole-v1 --seed 7"


def cycle(number: int, *faults: FaultOutcome, close_s: float = 0.1) -> CycleRecord:
    return CycleRecord(
        number, 1.0, 100, 400, 390, 8, 2, 0.4, close_s, n_restarts=1, restarts_s=(0.3,), faults=faults, gone_s=None
    )


def report(*found: Violation, n_cycles: int = 3, memory: tuple[int, ...] = ()) -> SoakReport:
    faults = (FaultOutcome("kill", "step", "named", 0.004), FaultOutcome("slow", "step", "endured"))
    cycles = (*(cycle(n, *faults) for n in range(1, n_cycles)), cycle(n_cycles))
    return SoakReport(
        "gymnasium:CartPole-v1", 4, 1, ("kill", "slow"), 7, Timeouts(), COMMAND, cycles, memory, tuple(found), 65.0
    )


def noisy(n: int, slope: float = 0.0, *, jump: int = 0) -> list[int]:
    """Return a memory of `n` cycles: 40 MiB with noise, a slope in bytes per cycle, and one jump in the middle."""
    rng = random.Random(1)
    return [int(40 * MIB + rng.gauss(0, 100_000) + i * slope + (jump if i > n // 2 else 0)) for i in range(n)]


def test_steady_growth_is_seen_through_the_noise() -> None:
    trend = memory_trend(noisy(60, 50_000))

    assert trend is not None
    assert trend.grows
    assert trend.per_cycle_bytes == pytest.approx(50_000, rel=0.2)


@pytest.mark.parametrize(
    "samples",
    [noisy(60), noisy(60, 2000), noisy(60, jump=3 * MIB), noisy(60, -50_000), [min(i, 10) * MIB for i in range(60)]],
    ids=["noise", "a little", "one jump", "shrinking", "warming up"],
)
def test_what_does_not_go_on_growing_is_no_growth(samples: list[int]) -> None:
    trend = memory_trend(samples)

    assert trend is not None
    assert not trend.grows


def test_a_few_cycles_say_nothing_and_thousands_are_no_work() -> None:
    assert memory_trend(noisy(23, 1e6)) is None
    assert memory_trend(noisy(24, 1e6)) is not None
    assert memory_trend(noisy(20_000, 100_000)) is not None


def test_growth_is_a_violation_and_spoils_the_report() -> None:
    good, bad = report(memory=tuple(noisy(40))), report(memory=tuple(noisy(40, 100_000)))

    assert good.is_clean
    good.check()
    assert [violation.check for violation in bad.violations] == ["memory"]
    with pytest.raises(AssertionError, match=r"the pool's process grows by 9\d KiB per cycle"):
        bad.check()


def test_the_text_fits_eighty_columns_and_says_what_matters() -> None:
    text = str(report())

    assert max(map(len, text.splitlines())) <= 80
    assert "gymnasium:CartPole-v1: 3 cycles, 4 workers, 0:01:05, seed 7" in text
    assert "1,200 sent = 1,170 delivered + 24 discarded + 6 never begun" in text
    assert "  kill              2      2 " in text
    assert "a death noticed                4.0 ms     4.0 ms     4.0 ms       2" in text
    assert "close, clean cycles" in text
    assert "0 violations of 13 checks" in text


def test_violations_that_differ_in_numbers_only_are_shown_once() -> None:
    alike = [Violation("orphans", n, f"process {1000 + n} is still there") for n in range(5)]

    text = str(report(*alike, Violation("values", 2, "a row\nwas changed")))

    assert "cycle 0: orphans: process 1000 is still there\n    … and 4 more like this" in text
    assert "cycle 2: values: a row\n    was changed" in text
    assert "6 violations: 5 × orphans, 1 × values.\nAgain: " + COMMAND in text


def test_junit_has_a_case_for_each_check_and_fails_those_that_were_violated() -> None:
    found = [Violation("values", 2, "bad \x00 <row> ]]> \ud800 & more"), Violation("values", 3, "another")]

    root = ET.fromstring(report(*found).to_junit().encode())

    suite = root.find("testsuite")
    assert suite is not None
    assert [case.get("name") for case in suite.iter("testcase")] == list(CHECKS)
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "13", "failures": "1", "errors": "0", "skipped": "1"}
    (failure,) = suite.iter("failure")
    assert "<row> ]]>" in (failure.text or "")
    assert "cycle 3: values: another" in (failure.text or "")
    assert f"again: {COMMAND}" in (failure.text or "")


def test_json_has_everything() -> None:
    data = json.loads(report(Violation("ports", 1, "x"), memory=tuple(noisy(40))).to_json())

    assert (data["seed"], data["is_clean"], data["n_cycles"]) == (7, False, 3)
    assert data["steps"] == {"sent": 1200, "delivered": 1170, "discarded": 24, "unbegun": 6}
    assert data["outcomes"]["kill"] == {"named": 2}
    assert data["times_s"]["restart"] == {"n": 3, "p50": 0.3, "p99": 0.3, "max": 0.3}
    assert data["violations"] == [{"check": "ports", "cycle": 1, "text": "x"}]
    assert len(data["cycles"]) == 3
    assert data["memory"]["grows"] is False


def test_a_report_of_nothing_can_be_shown() -> None:
    empty = SoakReport("e", 1, 1, (), 1, Timeouts(), COMMAND, (), (), (), 0.0, was_interrupted=True)

    assert "e: 0 cycles, 1 worker, 0:00:00, seed 1 (interrupted)" in str(empty)
    assert str(empty).endswith("No cycle was done.")
    assert json.loads(empty.to_json())["times_s"]["open"] is None
    ET.fromstring(empty.to_junit().encode())


def test_percentiles_are_values_that_were_there() -> None:
    assert [percentile([3.0, 1.0, 2.0], percent) for percent in (0, 50, 99, 100)] == [1.0, 2.0, 3.0, 3.0]
    assert percentile([5.0], 99) == 5.0


def test_durations_are_hours_minutes_and_seconds() -> None:
    assert [duration(seconds) for seconds in (0, 65.9, 7200)] == ["0:00:00", "0:01:05", "2:00:00"]
