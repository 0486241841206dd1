"""What does not stand back can all be done in time, and as few stand back as can be."""

from __future__ import annotations

from itertools import combinations
from math import floor

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from tests.policies.views import replica, request, requests, shown
from turnout.core.latency import line
from turnout.policies.batching import lanes_of
from turnout.policies.quanta import Quanta
from turnout.policies.triage import triage

TICK_S = 2.0**-7
"""A power of two, so that whole numbers of ticks are exact and no test turns on rounding."""

FAST, SLOW = line(2 * TICK_S, TICK_S / 8), line(0.0, TICK_S)

FREE = st.lists(st.tuples(st.sampled_from(["cpu", "gpu"]), st.integers(0, 20)), min_size=1, max_size=4)
JOBS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=8)
MIXED = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60), st.sampled_from("mn")), min_size=1, max_size=12)
TRUST = st.sampled_from([0.25, 0.5, 0.75, 1.0])


def view(waiting, free, slo_ticks=16.0):
    """CPU and GPU replicas that are free after so many ticks; model "n" is twice as slow and has twice the time."""
    latencies = {
        "cpu": {"m": SLOW, "n": line(0.0, 2 * TICK_S)},
        "gpu": {"m": FAST, "n": line(4 * TICK_S, TICK_S / 4)},
    }
    replicas = [replica(name, i, free_s=ticks * TICK_S) for i, (name, ticks) in enumerate(free)]
    slo_s = {"m": slo_ticks * TICK_S, "n": 2 * slo_ticks * TICK_S}
    return shown(latencies, waiting, replicas, slo_s=slo_s)


def stands_back(seen, trust=1.0):
    """The requests of a view that stand back."""
    return {rid for rid, _ in triage(seen.waiting, lanes_of(seen), Quanta(seen), trust)}


def quanta_done(seen, model, due_s):
    """Items of `model` that the fleet finishes by then in whole quanta."""
    quanta, total = Quanta(seen), 0
    for r in seen.replicas:
        pool = seen.pools[r.pool]
        items = quanta.items(pool, model)
        total += items * max(floor((due_s - r.free_s) / pool.mean_s(model, items)), 0)
    return total


def rate(seen, model):
    """Items of `model` per second, all replicas together, in quanta."""
    quanta, total = Quanta(seen), 0.0
    for r in seen.replicas:
        items = quanta.items(seen.pools[r.pool], model)
        total += items / seen.pools[r.pool].mean_s(model, items)
    return total


@given(jobs=MIXED, free=FREE, trust=TRUST)
def test_what_does_not_stand_back_can_be_done(jobs, free, trust):
    """By each deadline, the work due until then is no more than the quanta that end before it, counted here anew."""
    seen = view([request(i, n, due * TICK_S, model) for i, (n, due, model) in enumerate(jobs)], free)
    back = stands_back(seen, trust)
    work_s = 0.0
    for w in seen.waiting:
        if w.rid not in back:
            work_s += w.items / rate(seen, w.model)
            done_s = trust * quanta_done(seen, w.model, w.deadline_s) / rate(seen, w.model)
            assert work_s <= done_s * (1 + 1e-6)


@given(jobs=JOBS, free=FREE, trust=TRUST)
def test_as_few_stand_back_as_can_be(jobs, free, trust):
    """No larger set of requests could be done by that measure: all of them were tried."""
    seen = view([request(i, n, due * TICK_S) for i, (n, due) in enumerate(jobs)], free)

    def possible(kept):
        return all(
            sum(w.items for w in kept[: i + 1]) <= trust * quanta_done(seen, "m", last.deadline_s)
            for i, last in enumerate(kept)
        )

    most = max(n for n in range(len(jobs) + 1) if any(map(possible, combinations(seen.waiting, n))))
    assert len(stands_back(seen, trust)) == len(jobs) - most


@given(jobs=JOBS)
def test_on_one_machine_it_is_moores_minimum(jobs):
    """With batches of one item, the count is the least number of late jobs over all orders of one machine."""
    waiting = [request(i, n, due * TICK_S) for i, (n, due) in enumerate(jobs)]
    seen = shown({"cpu": {"m": SLOW}}, waiting, pools={"cpu": {"max_items": 1}})

    def in_time(order):
        clock, met = 0, 0
        for n, due in order:
            clock += n
            met += clock <= due
        return met == len(order)

    by_deadline = sorted(jobs, key=lambda job: job[1])  # the best order of a set that can all be in time
    most = max(n for n in range(len(jobs) + 1) if any(map(in_time, combinations(by_deadline, n))))
    assert len(stands_back(seen)) == len(jobs) - most


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=20), free=FREE, due=st.integers(1, 60))
def test_where_all_is_due_at_once_the_largest_stand_back(sizes, free, due):
    """None that stands back is smaller than one that does not."""
    seen = view(requests(sizes, due * TICK_S), free)
    back = stands_back(seen)
    kept = [n for i, n in enumerate(sizes) if i not in back]
    assert max(kept, default=0) <= min((sizes[i] for i in back), default=40)


@given(jobs=MIXED, free=FREE)
def test_nothing_stands_back_when_there_is_plenty(jobs, free):
    """If all of it together could be done by the first deadline."""
    seen = view([request(i, n, (due + 200) * TICK_S, model) for i, (n, due, model) in enumerate(jobs)], free)
    first_s = seen.waiting[0].deadline_s
    work_s = sum(w.items / rate(seen, w.model) for w in seen.waiting)
    assume(all(work_s <= quanta_done(seen, model, first_s) / rate(seen, model) for model in "mn"))
    assert stands_back(seen) == set()


@given(jobs=JOBS, free=FREE, trusts=st.tuples(TRUST, TRUST))
def test_less_trust_never_sends_fewer_back(jobs, free, trusts):
    """Half the fleet cannot do more than all of it."""
    seen = view([request(i, n, due * TICK_S) for i, (n, due) in enumerate(jobs)], free)
    assert len(stands_back(seen, min(trusts))) >= len(stands_back(seen, max(trusts)))


@given(jobs=JOBS, free=FREE, models=st.lists(st.sampled_from("mn"), min_size=8, max_size=8))
def test_models_add_up(jobs, free, models):
    """Requests of two models that are alike in all but the name are treated as those of one."""
    replicas = [replica(name, i, free_s=ticks * TICK_S) for i, (name, ticks) in enumerate(free)]
    alike = {"cpu": {"m": SLOW, "n": SLOW}, "gpu": {"m": FAST, "n": FAST}}
    one = [request(i, n, due * TICK_S) for i, (n, due) in enumerate(jobs)]
    two = [request(i, n, due * TICK_S, models[i]) for i, (n, due) in enumerate(jobs)]
    slo_s = 16 * TICK_S
    assert stands_back(shown(alike, one, replicas, slo_s=slo_s)) == stands_back(
        shown(alike, two, replicas, slo_s=slo_s)
    )


def test_two_models_share_one_fleet():
    """Each alone fits into the time there is, and both together do not; the larger stands back, in seconds."""
    m, n = request(0, 30, 64 * TICK_S), request(1, 20, 64 * TICK_S, "n")  # 30 and 40 ticks of one CPU
    alone = [stands_back(view([w], [("cpu", 0)])) for w in (m, n)]
    assert alone == [set(), set()]
    assert stands_back(view([m, n], [("cpu", 0)])) == {1}


@pytest.mark.parametrize("latency", [line(1.0, 0.0), None])
def test_a_model_that_cannot_be_in_time_takes_no_other_with_it(latency):
    """Its batches take too long, or no lane serves it: it stands back, and what comes before it does not."""
    latencies = {"cpu": {"m": line(0.0, 0.001)}, "gpu": {"n": line(0.01, 0.0)}}
    if latency is not None:
        latencies["cpu"]["n"] = latency
    waiting = [request(0, 3, 0.04), request(1, 6, 0.04), request(2, 1, 0.05, "n"), request(3, 1, 0.05, "n")]
    seen = shown(latencies, waiting, [replica("cpu")], slo_s={"m": 0.05, "n": 2.0})
    assert stands_back(seen) == {2, 3}


def test_pieces_of_one_request_stand_back_by_themselves():
    """What is named is a range of items, not the request."""
    waiting = [request(0, 2, 4 * TICK_S), request(0, 9, 4 * TICK_S, start=2)]
    seen = shown({"cpu": {"m": SLOW}}, waiting, pools={"cpu": {"max_items": 1}})
    assert set(triage(seen.waiting, lanes_of(seen), Quanta(seen))) == {(0, 2)}
