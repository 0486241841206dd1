"""A large request is cut only where what remains of it can still be run."""

from __future__ import annotations

import pytest

from tests.core.test_router import decide, of, started
from tests.fleets import arrived, configured, pool
from turnout.core import events as ev


@pytest.mark.parametrize("policy", ["turnout", "earliest"])
def test_a_cut_leaves_no_rest_that_nobody_can_take(policy):
    """300 items in two parts fit only as 256 + 44 or so on the GPU; the idle CPU must not bite off 64 first."""
    config = configured(pool("cpu", max_items=30), pool("gpu", "cuda", 1), policy=policy, workload={"late": "serve"})
    router = started(config)
    assert router.handle(arrived(1, items=300, slack_s=0.0001, max_parts=2)) == []
    actions = decide(router)
    assert of(ev.Refused, actions) == []
    assert sum(d.parts[0].items for d in of(ev.Dispatch, actions)) == 300


def test_a_request_that_only_an_absent_pool_can_take_does_not_block_the_others():
    """It waits for that pool; what is behind it runs."""
    router = started(configured(workload={"late": "serve"}), ("cpu-0",))
    router.handle(arrived(1, items=200, slack_s=0.01, max_parts=2))
    router.handle(arrived(2, items=100, slack_s=0.5, max_parts=2))
    (dispatch,) = of(ev.Dispatch, decide(router))
    assert dispatch.parts[0].rid == 2
