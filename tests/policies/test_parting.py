"""Models share replicas where their batches can be short enough for each other, and are parted where not."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from tests.fleets import pool
from tests.policies.views import replica, request, shown
from turnout import policies, simulate
from turnout.core import events as ev
from turnout.core.fleet import Fleet
from turnout.core.latency import line
from turnout.core.standing import Standing
from turnout.core.workload import Slo, Workload
from turnout.policies import parting
from turnout.policies.batching import lanes_of
from turnout.policies.parting import NOT_PARTED, groups, lent, parted
from turnout.simulate import from_model

QUICK, SLOW = line(0.0005, 0.00005), line(0.040, 0.001)
"""At most a few milliseconds, and 40 for a batch of any size."""


def standing(per_s, items=1, max_parts=1, now_s=10.0):
    """A model with so many requests of so many items in each of the last ten seconds."""
    found = Standing(attainment=0.99)
    for i in range(round(10 * per_s)):
        found.arrive(now_s - 10.0 + i / per_s, items, max_parts)
    return found


def seen(replicas=4, slo_s=None, waiting=(), slow=SLOW, per_s=None, **changes):
    """Models "quick" (due in 5 ms) and "slow" (in 300 ms) on one CPU pool, both with traffic."""
    per_s = per_s or {"quick": 50.0, "slow": 5.0}
    return shown(
        {"cpu": {"quick": QUICK, "slow": slow}},
        waiting,
        [replica("cpu", i) for i in range(replicas)],
        slo_s=slo_s or {"quick": 0.005, "slow": 0.3},
        standings={model: standing(rate, **changes) for model, rate in per_s.items()},
        now_s=10.0,
    )


WAITING = (request(1, model="quick", due_s=10.005), request(2, model="slow", due_s=10.3))


def test_unlike_models_are_groups_of_their_own_and_like_ones_are_not():
    """A batch of 40 ms cannot share with what is due in 5 ms; with the same deadline there is nothing to part."""
    assert groups(seen(), (), 0.5) == [["quick"], ["slow"]]
    assert groups(seen(slo_s={"quick": 0.3, "slow": 0.3}), (), 0.5) == [["quick", "slow"]]


def test_a_model_whose_large_requests_cannot_be_cut_short_is_parted():
    """Short batches are efficient here, but a request of 100 items, uncut, takes 100 ms, against 25 where it is cut."""
    slo_s, even = {"quick": 0.04, "slow": 0.1}, line(0.0, 0.001)
    assert groups(seen(slo_s=slo_s, slow=even, items=100, max_parts=4), (), 0.5) == [["quick", "slow"]]
    assert groups(seen(slo_s=slo_s, slow=even, items=100), (), 0.5) == [["quick"], ["slow"]]


def test_a_model_without_traffic_needs_no_replicas():
    """It is in no group, until something of it waits."""
    quiet = seen(per_s={"quick": 50.0, "slow": 1e-3})
    assert groups(quiet, (), 0.5) == [["quick"]]
    assert groups(quiet, {"slow"}, 0.5) == [["quick"], ["slow"]]


def test_looser_groups_lend_and_tighter_ones_do_not():
    """The slow model's replicas are the quick one's while nothing slow waits; never the other way round."""
    view = seen(waiting=WAITING)
    found = parted(view, WAITING, 0.5, None)
    lanes = lanes_of(view)
    own = {g: {r for r, i in found["group_of"].items() if i == g} for g in (0, 1)}
    both = lent(lanes, found, WAITING)
    assert [{lane.replica for lane in row} for _, row in both] == [own[0], own[1]]
    ((_, quick),) = lent(lanes, found, WAITING[:1])
    ((_, slow),) = lent(lanes, found, WAITING[1:])
    assert {lane.replica for lane in quick} == own[0] | own[1]
    assert {lane.replica for lane in slow} == own[1]


def test_nothing_is_parted_where_not_every_group_can_have_a_replica():
    """With one replica all lanes are everybody's, and without work there is nothing to serve."""
    view = seen(replicas=1, waiting=WAITING)
    found = parted(view, WAITING, 0.5, None)
    assert found["group_of"] == {}
    assert lent(lanes_of(view), found, WAITING) == [(WAITING, lanes_of(view))]
    assert lent(lanes_of(view), NOT_PARTED, []) == []


def test_a_parting_is_kept_until_it_is_old_or_incomplete():
    """A new replica or model is parted for at once; it travels in a snapshot as it is."""
    view = seen(waiting=WAITING)
    found = parted(view, WAITING, 0.5, None)
    assert msgspec.json.decode(msgspec.json.encode(found)) == found
    assert parted(view, WAITING, 0.5, found) is found
    assert parted(seen(replicas=5, waiting=WAITING), WAITING, 0.5, found) is not found
    assert parted(msgspec.structs.replace(view, now_s=found["until_s"]), WAITING, 0.5, found) is not found
    known = {**found, "groups": [["quick"]], "group_of": {}}
    assert parted(view, WAITING, 0.5, known)["groups"] == [["quick"], ["slow"]]


@given(
    replicas=st.lists(st.integers(0, 4), min_size=1, max_size=2),
    data=st.data(),
)
def test_every_replica_has_one_group_and_no_move_would_help(replicas, data):
    """Counts add up to the replicas, and as few groups as can be have none.

    Of all ways to part them of which that is true, none carries more requests by over a tenth.
    """
    number = data.draw(st.integers(2, 3))
    sizes = st.lists(st.floats(0.05, 2.0), min_size=len(replicas), max_size=len(replicas))
    covers = data.draw(st.lists(sizes, min_size=number, max_size=number))
    weights = data.draw(st.lists(st.floats(1.0, 10.0), min_size=number, max_size=number))
    counts = parting._counts(covers, weights, replicas)
    assert [sum(column) for column in zip(*counts, strict=True)] == replicas
    assert min(min(row) for row in counts) >= 0
    served = min(number, sum(replicas))
    assert sum(any(row) for row in counts) == served

    def carried(rows):
        return sum(
            w * min(parting.FULL * sum(a * b for a, b in zip(row, cover, strict=True)), 1.0)
            for w, row, cover in zip(weights, rows, covers, strict=True)
        )

    ways = product(*(product(range(n + 1), repeat=number) for n in replicas))
    parted = (
        list(zip(*way, strict=True))
        for way in ways
        if all(sum(column) == n for column, n in zip(way, replicas, strict=True))
    )
    best = max(carried(rows) for rows in parted if sum(map(any, rows)) == served)
    assert carried(counts) >= 0.9 * best


def test_unlike_models_on_one_fleet_are_both_in_time():
    """At a load of which the slow model takes most replicas most of the time, nothing quick waits behind it."""
    latency = {"quick": QUICK, "slow": line(0.040, 0.002)}
    configured = ev.Configured(
        at_s=0.0,
        fleet=Fleet(pools=(pool("cpu", replicas=4, models=("quick", "slow")),)),
        models=tuple(
            Workload(name=m, slo=Slo(deadline_s=due_s), latency={"cpu": latency[m]})
            for m, due_s in (("quick", 0.005), ("slow", 0.3))
        ),
        policy="turnout",
    )
    quick = [(i / 500.0, "quick", 4, 0.005) for i in range(2000)]
    slow = [(i / 40.0, "slow", 10, 0.3) for i in range(160)]
    arrivals = [
        ev.Arrived(at_s=at_s, rid=rid, model=model, items=items, deadline_s=at_s + due_s)
        for rid, (at_s, model, items, due_s) in enumerate(sorted(quick + slow))
    ]
    draws = {("cpu", model): from_model(found) for model, found in latency.items()}
    summary = simulate.run(configured, arrivals, draws, policies.load)
    assert summary.attainment > 0.99
