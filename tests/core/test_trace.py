"""A trace is checked row by row, and scaling or cutting it changes nothing but what it says."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.core.trace import make


def test_a_bad_row_is_named():
    """Time that goes back, no items, an impossible deadline: each is refused with its row."""
    with pytest.raises(ValueError, match="row 2 has an arrival before the one above it"):
        make([0.0, 1.0, 0.5], [1, 1, 1], "test")
    with pytest.raises(ValueError, match="row 1 has no items"):
        make([0.0, 1.0], [1, 0], "test")
    with pytest.raises(ValueError, match="row 0 has a deadline that is not positive"):
        make([0.0], [1], "test", deadline_s=[0.0])
    with pytest.raises(ValueError, match="1 items for 2 arrivals"):
        make([0.0, 1.0], [1], "test")


def test_scaling_keeps_everything_but_the_rate():
    """At another rate gaps keep their proportions; a part starts at 0."""
    trace = make([1.0, 2.0, 4.0, 8.0], [3, 1, 2, 5], "test", deadline_s=[0.1, 0.2, 0.3, 0.4])
    fast = trace.at_rate(30.0)
    assert fast.rate_per_s == pytest.approx(30.0)
    assert np.diff(fast.at_s) / np.diff(trace.at_s) == pytest.approx(np.full(3, fast.duration_s / trace.duration_s))
    assert fast.items is trace.items
    assert fast.deadline_s is trace.deadline_s
    part = trace.part(1, 3)
    assert part.at_s.tolist() == [0.0, 2.0]
    assert part.items.tolist() == [1, 2]
