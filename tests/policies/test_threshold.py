"""The threshold: size alone decides."""

from __future__ import annotations

import pytest

from tests.policies.views import TWO, choices, pools_of, replica, request, requests, shown


def test_from_the_threshold_on_the_accelerator():
    """And below it the CPU."""
    assert pools_of(choices("threshold", shown(TWO, requests([9, 10])), items=10)) == {0: {"cpu"}, 1: {"gpu"}}


@pytest.mark.parametrize("items", [1, 11])
def test_a_queue_on_one_side_is_not_helped_by_the_other(items):
    """That side is busy for longer than there is time, the other idle."""
    busy = {"cpu": items < 10, "gpu": items >= 10}
    lanes = [replica(name, free_s=1.0 if b else 0.0, slots=0 if b else 1) for name, b in busy.items()]
    assert pools_of(choices("threshold", shown(TWO, [request(0, items)], lanes), items=10)) == {}


def test_share_is_what_a_batch_may_take():
    """20 requests of one item due in 50 ms: the CPU's batch is all of them, or 5.5 ms of work."""
    view = shown(TWO, requests([1] * 20))
    assert len(pools_of(choices("threshold", view))) == 20
    assert len(pools_of(choices("threshold", view, share=0.11))) == 3
