"""The waiting set is in order of deadline, gives back what was put in, and knows what can no longer make it."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from turnout.core.events import Part
from turnout.core.policy import Waiting
from turnout.core.waiting import NEVER, WaitingSet

ENTRIES = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 3)), st.tuples(st.floats(0, 10), st.floats(0, 10) | st.just(NEVER))
)


def waiting(rid, start, deadline_s):
    """Five items of a request."""
    return Waiting(rid=rid, start=start, items=5, model="m", arrived_s=0.0, deadline_s=deadline_s)


def filled(entries):
    """A set with these (rid, start) -> (deadline, latest start)."""
    found = WaitingSet()
    for (rid, start), (deadline_s, latest_s) in entries.items():
        found.add(waiting(rid, start, deadline_s), latest_s)
    return found


@given(ENTRIES)
def test_order_is_by_deadline(entries):
    """Whatever the order of arrival, the earliest deadline is first, ties by request and place."""
    keys = [(w.deadline_s, w.rid, w.start) for w in filled(entries).in_order()]
    assert keys == sorted((deadline_s, *key) for key, (deadline_s, _) in entries.items())


@given(ENTRIES, st.floats(0, 10), st.sets(st.integers(0, 9)))
def test_expired_are_those_whose_latest_start_has_passed(entries, now_s, dropped):
    """Dropped requests never expire; the others do exactly once their moment has passed."""
    found = filled(entries)
    for rid in dropped:
        found.drop(rid)
    expected = {rid for (rid, _), (_, latest_s) in entries.items() if latest_s < now_s and rid not in dropped}
    assert set(found.pop_expired(now_s)) == expected
    assert found.pop_expired(now_s) == []
    assert found.next_expiry_s() >= now_s


def test_a_range_queued_anew_has_its_new_moment():
    """What failed and waits again is judged by its new latest start, not by the one it had before."""
    found = filled({(1, 0): (9.0, 2.0)})
    found.remove(1, 0)
    found.add(waiting(1, 0, 9.0), 5.0)
    assert found.next_expiry_s() == 5.0
    assert found.pop_expired(3.0) == []


def test_a_part_is_found_only_at_the_head_of_its_range():
    """A policy can cut from the front of what waits, and from nowhere else."""
    found = filled({(1, 5): (9.0, NEVER)})
    assert found.find(Part(1, 5, 5)) is not None
    assert found.find(Part(1, 5, 2)) is not None
    assert found.find(Part(1, 6, 2)) is None
    assert found.find(Part(1, 5, 6)) is None
    assert found.find(Part(1, 5, 0)) is None


def test_memory_follows_the_queue_and_not_the_traffic():
    """Requests that were served long before their deadline leave nothing behind."""
    found = WaitingSet()
    for rid in range(20_000):
        found.add(waiting(rid, 0, 3600.0 + rid), 3000.0 + rid)
        found.remove(rid, 0)
    assert len(found._expiry) <= 2048
    assert found.next_expiry_s() == NEVER
