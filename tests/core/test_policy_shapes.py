"""The policy's call shape is wide enough: four policies of different kinds, written against it and run by the router.

Matching decides over all of waiting x replicas at once; deadline-aware batching joins requests; a hedge repeats what
is in flight; a split cuts one large request over replicas. None needs anything that the view and choices lack.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from tests.fleets import arrived, configured, pool
from turnout.core import events as ev
from turnout.core.events import Part
from turnout.core.fleet import Limits
from turnout.core.policy import Bind, Hold, Run
from turnout.core.router import Router


def matching(view, state, rng):
    """Minimum total finish time over waiting x replicas with a free slot (the Hungarian method)."""
    free = [r for r in view.replicas if r.slots_left > 0]
    if not free:
        return [], state
    cost = np.array(
        [[max(r.free_s, view.now_s) + view.pools[r.pool].mean_s(w.model, w.items) for r in free] for w in view.waiting]
    )
    rows, columns = linear_sum_assignment(cost)
    return [
        Run(parts=(view.waiting[i].part,), replica=free[j].replica) for i, j in zip(rows, columns, strict=True)
    ], state


def patient_batching(view, state, rng):
    """Wait to fill a batch, and close it when the earliest deadline leaves just enough time to run it."""
    replica = next((r for r in view.replicas if r.slots_left > 0), None)
    if replica is None or not view.waiting:
        return [], state
    pool_view = view.pools[replica.pool]
    items = sum(w.items for w in view.waiting)
    close_s = view.waiting[0].deadline_s - pool_view.p99_s("m", items) - 0.001
    if items < pool_view.spec.max_items and view.now_s < close_s:
        return [Hold(rids=tuple(w.rid for w in view.waiting), until_s=close_s)], state
    return [Run(parts=tuple(w.part for w in view.waiting), replica=replica.replica)], state


def hedging(view, state, rng):
    """Run on the first replica, and repeat on another pool once it is certain that the batch is late."""
    choices = []
    free = [r for r in view.replicas if r.slots_left > 0]
    for w in view.waiting[: len(free)]:
        replica = free.pop(0)
        late_s = view.now_s + view.pools[replica.pool].p99_s(w.model, w.items)
        choices += [Run(parts=(w.part,), replica=replica.replica), Hold(rids=(), until_s=late_s)]
    for flight in view.in_flight:
        other = next((r for r in free if r.pool != flight.pool), None)
        if view.now_s < flight.p99_finish_s:
            choices.append(Hold(rids=(), until_s=flight.p99_finish_s))
        elif other is not None and view.hedges_left >= 1 and not flight.hedge:
            choices.append(Run(parts=flight.parts, replica=other.replica, hedge=True))
    return choices, state


def splitting(view, state, rng):
    """Cut each request evenly over all replicas of the CPU pool."""
    choices = []
    replicas = [r for r in view.replicas if r.slots_left > 0]
    for w in view.waiting[:1]:
        share = -(-w.items // len(replicas))
        for i, r in enumerate(replicas):
            items = min(share, w.items - i * share)
            if items > 0:
                choices.append(Run(parts=(Part(w.rid, w.start + i * share, items),), replica=r.replica))
    return choices, state


def drive(policy, config, *events):
    """Deliver events to a fresh router that runs `policy`; returns all actions by event."""
    router = Router(lambda name, params: policy)
    return [router.handle(event) for event in (config, *events)]


def up(*names):
    """These replicas come up at second 0."""
    return [ev.ReplicaUp(at_s=0.0, replica=name, pool=name.rsplit("-", 1)[0]) for name in names]


def of(kind, actions):
    """The actions of one kind."""
    return [a for a in actions if isinstance(a, kind)]


def test_matching_assigns_jointly():
    """Matching sends the large request to the GPU and the small one to the CPU though the small one is due first."""
    config = configured(pool("cpu", replicas=1), pool("gpu", "cuda", 1, slots=1))
    *_, actions = drive(
        matching,
        config,
        *up("gpu-0", "cpu-0"),
        arrived(1, items=1, slack_s=0.04),
        arrived(2, items=60),
        ev.Decide(at_s=0.0),
    )
    assert {d.replica: d.parts[0].rid for d in of(ev.Dispatch, actions)} == {"cpu-0": 1, "gpu-0": 2}


def test_patient_batching_joins_requests_and_keeps_the_deadline():
    """A policy may hold work; the router wakes it in time, and one batch answers all the requests."""
    config = configured(pool("cpu", replicas=1))
    router = Router(lambda name, params: patient_batching)
    for event in (config, *up("cpu-0"), arrived(1), arrived(2, items=3)):
        router.handle(event)
    (wake,) = router.handle(ev.Decide(at_s=0.0))
    assert isinstance(wake, ev.Wake)
    assert 0 < wake.at_s < 0.05
    router.handle(arrived(3, at_s=0.01))
    (rearmed,) = router.handle(ev.Decide(at_s=0.01))
    (dispatch,) = of(ev.Dispatch, router.handle(ev.Decide(at_s=rearmed.at_s)))
    assert dispatch.parts == (Part(1, 0, 1), Part(2, 0, 3), Part(3, 0, 1))
    assert rearmed.at_s + dispatch.p99_s <= 0.05
    replies = router.handle(ev.Finished(at_s=0.049, batch=dispatch.batch, service_s=0.005))
    assert [r.rid for r in of(ev.Reply, replies)] == [1, 2, 3]
    assert [r.pieces[0].offset for r in of(ev.Reply, replies)] == [0, 1, 4]


@pytest.mark.parametrize("first", [1, 2])
def test_hedge_answers_once_and_calls_off_the_loser(first):
    """Whichever copy comes back first answers; the other is cancelled, and its late result changes nothing."""
    config = configured(limits=Limits(hedge_share=1.0))
    router = Router(lambda name, params: hedging)
    for event in (config, *up("cpu-0", "gpu-0"), arrived(1, slack_s=1.0)):
        router.handle(event)
    dispatch, wake = router.handle(ev.Decide(at_s=0.0))
    (hedge,) = of(ev.Dispatch, router.handle(ev.Decide(at_s=wake.at_s)))
    assert (hedge.hedge, hedge.parts, hedge.replica) == (True, dispatch.parts, "gpu-0")
    second = 3 - first
    reply, cancel = router.handle(ev.Finished(at_s=0.5, batch=first, service_s=0.5))
    assert (reply, cancel) == (ev.Reply(rid=1, pieces=(ev.Piece(0, 1, first, 0),)), ev.Cancel(batch=second))
    assert router.handle(ev.Finished(at_s=0.6, batch=second, service_s=0.6)) == []
    assert router.unanswered == 0


def test_hedge_needs_budget():
    """Without a budget a hedge is refused, and said; the original goes on."""

    def reckless(view, state, rng):
        hedge = bool(view.in_flight)
        return [Run(parts=(Part(1, 0, 1),), replica="gpu-0" if hedge else "cpu-0", hedge=hedge)], state

    events = (*up("cpu-0", "gpu-0"), arrived(1), ev.Decide(at_s=0.0), arrived(2), ev.Decide(at_s=0.01))
    *_, actions = drive(reckless, configured(), *events)
    (refused,) = of(ev.Refused, actions)
    assert "budget" in refused.why


def test_split_is_answered_whole_and_in_order():
    """The parts of a split request may come back in any order; one reply has all of them, in order."""
    config = configured(pool("cpu", replicas=3))
    *_, actions = drive(
        splitting, config, *up("cpu-0", "cpu-1", "cpu-2"), arrived(1, items=100, max_parts=3), ev.Decide(at_s=0.0)
    )
    assert [d.parts[0] for d in of(ev.Dispatch, actions)] == [Part(1, 0, 34), Part(1, 34, 34), Part(1, 68, 32)]
    router = Router(lambda name, params: splitting)
    for event in (config, *up("cpu-0", "cpu-1", "cpu-2"), arrived(1, items=100, max_parts=3), ev.Decide(at_s=0.0)):
        router.handle(event)
    assert router.handle(ev.Finished(at_s=0.02, batch=3, service_s=0.02)) == []
    assert router.handle(ev.Finished(at_s=0.02, batch=1, service_s=0.02)) == []
    (reply,) = router.handle(ev.Finished(at_s=0.03, batch=2, service_s=0.03))
    assert reply == ev.Reply(rid=1, pieces=(ev.Piece(0, 34, 1, 0), ev.Piece(34, 34, 2, 0), ev.Piece(68, 32, 3, 0)))


def test_split_beyond_max_parts_is_refused():
    """A request that may not be cut is never cut, whatever the policy asks."""
    config = configured(pool("cpu", replicas=3))
    *_, actions = drive(splitting, config, *up("cpu-0", "cpu-1", "cpu-2"), arrived(1, items=60), ev.Decide(at_s=0.0))
    assert not of(ev.Dispatch, actions)
    assert all("split" in r.why or "not waiting" in r.why for r in of(ev.Refused, actions))


def test_bind_queues_on_a_busy_replica():
    """Bound work starts on its replica as soon as the slot is free, without another decision about it."""
    config = configured(pool("cpu", replicas=1))
    router = Router(
        lambda name, params: (
            lambda view, state, rng: ([Bind(parts=(w.part,), replica="cpu-0") for w in view.waiting], state)
        )
    )
    for event in (config, *up("cpu-0"), arrived(1), arrived(2)):
        router.handle(event)
    (first,) = of(ev.Dispatch, router.handle(ev.Decide(at_s=0.0)))
    assert first.parts == (Part(1, 0, 1),)
    router.handle(ev.Finished(at_s=0.003, batch=first.batch, service_s=0.003))
    (second,) = of(ev.Dispatch, router.handle(ev.Decide(at_s=0.003)))
    assert second.parts == (Part(2, 0, 1),)
