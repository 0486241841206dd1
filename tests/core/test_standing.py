"""A model's standing counts misses as its objective does, and remembers a bounded stretch of traffic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.fleets import arrived, configured
from turnout import policies
from turnout.core import events as ev
from turnout.core.router import Router
from turnout.core.standing import MAX_CREDIT, RECENT, Standing


@given(st.lists(st.booleans(), max_size=300))
def test_credit_is_what_the_objective_affords(answers):
    """Within its bounds the credit is allowed misses less misses."""
    standing = Standing(attainment=0.9)
    exact = 0.0
    for met in answers:
        standing.answer(met=met)
        exact = min(max(exact + 0.1 - (not met), -MAX_CREDIT), MAX_CREDIT)
    assert abs(standing.credit - exact) < 1e-9


def test_memory_of_traffic_is_bounded():
    """However long it runs, between RECENT and twice as many of the latest arrivals are kept."""
    standing = Standing(attainment=0.99)
    for i in range(5 * RECENT + 7):
        standing.arrive(float(i), i)
        assert len(standing.recent_items) == len(standing.recent_at_s) < 2 * RECENT
    assert standing.recent_items[-1] == 5 * RECENT + 6
    assert len(standing.recent_items) >= RECENT


def test_the_router_counts_every_answer_once():
    """A reply in time, a refusal at the door and a cancelled request move the credit as one hit and two misses."""
    router = Router(policies.load)
    router.handle(configured())
    router.handle(ev.ReplicaUp(at_s=0.0, replica="cpu-0", pool="cpu"))
    router.handle(arrived(1, items=1))
    [dispatch] = [a for a in router.handle(ev.Decide(at_s=0.0)) if isinstance(a, ev.Dispatch)]
    router.handle(ev.Finished(at_s=0.003, batch=dispatch.batch, service_s=0.003))
    router.handle(arrived(2, at_s=0.004, items=100_000))
    router.handle(arrived(3, at_s=0.004, items=1))
    router.handle(ev.Cancelled(at_s=0.005, rid=3))
    standing = router.snapshot()["standings"]["m"]
    assert standing["arrivals"] == 3
    assert abs(standing["credit"] - (3 * 0.01 - 2)) < 1e-9
