"""Kairos' matching: what the published rule gives on fleets small enough to work it out."""

from __future__ import annotations

import pytest

from tests.policies.views import TWO, choices, pools_of, replica, request, requests, runs, shown


def test_the_large_one_gets_the_gpu_whatever_the_order():
    """By time alone the small request would take the GPU as readily; weighed by its worth it takes the CPU."""
    for sizes in ([4, 60], [60, 4]):
        found = pools_of(choices("kairos", shown(TWO, requests(sizes, 0.1)), merge=False))
        assert {sizes[rid]: used for rid, used in found.items()} == {4: {"cpu"}, 60: {"gpu"}}


def test_unmerged_every_request_is_a_batch_of_its_own():
    """As published: two run, one per replica, and the third waits though the GPU could have taken it along."""
    found = runs(choices("kairos", shown(TWO, requests([1, 1, 1])), merge=False))
    assert sorted(len(parts) for parts in found.values()) == [1, 1]


def test_merged_a_batch_is_topped_up_with_what_waits():
    """All three start, on two replicas, and in order of their deadlines within a batch."""
    found = runs(choices("kairos", shown(TWO, requests([1, 1, 1]))))
    assert sorted(part.rid for parts in found.values() for part in parts) == [0, 1, 2]
    assert all([p.rid for p in parts] == sorted(p.rid for p in parts) for parts in found.values())


@pytest.mark.parametrize(("guard", "used"), [(0.02, "gpu"), (0.0, "cpu")])
def test_the_guard_keeps_off_pairs_that_are_only_just_in_time(guard, used):
    """20 items take the CPU 22.0 ms of the 22.1 that there are: too close by 2 %, and then it is for the GPU."""
    view = shown(TWO, [request(0, 20, due_s=0.0221)])
    assert pools_of(choices("kairos", view, merge=False, guard=guard)) == {0: {used}}


def test_it_waits_for_a_busy_replica_that_can_still_make_it():
    """60 items are late on the idle CPU and in time on the GPU in 5 ms: nothing starts now."""
    lanes = [replica("cpu"), replica("gpu", free_s=0.005, slots=0)]
    assert choices("kairos", shown(TWO, [request(0, 60)], lanes), merge=False) == []


def test_what_is_late_everywhere_runs_all_the_same():
    """The penalty is the same on both, so the weighed time decides: 62 ms, or 5 times 13."""
    assert pools_of(choices("kairos", shown(TWO, [request(0, 60, due_s=0.001)]), merge=False)) == {0: {"cpu"}}


def test_pieces_start_in_order():
    """A request that has to be cut: whatever starts now begins where the request does, without a gap."""
    lanes = [replica("cpu", 0), replica("cpu", 1), replica("cpu", 2, free_s=0.001, slots=0)]
    view = shown({"cpu": TWO["cpu"]}, [request(0, 150, due_s=1.0, ranges_left=2)], lanes, slo_s=1.0)
    parts = sorted((p.start, p.items) for parts in runs(choices("kairos", view)).values() for p in parts)
    assert parts
    at = 0
    for start, items in parts:
        assert start == at
        at += items
