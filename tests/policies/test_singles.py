"""Requests that may not share a batch under `turnout`: matched where they can be in time, and never left behind."""

from __future__ import annotations

import pytest

from tests.core.test_router import decide, of, started
from tests.fleets import arrived, configured, pool
from turnout.core import events as ev

SINGLE = {"mergeable": False, "late": "serve"}


def runs(actions):
    """Request -> replicas of its parts."""
    found = {}
    for dispatch in of(ev.Dispatch, actions):
        found.setdefault(dispatch.parts[0].rid, []).append(dispatch.replica)
    return found


@pytest.mark.parametrize("at_s", [0.0, 1.0])
def test_what_is_late_runs_where_a_replica_is_idle(at_s):
    """Hopeless or overdue, it is served all the same if the model asks for that."""
    router = started(configured(policy="turnout", workload=SINGLE))
    router.handle(arrived(1, items=4, slack_s=0.0001))
    router.handle(arrived(2, items=4, slack_s=0.0001))
    assert set(runs(decide(router, at_s))) == {1, 2}


def test_what_can_be_in_time_goes_first():
    """One replica, and an older request that is overdue: the other is served now, and it after that."""
    router = started(configured(pool("cpu", replicas=1), policy="turnout", workload=SINGLE), ("cpu-0",))
    router.handle(arrived(1, items=4, slack_s=0.0001))
    router.handle(arrived(2, at_s=0.001, items=4, slack_s=0.05))
    (first,) = of(ev.Dispatch, decide(router, 0.002))
    assert first.parts[0].rid == 2
    router.handle(ev.Finished(at_s=0.008, batch=first.batch, service_s=0.006))
    assert set(runs(decide(router, 0.008))) == {1}


def test_what_is_too_large_for_any_batch_is_cut():
    """300 items in two parts, on a fleet whose largest batch is 256."""
    router = started(configured(policy="turnout", workload={"mergeable": False}))
    router.handle(arrived(1, items=300, slack_s=1.0, max_parts=2))
    actions = decide(router)
    assert of(ev.Refused, actions) == []
    assert sum(d.parts[0].items for d in of(ev.Dispatch, actions)) == 300


def test_what_is_late_whole_is_in_time_when_cut():
    """60 items take 62 ms on a CPU, and 32 ms in halves on two of them."""
    config = configured(pool("cpu", replicas=2), policy="turnout", workload={"mergeable": False})
    router = started(config, ("cpu-0", "cpu-1"))
    router.handle(arrived(1, items=60, slack_s=0.05, max_parts=2))
    assert runs(decide(router)) == {1: ["cpu-0", "cpu-1"]}
