"""No fleet that meets the objective is cheaper than the bound, and no cut removes one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.regret.requests import log, of_curves
from turnout.core.cost import Price
from turnout.core.latency import line
from turnout.policies import POLICIES
from turnout.regret import floor, runs
from turnout.regret.traffic import of

MOST = 3


@st.composite
def instances(draw):
    """A few requests on two pools with exact times, and an objective that may miss some of them."""
    n = draw(st.integers(3, 12))
    at_s = np.cumsum(draw(st.lists(st.sampled_from([0.0, 0.001, 0.01, 0.05]), min_size=n, max_size=n)))
    items = draw(st.lists(st.sampled_from([1, 2, 5, 10, 40]), min_size=n, max_size=n))
    table = log(at_s - at_s[0], items, np.full(n, 0.01), backends=("cpu-0",))
    deadline_s, attainment = draw(st.sampled_from([0.012, 0.03, 0.1])), draw(st.sampled_from([0.7, 1.0]))
    curves = {"gpu": line(0.010, 0.0001), "cpu": line(0.001, 0.001)}
    own = of_curves(curves, deadline_s, attainment, merged=draw(st.booleans()))
    return of(table, own.head.models, 1), own


@given(instances())
@settings(max_examples=150, deadline=None)
def test_no_policy_meets_the_objective_below_the_bound(instance):
    """Bound <= the cheapest fleet of a grid that any shipped policy meets the objective with; no cut removes one."""
    traffic, own = instance
    merged = own.head.models[0].mergeable
    work_s = floor.work(traffic, own.pools, own.latencies, merged=merged)
    cuts = floor.floor(traffic, own.pools, work_s, 1.0 - own.attainment)
    least = cuts.least_usd_per_h()
    limit = int((1.0 - own.attainment) * len(traffic) + 1e-9)
    for counts in product(range(MOST + 1), repeat=2):
        if not any(counts):
            continue
        for name in set(POLICIES) - {"pinned"}:
            if not runs.run(own, traffic, counts, name, {}, most_missed=limit).stopped:
                assert cuts.allows(counts)
                assert least <= 0.5 * counts[0] + 0.1 * counts[1] + 1e-9


@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([0.0, 0.1, 0.3]))
@settings(max_examples=60, deadline=None)
def test_in_parts_of_machines_it_is_the_linear_programme(seed, pools, miss):
    """The first cut, at the pools' own prices, is the optimum of the fluid programme; checked against HiGHS."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    rng = np.random.default_rng(seed)
    n = 10
    table = log(np.arange(n) * 0.1, np.ones(n), np.full(n, 0.01))
    own = of_curves({"gpu": line(0.01, 0.0), "cpu": line(0.01, 0.0)}, 0.5, 1.0, merged=False)
    specs = [
        replace(own.pools[0], name=str(i), price=Price(usd_per_s=float(rng.uniform(0.1, 1.0)) / 3600))
        for i in range(pools)
    ]
    work_s = rng.uniform(0.01, 1.0, (n, pools))
    cuts = floor.floor(of(table, own.head.models, 1), specs, work_s, miss)
    horizon_s = table.at_s[-1] + 0.5
    drop = int(miss * n + 1e-9)
    # variables: x (n, pools), machines (pools), dropped (n)
    cost = np.concatenate([np.zeros(n * pools), [s.price.usd_per_s * 3600 for s in specs], np.zeros(n)])
    rows, limits = [], []
    for r in range(n):
        row = np.zeros(len(cost))
        row[r * pools : (r + 1) * pools] = -1.0
        row[n * pools + pools + r] = -1.0
        rows.append(row)
        limits.append(-1.0)
    for i in range(pools):
        row = np.zeros(len(cost))
        row[np.arange(n) * pools + i] = work_s[:, i]
        row[n * pools + i] = -horizon_s
        rows.append(row)
        limits.append(0.0)
    rows.append(np.concatenate([np.zeros(n * pools + pools), np.ones(n)]))
    limits.append(drop)
    bounds = [(0, 1)] * (n * pools) + [(0, None)] * pools + [(0, 1)] * n
    best = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=bounds).fun
    assert cuts.needed[0] == pytest.approx(best, rel=1e-6)
    assert cuts.least_usd_per_h() >= best * (1.0 - 1e-6)


@given(instances())
@settings(max_examples=60, deadline=None)
def test_the_bound_is_the_cheapest_fleet_that_no_cut_removes(instance):
    """`least_usd_per_h` agrees with trying every fleet of a large grid against `allows`."""
    traffic, own = instance
    work_s = floor.work(traffic, own.pools, own.latencies, merged=False)
    cuts = floor.floor(traffic, own.pools, work_s, 1.0 - own.attainment)
    allowed = [0.5 * g + 0.1 * c for g, c in product(range(15), repeat=2) if cuts.allows((g, c))]
    least = cuts.least_usd_per_h()
    assert (min(allowed) if allowed else np.inf) == pytest.approx(least)


def test_what_no_pool_can_do_is_impossible():
    """If more requests than may be missed are too slow everywhere, no fleet is enough."""
    table = log([0.0, 1.0], [64, 64], [0.1, 0.1])
    own = of_curves({"gpu": line(0.02, 0.0), "cpu": line(0.02, 0.0)}, 0.01, 0.99, merged=False)
    traffic = of(table, own.head.models, 1)
    cuts = floor.floor(traffic, own.pools, floor.work(traffic, own.pools, own.latencies, merged=True), 0.01)
    assert not cuts.possible
    assert cuts.least_usd_per_h() == np.inf
    assert not cuts.allows((9, 9))


def test_merging_lowers_the_bound():
    """The best amortised rate is at most what a request takes alone: the bound with merging is below."""
    table = log(np.arange(50) * 0.001, np.ones(50), np.full(50, 0.01))
    own = of_curves({"gpu": line(0.01, 0.0001), "cpu": line(0.01, 0.001)}, 0.1, 1.0, merged=True)
    traffic = of(table, own.head.models, 1)
    models = own.latencies
    alone, merged = (floor.work(traffic, own.pools, models, merged=m) for m in (False, True))
    assert (merged <= alone).all()
    assert merged[0, 0] == pytest.approx((0.01 + 0.0001 * 64) / 64, rel=0.02)
