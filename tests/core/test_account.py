"""A run is counted by the same rules whoever drove it: misses are misses, idle time is billed, nothing twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fleets import arrived, configured, pool
from turnout.core import events as ev
from turnout.core.account import Account
from turnout.core.cost import Price
from turnout.core.events import Part, Piece


def dispatch(batch, rid, p99_s=0.02):
    """A batch of one item on cpu-0."""
    parts = (Part(rid, 0, 1),)
    return ev.Dispatch(batch=batch, replica="cpu-0", model="m", parts=parts, start_s=0.0, predicted_s=0.01, p99_s=p99_s)


def reply(rid, batch):
    """The answer to a request of one item."""
    return ev.Reply(rid=rid, pieces=(Piece(0, 1, batch, 0),))


def fed(*steps):
    """An account of one priced replica, fed with (event, actions…)."""
    account = Account()
    account.feed(configured(pool("cpu", replicas=1, price=Price(usd_per_s=2.0))), ())
    account.feed(ev.ReplicaUp(at_s=0.0, replica="cpu-0", pool="cpu"), ())
    for event, *actions in steps:
        account.feed(event, actions)
    return account


def test_late_answers_and_rejects_are_misses():
    """Attainment is over all that arrived; only answers by the deadline count."""
    account = fed(
        (arrived(1, slack_s=0.05),),
        (arrived(2, slack_s=0.05),),
        (arrived(3, slack_s=0.05), ev.Reject(rid=3, reason="queue full")),
        (ev.Decide(at_s=0.0), dispatch(1, 1), dispatch(2, 2)),
        (ev.Finished(at_s=0.04, batch=1, service_s=0.04), reply(1, 1)),
        (ev.Finished(at_s=0.06, batch=2, service_s=0.02), reply(2, 2)),
    )
    summary = account.summary()
    assert (summary.requests, summary.replies, summary.rejects, summary.met) == (3, 2, {"queue full": 1}, 1)
    assert summary.attainment == pytest.approx(1 / 3)
    assert summary.latency_p99_s == pytest.approx(0.06, rel=0.0026)


def test_coverage_is_of_the_p99_predicted_at_dispatch():
    """A batch is covered if it took at most what was predicted when it left."""
    account = fed(
        (arrived(1),),
        (arrived(2),),
        (ev.Decide(at_s=0.0), dispatch(1, 1, p99_s=0.02), dispatch(2, 2, p99_s=0.02)),
        (ev.Finished(at_s=0.02, batch=1, service_s=0.02), reply(1, 1)),
        (ev.Finished(at_s=0.05, batch=2, service_s=0.03), reply(2, 2)),
    )
    assert account.summary().coverage_p99 == 0.5


def test_idle_time_is_billed():
    """A replica costs its up-time, busy or not, and effective cost is per request that met its objective."""
    account = fed(
        (arrived(1),),
        (ev.Decide(at_s=0.0), dispatch(1, 1)),
        (ev.Finished(at_s=0.01, batch=1, service_s=0.01), reply(1, 1)),
        (ev.ReplicaDown(at_s=4.0, replica="cpu-0"),),
        (ev.Decide(at_s=10.0),),
    )
    summary = account.summary()
    assert summary.bill_usd == pytest.approx(8.0)
    assert summary.pools[0].utilisation == pytest.approx(0.0025)
    assert summary.usd_per_million_met == pytest.approx(8e6)


def test_a_lost_batch_is_counted_as_run_again():
    """Failures and lost replicas show, and their batches do not count as work done."""
    account = fed(
        (arrived(1),),
        (ev.Decide(at_s=0.0), dispatch(1, 1)),
        (ev.ReplicaDown(at_s=0.01, replica="cpu-0"),),
    )
    summary = account.summary()
    assert (summary.retried_batches, summary.batches) == (1, 0)


def test_an_empty_run_has_no_figures():
    """Nothing is divided by nothing: what cannot be known is None."""
    summary = fed().summary()
    assert (summary.latency_p50_s, summary.coverage_p99, summary.usd_per_million_met) == (None, None, None)
    assert summary.attainment == 0.0


def test_a_replica_that_restarts_unannounced_was_down():
    """What was on it is counted as run again, and the time until it is up again is not billed."""
    account = fed(
        (arrived(1),),
        (ev.Decide(at_s=0.0), dispatch(1, 1)),
        (ev.ReplicaStarting(at_s=1.0, replica="cpu-0", pool="cpu", ready_s=3.0),),
        (ev.ReplicaUp(at_s=3.0, replica="cpu-0", pool="cpu"),),
        (ev.Decide(at_s=4.0),),
    )
    summary = account.summary()
    assert summary.retried_batches == 1
    assert summary.bill_usd == pytest.approx(2.0 * 2.0)


def test_a_pool_that_a_reload_removed_is_billed_until_then():
    """Its replicas are gone with it, and what they cost before is not forgotten."""
    reload = replace(configured(pool("gpu", "cuda", 1)), at_s=2.0)
    account = fed((reload,), (ev.Decide(at_s=10.0),))
    assert account.summary().bill_usd == pytest.approx(4.0)


def test_a_segment_alone_counts_the_requests_that_arrived_in_it():
    """A reject of a request from an earlier segment is no more counted than its reply would be."""
    account = fed((ev.Decide(at_s=0.0), ev.Reject(rid=7, reason="deadline")))
    summary = account.summary()
    assert (summary.requests, summary.rejects) == (0, {})
