"""The assignment is the best there is, and gives no request what it may not have."""

from __future__ import annotations

from itertools import product
from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.policies.views import replica, request, shown
from turnout.core.latency import line
from turnout.policies.batching import lanes_of
from turnout.policies.matching import assign, solver

SPREAD = (0.8, 0.9, 1.0, 1.1, 1.2)
LATENCIES = {"cpu": {"m": line(0.002, 0.001, SPREAD)}, "gpu": {"m": line(0.010, 0.00005, SPREAD)}}
POOLS = {"cpu": {"max_items": 40}, "gpu": {"max_items": 256}}
BUSY = st.lists(st.tuples(st.sampled_from(["cpu", "gpu"]), st.floats(0.0, 0.04)), min_size=1, max_size=3)
SINGLES = st.lists(
    st.tuples(st.integers(1, 60), st.floats(0.001, 0.1), st.sampled_from([(), ("cpu",), ("gpu",)])),
    min_size=1,
    max_size=4,
)
PRICES = st.fixed_dictionaries({"cpu": st.floats(1.0, 4.0), "gpu": st.floats(1.0, 4.0)})


def seen(jobs, busy, now_s=0.0):
    """Requests of (items, due, barred) and replicas of (pool, seconds until free); all times are after `now_s`."""
    waiting = [request(i, n, now_s + due, barred=barred) for i, (n, due, barred) in enumerate(jobs)]
    replicas = [replica(name, i, free_s=now_s + free_s) for i, (name, free_s) in enumerate(busy)]
    return shown(LATENCIES, waiting, replicas, pools=POOLS, now_s=now_s)


def assigned(view, price, seats=1):
    """Request -> replica's number, of those with a first seat."""
    lanes = lanes_of(view)
    pairs = assign(solver(), view.waiting, lanes, price, now_s=view.now_s, seats=seats)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    return {view.waiting[i].rid: j for i, j in pairs}


class Seat:
    """What a seat would cost each request, worked out one at a time; `seat` 1 waits for an average first batch."""

    def __init__(self, view, j, price, seat):
        lane, pool = view.replicas[j], view.pools[view.replicas[j].pool]
        able = [w for w in view.waiting if w.items <= pool.spec.max_items and lane.pool not in w.barred]
        ahead_s = sum(pool.mean_s("m", w.items) for w in able) / len(able) if able and seat else 0.0
        start_s = max(lane.free_s, view.now_s) - view.now_s + ahead_s
        self.first = j if seat == 0 else None
        self.usd, self.safe = {}, {}
        for w in able:
            if start_s + pool.mean_s("m", w.items) <= w.deadline_s - view.now_s:
                self.usd[w.rid] = price[lane.pool] * (start_s + pool.mean_s("m", w.items))
                self.safe[w.rid] = start_s + pool.p99_s("m", w.items) <= w.deadline_s - view.now_s


def best(view, price, seats):
    """Over all ways to seat the requests: the best, and what the first seats are in each that is as good.

    Most in time on average before all else, then most safe, then the least price.
    """
    table = [Seat(view, j, price, seat) for seat in range(seats) for j in range(len(view.replicas))]
    found, least = [], (inf, inf, inf)
    for way in product([None, *range(len(table))], repeat=len(view.waiting)):
        taken = [(w.rid, table[k]) for w, k in zip(view.waiting, way, strict=True) if k is not None]
        if len({k for k in way if k is not None}) < len(taken) or any(rid not in seat.usd for rid, seat in taken):
            continue
        unsafe = sum(not seat.safe[rid] for rid, seat in taken)
        score = (-len(taken), unsafe, sum(seat.usd[rid] for rid, seat in taken))
        firsts = {rid: seat.first for rid, seat in taken if seat.first is not None}
        found.append((score, firsts))
        least = min(least, score)
    return [firsts for score, firsts in found if score[:2] == least[:2] and score[2] <= least[2] * (1 + 1e-6) + 1e-12]


@pytest.mark.parametrize("seats", [1, 2])
@given(jobs=SINGLES, busy=BUSY, price=PRICES, now_s=st.sampled_from([0.0, 100.0]))
def test_it_is_the_best_of_all_assignments(seats, jobs, busy, price, now_s):
    """Tried against every other one: as many in time as can be, of those as many safe, at the least price."""
    view = seen(jobs[: 5 - seats], busy[: 4 - seats], now_s)
    assert assigned(view, price, seats) in best(view, price, seats)


@given(jobs=SINGLES, busy=BUSY, price=PRICES, seats=st.integers(1, 2))
def test_no_request_gets_what_it_may_not_have(jobs, busy, price, seats):
    """Not a pool that it failed on, a batch beyond the pool's limit, a seat that is late, or one that is taken."""
    view = seen(jobs, busy)
    for rid, j in assigned(view, price, seats).items():
        (w,) = (w for w in view.waiting if w.rid == rid)
        lane, pool = view.replicas[j], view.pools[view.replicas[j].pool]
        assert lane.pool not in w.barred
        assert w.items <= pool.spec.max_items
        assert lane.free_s + pool.mean_s("m", w.items) <= w.deadline_s


def test_one_that_may_be_late_comes_after_one_that_is_safe():
    """Both want the only replica; by price the smaller would be first, and it is in time only on average."""
    risky, safe = (4, 0.0065, ()), (10, 0.05, ())
    assert assigned(seen([risky], [("cpu", 0.0)]), {"cpu": 1.0}) == {0: 0}
    assert assigned(seen([risky, safe], [("cpu", 0.0)]), {"cpu": 1.0}) == {1: 0}


def test_with_second_seats_who_can_wait_does():
    """One GPU: the smaller request is the cheaper one to begin with, and the only one that can be in time after."""
    view = seen([(40, 0.015, ()), (5, 0.1, ())], [("gpu", 0.0)])
    assert assigned(view, {"gpu": 1.0}, seats=1) == {1: 0}
    assert assigned(view, {"gpu": 1.0}, seats=2) == {0: 0}


@pytest.mark.parametrize("jobs", [[(1, -0.01, ())], [(300, 1.0, ())], [(5, 1.0, ("cpu", "gpu"))]])
def test_nothing_possible_is_no_pairs(jobs):
    """Overdue, larger than any batch, or barred everywhere."""
    assert assigned(seen(jobs, [("cpu", 0.0), ("gpu", 0.0)]), {"cpu": 1.0, "gpu": 1.0}, seats=2) == {}


def test_a_dearer_second_is_left_to_who_gains_most():
    """At a high price of the GPU the small request is for the CPU and the large one for the GPU, whatever the order."""
    price = {"cpu": 1.0, "gpu": 2.0}
    for sizes in ((5, 35), (35, 5)):
        found = assigned(seen([(n, 0.1, ()) for n in sizes], [("cpu", 0.0), ("gpu", 0.0)]), price)
        assert {sizes[rid]: j for rid, j in found.items()} == {5: 0, 35: 1}
