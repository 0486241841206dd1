"""The schedules found for large traces obey the rules, beat plain dispatching, and get better with effort."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnout.bounds.beam import beam
from turnout.bounds.feasible import feasible, highest_rate
from turnout.bounds.fluid import fluid
from turnout.bounds.future import Future
from turnout.bounds.interval import least_misses
from turnout.bounds.repair import repair
from turnout.bounds.schedule import Batch, Instance, missed
from turnout.core.events import Part

FLEET = (1, 3)


def poisson(n=400, rate_per_s=1.0, seed=1, **changes):
    """Poisson arrivals of 1 to 40 items, due after 0.15 s, on one quick and three slow machines."""
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(1.0, n))
    sizes = np.arange(65)
    luck = (0.95, 1.0, 1.05)
    quick_s, slow_s = 0.012 + 0.0004 * sizes, 0.004 + 0.002 * sizes
    return Instance(
        at_s=(at_s - at_s[0]) / rate_per_s,
        items=rng.integers(1, 41, n),
        deadline_s=np.full(n, 0.15),
        replicas=FLEET,
        seconds=(np.outer(luck, quick_s), np.outer(luck, slow_s[:49])),
        luck=lambda rid, start: (7 * rid + start) % 3,
        **changes,
    )


def dispatched(instance):
    """First come, first served, each where it ends first: what knows no future."""
    free_s = [0.0] * len(instance.machines)
    schedule = []
    work_s = instance.alone_s()
    for rid in range(len(instance)):
        ends = [
            max(free, instance.at_s[rid]) + work_s[rid, pool]
            for free, pool in zip(free_s, instance.machines, strict=True)
        ]
        machine = int(np.argmin(ends))
        if ends[machine] <= instance.due_s[rid]:
            start_s = max(free_s[machine], float(instance.at_s[rid]))
            schedule.append(Batch(machine=machine, start_s=start_s, parts=(Part(rid, 0, int(instance.items[rid])),)))
            free_s[machine] = ends[machine]
    return schedule


MODES = {
    "alone": {},
    "merged": {"merge": True},
    "merged and split": {"merge": True, "max_parts": 4},
    "split": {"max_parts": 4},
}


@pytest.mark.parametrize("mode", MODES)
def test_it_obeys_the_rules_and_beats_dispatching(mode):
    """At a load at which some must be missed: bound <= found < first come, first served."""
    instance = poisson(rate_per_s=170.0, **MODES[mode])
    shared = instance.merge or instance.max_parts > 1
    work_s = instance.shared_s() if shared else instance.alone_s()
    bound = least_misses(instance.at_s, instance.deadline_s, work_s, FLEET).misses
    found = feasible(instance, width=6, rounds=1.0)
    assert found.misses == len(missed(instance, found.schedule))
    plain = len(missed(instance, dispatched(instance)))
    assert bound <= found.misses < 0.9 * plain
    assert plain > 50


def test_mixed_deadlines():
    """Requests are taken by deadline, not by arrival, and the rules still hold."""
    rng = np.random.default_rng(2)
    instance = replace(poisson(rate_per_s=150.0, merge=True, max_parts=4), deadline_s=rng.choice([0.1, 0.6], 400))
    found = feasible(instance, width=4)
    assert found.misses < len(missed(instance, dispatched(instance)))


def test_wider_is_not_worse_on_the_whole():
    """Summed over traces, a wide beam misses fewer than a narrow one."""
    traces = [poisson(rate_per_s=160.0, seed=seed) for seed in range(3)]
    misses = {width: sum(len(missed(t, beam(t, width, 0.7))) for t in traces) for width in (1, 16)}
    assert misses[16] < misses[1]


def test_repair_only_betters():
    """From a plain schedule it misses fewer, from any never more; the same seed gives the same schedule."""
    instance = poisson(rate_per_s=160.0)
    plain = dispatched(instance)
    once = repair(instance, plain, 1500, seed=3)
    assert len(missed(instance, once)) < len(missed(instance, plain))
    assert repair(instance, plain, 1500, seed=3) == once
    assert len(missed(instance, repair(instance, once, 50, seed=4))) <= len(missed(instance, once))
    with pytest.raises(ValueError, match="whole requests"):
        repair(poisson(merge=True), [], 1)


def test_known_schedules_are_taken_in():
    """The result is never worse than a schedule that somebody else found, and refuses one that breaks the rules."""
    instance = poisson(n=60, rate_per_s=60.0)
    good = repair(instance, dispatched(instance), 500)
    found = feasible(instance, width=1, patiences=(0.01,), rounds=0.0, known=[good])
    assert found.misses <= len(missed(instance, good))
    broken = [replace(good[0], start_s=-1.0), *good[1:]]
    with pytest.raises(ValueError, match="has not arrived"):
        feasible(instance, width=1, known=[broken])


def test_the_highest_rate_is_below_the_bound_and_kept():
    """The schedule that goes with it keeps the objective at that rate, and more than a bound is never found."""
    instance = poisson(n=300)
    bound = fluid(instance.alone_s(), FLEET, 0.02)
    tried = []
    found = highest_rate(
        instance, bound.rate_per_s, miss=0.02, width=3, rounds=0.5, seen=lambda rate, misses: tried.append(rate)
    )
    assert 0.6 * bound.rate_per_s < found.rate_per_s <= bound.highest_rate(0.15)
    assert len(missed(found.instance, found.found.schedule)) <= 6
    span_s = found.instance.at_s[-1]
    assert 299 / span_s == pytest.approx(found.rate_per_s)
    assert found.rate_per_s in tried


def test_no_rate_is_zero():
    """What no machine can do in time has rate 0, and is not searched for ever."""
    instance = replace(poisson(n=20), deadline_s=np.full(20, 1e-6))
    assert highest_rate(instance, 10.0, width=1).rate_per_s == 0.0


def test_nothing_is_a_schedule_of_nothing():
    """An instance without requests has an empty schedule."""
    empty = poisson(n=1)
    empty = replace(empty, at_s=empty.at_s[:0], items=empty.items[:0], deadline_s=empty.deadline_s[:0])
    assert beam(empty, 1, 0.5) == []


def test_the_future_grows_with_the_backlog():
    """More backlog never means fewer misses to come, and a quiet future means none."""
    next_s = np.array([0.0, 0.0, 0.0, 0.0, 100.0])
    future = Future(next_s, np.full(4, 0.5), 1.0, 0.7)
    misses = [future.misses(0, backlog) for backlog in np.linspace(0.0, 2.0, 50)]
    assert misses == sorted(misses)
    assert future.misses(0, 0.0) > 0.5
    assert Future(np.arange(5.0), np.full(4, 0.1), 1.0, 0.7).misses(0, 0.0) == 0.0
