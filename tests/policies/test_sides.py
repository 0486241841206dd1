"""A rule that names a side never loses what that side cannot take."""

from __future__ import annotations

import pytest

from tests.core.test_router import decide, of, started
from tests.fleets import arrived, configured, pool
from turnout.core import events as ev

RULES = {"static": {}, "threshold": {"items": 256}}


@pytest.mark.parametrize("policy", RULES)
def test_what_its_side_cannot_take_goes_to_the_other(policy):
    """100 items are for the CPU by both rules, and more than its largest batch."""
    router = started(configured(policy=policy, params=RULES[policy], workload={"late": "serve"}))
    router.handle(arrived(1, items=100))
    router.handle(arrived(2, items=20))
    assert {d.parts[0].rid: d.replica for d in of(ev.Dispatch, decide(router))} == {1: "gpu-0", 2: "cpu-0"}


@pytest.mark.parametrize("policy", RULES)
def test_what_may_be_cut_stays_on_its_side(policy):
    """In two parts the same request fits the CPU, and has both its parts there."""
    router = started(configured(policy=policy, params=RULES[policy], workload={"late": "serve"}))
    router.handle(arrived(1, items=100, slack_s=1.0, max_parts=2))
    parts = of(ev.Dispatch, decide(router))
    assert sum(d.parts[0].items for d in parts) == 100
    assert {d.replica for d in parts} == {"cpu-0", "cpu-1"}


@pytest.mark.parametrize("policy", RULES)
def test_what_failed_on_its_side_goes_to_the_other(policy):
    """A batch that failed on the CPU may not run there again, and does on the GPU."""
    router = started(configured(policy=policy, params=RULES[policy]))
    router.handle(arrived(1, items=20, slack_s=1.0))
    (first,) = of(ev.Dispatch, decide(router))
    router.handle(ev.Failed(at_s=0.001, batch=first.batch, kind="broken", retryable=True))
    (second,) = of(ev.Dispatch, decide(router, 0.002))
    assert (first.replica.partition("-")[0], second.replica) == ("cpu", "gpu-0")


@pytest.mark.parametrize("policy", RULES)
def test_where_there_is_one_side_it_takes_everything(policy):
    """Small requests on a fleet of GPUs, large ones on a fleet of CPUs."""
    for name, items in (("gpu", 2), ("cpu", 60)):
        device = "cuda" if name == "gpu" else "cpu"
        router = started(configured(pool(name, device, 1), policy=policy, params={}), (f"{name}-0",))
        router.handle(arrived(1, items=items, slack_s=1.0))
        assert [d.replica for d in of(ev.Dispatch, decide(router))] == [f"{name}-0"]
