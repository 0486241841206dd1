"""A trace as events: the same requests, due when they should be, one at a time."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import numpy as np
import pytest

from turnout.core.trace import Trace, make
from turnout.errors import ConfigError
from turnout.simulate.arrivals import CHUNK, arrivals


def test_every_row_becomes_a_request():
    """In order, across chunks, with the model's deadline, parts and priority."""
    n = 2 * CHUNK + 3
    trace = make(np.arange(n) * 0.1, np.arange(n) % 7 + 1, "x", "m")
    found = list(arrivals(trace, {"m": 0.5}, {"m": 4}, {"m": 2}))
    assert [a.rid for a in found] == list(range(n))
    assert [a.items for a in found] == trace.items.tolist()
    assert all(a.deadline_s == a.at_s + 0.5 for a in found)
    assert {(a.model, a.max_parts, a.priority) for a in found} == {("m", 4, 2)}


def test_a_trace_has_its_own_deadlines_first():
    """A deadline in the trace goes before the model's; several models each have theirs."""
    two = Trace(
        at_s=np.zeros(2), items=np.ones(2, dtype=np.int64), model=np.array([1, 0]), models=("a", "b"), source="x"
    )
    assert [a.deadline_s for a in arrivals(two, {"a": 1.0, "b": 2.0})] == [2.0, 1.0]
    own = make([0.0, 1.0], [1, 1], "x", "m", [0.25, 0.5])
    assert [a.deadline_s for a in arrivals(own, {})] == [0.25, 1.5]


def test_a_model_without_a_deadline_is_refused_at_once():
    """The error comes before anything runs, and says which models there are."""
    with pytest.raises(ConfigError, match="requests of m, and there are: other"):
        arrivals(make([0.0], [1], "x", "m"), {"other": 1.0})


def test_memory_does_not_grow_with_the_trace():
    """The first requests of a long trace cost one chunk, not the whole."""
    trace = make(np.arange(1_000_000.0), np.ones(1_000_000), "x", "m")
    tracemalloc.start()
    try:
        assert len(list(islice(arrivals(trace, {"m": 1.0}), 10))) == 10
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
