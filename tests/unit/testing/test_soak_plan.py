"""A plan is the same for the same seed, has only what was asked for, and every fault where it can be."""

from __future__ import annotations

from collections import Counter

import pytest

from stepherd.testing.soak_plan import ALIASES, KINDS, CyclePlan, Shape, plan_cycle, read_faults

ALL = Shape(n_workers=4, envs_per_worker=2, n_rounds=50, faults=tuple(KINDS))
N_CYCLES = 300


def plans(shape: Shape = ALL, seed: int = 1) -> list[CyclePlan]:
    return [plan_cycle(seed, cycle, shape) for cycle in range(1, N_CYCLES)]


def test_the_same_seed_gives_the_same_plans_and_another_one_others() -> None:
    assert plans(seed=5) == plans(seed=5)
    assert plans(seed=5) != plans(seed=6)


def test_a_plan_does_not_depend_on_the_cycles_before_it() -> None:
    assert plan_cycle(7, 123, ALL) == plans(seed=7)[122]


def test_every_kind_has_its_turn_within_as_many_cycles_as_there_are_kinds() -> None:
    first = [kind for plan in plans()[: 4 * len(KINDS)] for kind in (*plan.faults, plan.parent) if kind is not None]

    assert {fault.kind for fault in first} == set(KINDS)


def test_faults_strike_workers_envs_rounds_and_places_that_there_are() -> None:
    for plan in plans():
        for fault in (*plan.faults, *([plan.parent] if plan.parent else [])):
            assert fault.where in KINDS[fault.kind].where
            assert 0 <= fault.worker_id < 4
            assert 0 <= fault.env_index < 2
            assert 0 <= fault.at_round < 50
            assert 0.0 <= fault.after < 1.0


def test_fault_ids_are_different_within_a_cycle() -> None:
    for plan in plans():
        ids = [fault.fault_id for fault in plan.faults]
        assert len(set(ids)) == len(ids)
        assert all(ids)


def test_a_fault_in_a_reset_finds_a_reset_in_its_round() -> None:
    in_resets = [(plan, f) for plan in plans() for f in plan.faults if f.where == "reset"]

    assert in_resets
    assert all(fault.at_round in plan.resets_at for plan, fault in in_resets)


def test_a_worker_that_dies_in_its_first_start_is_alone_in_its_cycle() -> None:
    first_starts = [p for p in plans() if any(f.where == "spawn" and f.at_round == 0 for f in p.faults)]

    assert first_starts
    assert all(len(plan.faults) == 1 for plan in first_starts)


def test_some_cycles_are_left_alone_and_the_habits_of_the_caller_vary() -> None:
    found = plans()

    assert any(not plan.faults and plan.parent is None for plan in found)
    for habit in ("waits_for_all", "settles", "drains"):
        assert set(Counter(getattr(plan, habit) for plan in found)) == {True, False}


def test_without_faults_there_are_none_and_in_the_trial_never() -> None:
    assert not any(plan.faults or plan.parent for plan in plans(Shape(4, 1, 10)))
    trial = plan_cycle(1, 0, ALL)
    assert not trial.faults
    assert trial.parent is None
    assert trial.resets_at == {0}
    assert trial.settles
    assert trial.drains


def test_only_kinds_that_were_asked_for_are_planned() -> None:
    shape = Shape(4, 1, 10, ("kill", "slow"))

    assert {fault.kind for plan in plans(shape) for fault in plan.faults} == {"kill", "slow"}
    assert all(plan.parent is None for plan in plans(shape))


def test_faults_are_read_from_words_in_any_form() -> None:
    assert read_faults("kill, FREEZE,,kill") == ("kill", "freeze")
    assert read_faults(["raise,oom", "kill"]) == ("raise", "oom", "kill")
    assert read_faults("all") == tuple(KINDS)
    assert read_faults("none") == read_faults("") == ()
    assert [read_faults(alias) for alias in ALIASES] == [(kind,) for kind in ALIASES.values()]


def test_an_unknown_fault_is_refused_with_the_list_of_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'earthquake' is no kind of fault; there are all, none, kill, .*parent"):
        read_faults("kill,earthquake")
