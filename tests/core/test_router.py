"""The router's promises: one answer per request, deadlines, retry elsewhere, and that no policy can break any of it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from tests.fleets import arrived, configured, pool
from turnout import policies
from turnout.core import events as ev
from turnout.core.events import Part
from turnout.core.fleet import Limits, Link
from turnout.core.latency import line
from turnout.core.policy import Bind, Drop, Hold, Run
from turnout.core.router import Router


def of(kind, actions):
    """The actions of one kind."""
    return [a for a in actions if isinstance(a, kind)]


def started(config=None, replicas=("cpu-0", "cpu-1", "gpu-0"), policy=None):
    """A router with these replicas up, under the config's own policy or the one given."""
    router = Router((lambda name, params: policy) if policy else policies.load)
    router.handle(config or configured())
    for name in replicas:
        router.handle(ev.ReplicaUp(at_s=0.0, replica=name, pool=name.rsplit("-", 1)[0]))
    return router


def decide(router, at_s=0.0):
    """The tick boundary."""
    return router.handle(ev.Decide(at_s=at_s))


def test_only_decide_runs_the_policy():
    """Nothing is dispatched before the tick boundary, whatever arrives or becomes free."""
    router = started()
    assert router.handle(arrived(1)) == []
    assert router.handle(arrived(2)) == []
    (dispatch,) = of(ev.Dispatch, decide(router))
    assert [p.rid for p in dispatch.parts] == [1, 2]


def test_work_that_came_together_shares_a_batch_up_to_the_limit():
    """A batch takes what waits, never more items than its pool allows; the next batch takes the rest."""
    router = started(configured(pool("cpu", max_items=8)), ("cpu-0", "cpu-1"))
    for rid in range(3):
        router.handle(arrived(rid, items=4))
    assert [[p.rid for p in d.parts] for d in of(ev.Dispatch, decide(router))] == [[0, 1], [2]]


def test_requests_that_must_not_share_a_batch_do_not():
    """A model that is not mergeable runs one request at a time."""
    router = started(configured(pool("cpu"), workload={"mergeable": False}), ("cpu-0", "cpu-1"))
    for rid in range(2):
        router.handle(arrived(rid))
    assert [len(d.parts) for d in of(ev.Dispatch, decide(router))] == [1, 1]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (arrived(1, items=1000), "too large"),
        (arrived(1, items=0), "too large"),
        (ev.Arrived(at_s=0.0, rid=1, model="other", items=1, deadline_s=1.0), "unknown model"),
    ],
)
def test_what_can_never_run_is_refused_on_arrival(event, reason):
    """The reject is immediate and says why; the request is not owed anything after it."""
    router = started()
    (reject,) = router.handle(event)
    assert (reject.rid, reject.reason) == (1, reason)
    assert router.unanswered == 0


def test_no_replica_is_refused_on_arrival():
    """With no replica up or starting there is nothing to wait for; with one starting there is."""
    router = started(replicas=())
    (reject,) = router.handle(arrived(1))
    assert reject.reason == "no replica"
    router.handle(ev.ReplicaStarting(at_s=0.0, replica="cpu-0", pool="cpu", ready_s=0.01))
    assert router.handle(arrived(2)) == []


def test_a_full_queue_refuses_with_a_time_to_come_back():
    """Beyond `max_waiting` a request is turned away at once."""
    router = started(configured(limits=Limits(max_waiting=1)))
    router.handle(arrived(1))
    (reject,) = router.handle(arrived(2))
    assert reject.reason == "queue full"
    assert reject.retry_after_s > 0


def test_a_request_that_can_no_longer_make_it_is_rejected_when_that_is_certain():
    """The router asks to be woken at that moment, and not later than it has to be."""
    router = started(configured(pool("cpu", replicas=1)), ("cpu-0",))
    router.handle(arrived(1, items=40))
    (dispatch,) = of(ev.Dispatch, decide(router))
    router.handle(arrived(2, at_s=0.001, items=30))
    (wake,) = of(ev.Wake, decide(router, 0.001))
    assert wake.at_s == pytest.approx(0.051 - 0.032, abs=0.002)
    (reject,) = of(ev.Reject, decide(router, wake.at_s))
    assert (reject.rid, reject.reason) == (2, "deadline")
    assert reject.retry_after_s > 0
    assert of(ev.Reply, router.handle(ev.Finished(at_s=0.042, batch=dispatch.batch, service_s=0.042)))


def test_late_serve_runs_what_is_late():
    """A workload may prefer a late answer to none."""
    router = started(configured(pool("cpu", replicas=1), workload={"late": "serve"}), ("cpu-0",))
    router.handle(arrived(1, slack_s=0.0001))
    assert of(ev.Dispatch, decide(router, 5.0))


def test_a_failed_batch_is_retried_on_another_pool():
    """What failed on one pool runs on another; the request is answered once."""
    router = started()
    router.handle(arrived(1, slack_s=1.0))
    (first,) = of(ev.Dispatch, decide(router))
    assert router.handle(ev.Failed(at_s=0.01, batch=first.batch, kind="out of memory")) == []
    (second,) = of(ev.Dispatch, decide(router, 0.01))
    assert second.replica.split("-")[0] != first.replica.split("-")[0]
    (reply,) = router.handle(ev.Finished(at_s=0.02, batch=second.batch, service_s=0.01))
    assert reply == ev.Reply(rid=1, pieces=(ev.Piece(0, 1, second.batch, 0),))


def test_a_failure_is_final_after_max_attempts_or_if_not_retryable():
    """The client is told what happened and where."""
    router = started(configured(limits=Limits(max_attempts=2)))
    router.handle(arrived(1, slack_s=1.0))
    for at_s in (0.0, 0.1):
        (dispatch,) = of(ev.Dispatch, decide(router, at_s))
        actions = router.handle(ev.Failed(at_s=at_s, batch=dispatch.batch, kind="crashed"))
    (reject,) = actions
    assert reject.reason == "failed"
    assert "attempt 2" in reject.detail
    router.handle(arrived(2, at_s=0.2, slack_s=1.0))
    (dispatch,) = of(ev.Dispatch, decide(router, 0.2))
    (reject,) = router.handle(ev.Failed(at_s=0.3, batch=dispatch.batch, kind="bad input", retryable=False))
    assert reject.rid == 2


def test_one_bad_request_does_not_fail_its_neighbours():
    """What a shared batch could not run is tried again one by one; only the request at fault is rejected."""
    router = started(configured(pool("cpu", replicas=2)), ("cpu-0", "cpu-1"))
    for rid in range(2):
        router.handle(arrived(rid, slack_s=1.0))
    (shared,) = of(ev.Dispatch, decide(router))
    assert router.handle(ev.Failed(at_s=0.01, batch=shared.batch, kind="bad input", retryable=False)) == []
    alone = of(ev.Dispatch, decide(router, 0.01))
    assert [[p.rid for p in d.parts] for d in alone] == [[0], [1]]
    (reject,) = router.handle(ev.Failed(at_s=0.02, batch=alone[0].batch, kind="bad input", retryable=False))
    assert (reject.rid, reject.reason) == (0, "failed")
    (reply,) = router.handle(ev.Finished(at_s=0.02, batch=alone[1].batch, service_s=0.01))
    assert reply.rid == 1


def test_a_policy_cannot_join_what_must_run_alone():
    """The rule is the router's: a choice against it is refused and said."""

    def together(view, state, rng):
        return [Run(parts=tuple(w.part for w in view.waiting), replica="cpu-0")], state

    router = started(policy=together)
    for rid in range(2):
        router.handle(arrived(rid, slack_s=1.0))
    (shared,) = of(ev.Dispatch, decide(router))
    router.handle(ev.Failed(at_s=0.01, batch=shared.batch, kind="bad input", retryable=False))
    (refused,) = of(ev.Refused, decide(router, 0.01))
    assert "alone" in refused.why


def test_a_lost_replica_loses_no_request():
    """What ran on it and what was bound to it is served by the others."""

    def bind_all(view, state, rng):
        return [Bind(parts=(w.part,), replica=view.replicas[0].replica) for w in view.waiting], state

    router = started(configured(pool("cpu", replicas=2)), ("cpu-0", "cpu-1"), bind_all)
    for rid in range(3):
        router.handle(arrived(rid, slack_s=1.0))
    decide(router)
    router.handle(ev.ReplicaDown(at_s=0.01, replica="cpu-0"))
    assert router.unanswered == 3
    (dispatch,) = of(ev.Dispatch, decide(router, 0.01))
    assert dispatch.replica == "cpu-1"
    assert router.handle(ev.Finished(at_s=0.02, batch=1, service_s=0.01)) == []  # from the dead: too late


def test_a_lost_replica_does_not_bar_its_pool():
    """The machine was at fault and not the pool: another replica of it may take over; a failure does bar the pool."""
    config = configured(pool("cpu", replicas=2), pool("gpu", "cuda", 1))
    router = started(config)
    router.handle(arrived(1, slack_s=1.0))
    (first,) = of(ev.Dispatch, decide(router))
    router.handle(ev.ReplicaDown(at_s=0.01, replica=first.replica))
    (second,) = of(ev.Dispatch, decide(router, 0.01))
    assert (first.replica, second.replica) == ("cpu-0", "cpu-1")


def test_cancelling_calls_off_a_batch_only_if_nobody_else_waits_for_it():
    """A batch that is shared goes on; one that is not is cancelled; either way the request has its one answer."""
    router = started()
    router.handle(arrived(1))
    router.handle(arrived(2))
    decide(router)
    (reject,) = router.handle(ev.Cancelled(at_s=0.001, rid=1))
    assert reject.reason == "cancelled"
    reject, cancel = router.handle(ev.Cancelled(at_s=0.002, rid=2))
    assert cancel == ev.Cancel(batch=1)
    assert router.handle(ev.Cancelled(at_s=0.003, rid=2)) == []


def test_closing_takes_no_more_and_answers_all():
    """After `Closing` arrivals are refused, running work is waited for, and the grace period ends it all."""
    router = started(configured(pool("cpu", replicas=1)), ("cpu-0",))
    router.handle(arrived(1, slack_s=9.0))
    decide(router)
    router.handle(ev.Closing(at_s=0.001, grace_s=1.0))
    (reject,) = router.handle(arrived(2, at_s=0.001))
    assert reject.reason == "closing"
    (wake,) = of(ev.Wake, decide(router, 0.001))
    assert wake.at_s == 1.001
    assert [r.reason for r in of(ev.Reject, decide(router, wake.at_s))] == ["closing"]
    assert router.unanswered == 0


def test_a_barred_pool_gets_nothing():
    """A pool whose outputs disagree with the reference is never routed to, whatever the policy asks."""
    config = configured(pool("cpu", parity_ok=False), pool("gpu", "cuda", 1))

    def to_cpu(view, state, rng):
        return [Run(parts=(w.part,), replica="cpu-0") for w in view.waiting], state

    router = started(config, ("cpu-0", "gpu-0"), to_cpu)
    router.handle(arrived(1))
    actions = decide(router)
    assert not of(ev.Dispatch, actions)
    assert "serves" in of(ev.Refused, actions)[0].why


def test_a_policy_that_raises_loses_nothing():
    """The fault is said, the work waits, and is rejected when its deadline can no longer be met."""

    def broken(view, state, rng):
        raise ZeroDivisionError("by zero")

    router = started(policy=broken)
    router.handle(arrived(1))
    refused, wake = decide(router)
    assert "ZeroDivisionError" in refused.why
    assert of(ev.Reject, decide(router, wake.at_s))


def test_predictions_follow_what_batches_really_take():
    """A pool that takes three times its profile is predicted so, and its p99 covers it."""
    router = started(configured(pool("cpu", replicas=1)), ("cpu-0",))
    before_s = router.pool_view("cpu").mean_s("m", 4)
    for i in range(200):
        router.handle(arrived(i, at_s=i * 0.1, items=4, slack_s=1.0))
        (dispatch,) = of(ev.Dispatch, decide(router, i * 0.1))
        router.handle(ev.Finished(at_s=i * 0.1 + 0.02, batch=dispatch.batch, service_s=3 * before_s))
    assert router.pool_view("cpu").mean_s("m", 4) == pytest.approx(3 * before_s, rel=1e-3)
    assert router.pool_view("cpu").p99_s("m", 4) >= 3 * before_s * 0.999


def test_a_link_is_part_of_every_prediction():
    """Bytes over the pool's network count in time, and in dollars where they are billed."""
    link = Link(rtt_s=0.001, bytes_per_s=1e6, usd_per_byte=1e-9)
    router = started(configured(pool("cpu", link=link)), ("cpu-0",))
    view = router.pool_view("cpu")
    assert view.mean_s("m", 1, 5000) == pytest.approx(view.mean_s("m", 1) + 0.005)
    assert view.marginal_usd(0.0, 1000) == pytest.approx(1e-6)
    router.handle(arrived(1, nbytes_in=4000, nbytes_out=1000))
    (dispatch,) = of(ev.Dispatch, decide(router))
    assert dispatch.predicted_s == pytest.approx(0.003 + 0.006)


def test_reported_load_of_others_delays_a_pool():
    """A backlog that others put on a pool moves when its replicas are free."""
    seen = []

    def look(view, state, rng):
        seen.append(view.replicas[0].free_s)
        return [], state

    router = started(configured(pool("cpu", replicas=1)), ("cpu-0",), look)
    router.handle(arrived(1))
    router.handle(ev.Reported(at_s=0.0, pool="cpu", age_s=0.0, backlog_items=128))
    decide(router)
    assert seen == [pytest.approx(2 * 0.066, rel=0.05)]


def test_reload_keeps_requests_and_what_was_learned():
    """A new fleet takes over what waits; a pool that went is down, and its work is done elsewhere."""
    router = started()
    router.handle(arrived(1, slack_s=1.0))
    (dispatch,) = of(ev.Dispatch, decide(router))
    router.handle(configured(pool("gpu", "cuda", 1)))
    assert router.unanswered == 1
    (again,) = of(ev.Dispatch, decide(router, 0.01))
    assert dispatch.replica.startswith("cpu")
    assert again.replica == "gpu-0"


def test_reload_answers_requests_of_a_model_that_is_gone():
    """Nobody waits for a model that is no longer served."""
    router = started()
    router.handle(arrived(1))
    other = ev.Configured(at_s=0.0, fleet=configured().fleet, models=(), policy="turnout")
    assert [r.reason for r in of(ev.Reject, router.handle(other))] == ["unknown model"]


CHOICES = st.one_of(
    st.builds(
        Run,
        parts=st.lists(st.builds(Part, st.integers(0, 6), st.integers(0, 8), st.integers(0, 9)), max_size=3).map(tuple),
        replica=st.sampled_from(["cpu-0", "cpu-1", "gpu-0", "none-0"]),
        hedge=st.booleans(),
    ),
    st.builds(
        Bind,
        parts=st.lists(st.builds(Part, st.integers(0, 6), st.just(0), st.integers(0, 9)), max_size=2).map(tuple),
        replica=st.sampled_from(["cpu-0", "gpu-0"]),
    ),
    st.builds(Drop, rid=st.integers(0, 8)),
    st.builds(Hold, rids=st.just(()), until_s=st.floats(0, 1)),
)

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(1, 9), st.integers(1, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 6)),
        st.tuples(st.just("finish"), st.integers(0, 5)),
        st.tuples(st.just("fail"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("down"), st.sampled_from(["cpu-0", "cpu-1", "gpu-0"])),
        st.tuples(st.just("up"), st.sampled_from(["cpu-0", "cpu-1", "gpu-0"])),
        st.tuples(st.just("starting"), st.sampled_from(["cpu-0", "cpu-1", "gpu-0"])),
        st.tuples(st.just("reload"), st.integers(0, 3)),
        st.tuples(st.just("report"), st.sampled_from(["cpu", "gpu"]), st.integers(0, 99)),
        st.tuples(st.just("decide"), st.lists(CHOICES, max_size=4)),
    ),
    max_size=40,
)


HARD = {"limits": Limits(hedge_share=0.5, max_attempts=2)}

RELOADS = (
    configured(**HARD),
    configured(pool("cpu", max_items=2), **HARD),
    configured(pool("gpu", "cuda", 1, slots=1), pool("cpu"), workload={"mergeable": False, "late": "serve"}, **HARD),
    configured(pool("cpu"), pool("gpu", "cuda", 1), latency={"gpu": line(0.001, 0.001)}, **HARD),
)
"""Pools go, shrink, change places, and cease to serve the model."""


def replica_event(kind, name, at_s):
    """A replica goes, comes, or begins to come."""
    pool_name = name.split("-")[0]
    if kind == "down":
        return ev.ReplicaDown(at_s=at_s, replica=name)
    if kind == "up":
        return ev.ReplicaUp(at_s=at_s, replica=name, pool=pool_name)
    return ev.ReplicaStarting(at_s=at_s, replica=name, pool=pool_name, ready_s=at_s + 0.01)


def pool_event(step, at_s):
    """The fleet changes, or others put load on a pool."""
    if step[0] == "reload":
        return replace(RELOADS[step[1]], at_s=at_s)
    return ev.Reported(at_s=at_s, pool=step[1], age_s=0.001, backlog_items=step[2])


def event_of(step, at_s, rid, flying):
    """The event that a step stands for, or None where it has nothing to act on."""
    match step:
        case "arrive", items, parts:
            return arrived(rid, at_s=at_s, items=items, max_parts=parts)
        case "cancel", which:
            return ev.Cancelled(at_s=at_s, rid=which)
        case "finish", which if flying:
            return ev.Finished(at_s=at_s, batch=flying.pop(which % len(flying)), service_s=0.001)
        case "fail", which, retryable if flying:
            batch = flying.pop(which % len(flying))
            return ev.Failed(at_s=at_s, batch=batch, kind="crash", retryable=retryable)
        case ("down" | "up" | "starting") as kind, name:
            return replica_event(kind, name, at_s)
        case (("reload" | "report"), *_):
            return pool_event(step, at_s)
        case "decide", _:
            return ev.Decide(at_s=at_s)
    return None


def play(steps, *, snapshot_at=None):
    """Drive a router through `steps`, policy included; at one step, go on in a fresh router from a snapshot."""
    todo = []
    config = RELOADS[0]

    def policy(view, state, rng):
        return todo, [*(state or []), float(rng.random())][-3:]

    router = started(config, policy=policy)
    log, flying, rid = [], [], 0
    for number, step in enumerate(steps):
        if number == snapshot_at:
            head = replace(config, snapshot=router.snapshot())
            router = Router(lambda name, params: policy)
            assert router.handle(head) == []
        event = event_of(step, number * 0.003, rid, flying)
        todo[:] = step[1] if step[0] == "decide" else []
        if event is not None:
            config = event if isinstance(event, ev.Configured) else config
            rid += isinstance(event, ev.Arrived)
            log.append((event, router.handle(event)))
            flying += [a.batch for a in of(ev.Dispatch, log[-1][1])]
    end_s = len(steps) * 0.003
    todo.clear()
    ending = [ev.Closing(at_s=end_s), ev.Decide(at_s=end_s)]
    ending += [ev.Finished(at_s=end_s, batch=batch, service_s=0.001) for batch in flying]
    log += [(event, router.handle(event)) for event in ending]
    assert router.unanswered == 0
    return log


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_every_request_gets_exactly_one_answer_from_any_policy(steps):
    """Under arbitrary choices, failures, losses and cancellations: one Reply or Reject per arrival, all items once."""
    log = play(steps)
    asked = {e.rid: e for e, _ in log if isinstance(e, ev.Arrived)}
    answers = [a for _, actions in log for a in actions if isinstance(a, ev.Reply | ev.Reject)]
    assert sorted(a.rid for a in answers) == sorted(asked)
    for reply in of(ev.Reply, answers):
        at = 0
        for piece in reply.pieces:
            assert piece.start == at
            at += piece.items
        assert at == asked[reply.rid].items


@given(STEPS, st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_a_fresh_router_goes_on_from_a_snapshot_exactly(steps, snapshot_at):
    """Cutting the log anywhere and going on from the snapshot gives the identical actions, random draws included."""
    assert play(steps, snapshot_at=snapshot_at) == play(steps)


def test_pools_of_one_model_are_compared_by_their_own_latency():
    """The border moves with the batch: one item goes to the cheap CPU, many to the GPU that is faster per item."""
    latency = {"cpu": line(0.001, 0.001), "gpu": line(0.004, 0.00001)}
    config = configured(pool("cpu", max_items=256), pool("gpu", "cuda", 1), latency=latency)
    router = started(config)
    router.handle(arrived(1, items=1))
    (small,) = of(ev.Dispatch, decide(router))
    router.handle(arrived(2, at_s=1.0, items=200))
    (large,) = of(ev.Dispatch, decide(router, 1.0))
    assert (small.replica, large.replica) == ("cpu-0", "gpu-0")
    assert small.why.binding == "cost"
    assert large.why.binding == "deadline"


def test_a_request_larger_than_any_batch_is_split_over_idle_replicas_at_once():
    """Where splitting is allowed, a large request runs on several replicas in the same tick, and is answered whole."""
    router = started(configured(pool("cpu", replicas=3, max_items=40)), ("cpu-0", "cpu-1", "cpu-2"))
    router.handle(arrived(1, items=100, max_parts=3))
    dispatches = of(ev.Dispatch, decide(router))
    assert [d.parts for d in dispatches] == [(Part(1, 0, 34),), (Part(1, 34, 33),), (Part(1, 67, 33),)]
    actions = [a for d in dispatches for a in router.handle(ev.Finished(at_s=0.04, batch=d.batch, service_s=0.04))]
    assert [len(a.pieces) for a in actions] == [3]


def test_late_work_does_not_shrink_batches():
    """Under overload a batch is filled even if its first request is late: small batches would only add delay."""
    config = configured(pool("cpu", replicas=1), workload={"late": "serve"})
    router = started(config, ("cpu-0",))
    for rid in range(20):
        router.handle(arrived(rid, items=2, slack_s=0.0001))
    (dispatch,) = of(ev.Dispatch, decide(router, 1.0))
    assert len(dispatch.parts) == 12  # a batch of half the deadline, as if nothing were late
