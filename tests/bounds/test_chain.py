"""bound <= optimum <= best feasible found <= policy, in misses, on the same instance with the same service times."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import assume, event, given, settings

from tests.bounds.instances import cases
from turnout.bounds.beam import beam
from turnout.bounds.exact import exact
from turnout.bounds.feasible import feasible
from turnout.bounds.fluid import allowed_misses, amortised, fluid, least_drops
from turnout.bounds.interval import highest_rate, least_misses
from turnout.bounds.schedule import missed
from turnout.policies import POLICIES


def fluid_misses(instance, work_s):
    """B1 or B2 as a number of misses: what must be left out for the rest to fit before the last deadline."""
    horizon_s = float(instance.due_s.max() - instance.at_s[0])
    return ceil(least_drops(work_s, horizon_s * np.array(instance.replicas, dtype=float))[0] - 1e-6)


def bounds(instance):
    """The fluid bound and the demand bound that hold for the instance: B1 work if it runs alone, else B2."""
    shared = instance.merge or instance.max_parts > 1
    work_s = instance.shared_s() if shared else instance.alone_s()
    demand = least_misses(instance.at_s, instance.deadline_s, work_s, instance.replicas)
    return fluid_misses(instance, work_s), demand.misses


@given(cases())
@settings(max_examples=60, deadline=None)
def test_without_splitting(case):
    """B1 or B2 <= B3 <= optimum = best feasible <= every shipped policy, whose log is a schedule by the same rules."""
    instance = case.instance()
    fluid_bound, demand_bound = bounds(instance)
    optimum = exact(instance).misses
    assert fluid_bound <= demand_bound <= optimum
    event(f"bound meets the optimum: {demand_bound == optimum}")
    runs = {name: case.run(name) for name in POLICIES}
    found = feasible(instance, width=4, patiences=(0.7,), known=[batches for _, batches in runs.values()])
    assert found.misses == optimum
    for name, (misses, batches) in runs.items():
        assert found.misses <= misses, name
        assert len(missed(instance, batches)) == misses, name


@given(cases(splits=(2,)))
@settings(max_examples=40, deadline=None)
def test_with_splitting(case):
    """The same where requests may be cut: the optimum cuts them into single items, the search does not know it."""
    instance = case.instance()
    assume(instance.items.sum() <= 7)
    fluid_bound, demand_bound = bounds(instance)
    optimum = exact(instance).misses
    assert fluid_bound <= demand_bound <= optimum
    runs = {name: case.run(name) for name in POLICIES}
    found = feasible(instance, width=4, patiences=(0.7, 1.0), known=[batches for _, batches in runs.values()])
    assert optimum <= found.misses <= min(misses for misses, _ in runs.values())


@given(cases(most=8))
@settings(max_examples=60, deadline=None)
def test_the_search_alone_is_above_the_optimum(case):
    """A beam's schedule obeys the rules and never has fewer misses than the optimum."""
    instance = case.instance()
    assert len(missed(instance, beam(instance, 8, 0.7))) >= exact(instance).misses


@given(cases(most=8))
@settings(max_examples=20, deadline=None)
def test_the_bounds_in_terms_of_rates(case):
    """No scaling of the arrivals at which the optimum keeps the objective is above the bounds on the rate."""
    instance = case.instance()
    span_s = float(instance.at_s[-1] - instance.at_s[0])
    assume(span_s > 0.0)
    work_s = instance.shared_s() if instance.merge else instance.alone_s()
    grace_s = float(instance.due_s.max() - instance.at_s[-1])
    strict = fluid(work_s, instance.replicas, 0.3).highest_rate(grace_s)
    demand = highest_rate(instance.at_s, instance.deadline_s, work_s, instance.replicas, 0.3)
    assert demand <= strict
    if exact(instance).misses <= allowed_misses(len(instance), 0.3):
        assert (len(instance) - 1) / span_s <= demand


def test_merging_never_raises_the_bound():
    """B2 work is at most B1 work: what is true of all schedules is true of those that do not merge."""
    rng = np.random.default_rng(4)
    took_s = 0.01 + 0.002 * np.arange(1, 65)
    items, deadline_s = rng.integers(1, 65, 200), rng.uniform(0.01, 0.2, 200)
    alone_s = np.where(took_s[items - 1] <= deadline_s, took_s[items - 1], np.inf)
    shared_s = amortised(items, [took_s], deadline_s)[:, 0]
    assert (shared_s <= alone_s).all()
    assert (shared_s < alone_s).mean() == pytest.approx(0.9, abs=0.1)
