"""Quantiles from bins are those of the values themselves, within the width of a bin."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from turnout.core.histogram import Histogram
from turnout.core.latency import quantile

SECONDS = st.lists(st.just(0.0) | st.floats(1e-9, 1e6), min_size=1, max_size=300)


@given(SECONDS, st.sampled_from([0.01, 0.5, 0.9, 0.99]))
def test_a_quantile_is_within_a_quarter_percent_of_the_value_of_its_rank(values, level):
    """Whatever the values, and in whatever order they come."""
    found = Histogram()
    for value in values:
        found.add(value)
    assert found.quantile(level) == pytest.approx(quantile(sorted(values), level), rel=0.0026)
    assert found.count == len(values)
    assert found.mean == pytest.approx(sum(values) / len(values))


@given(SECONDS)
def test_quantiles_ascend(values):
    """A higher level never has a smaller value."""
    found = Histogram()
    for value in values:
        found.add(value)
    assert found.quantile(0.1) <= found.quantile(0.5) <= found.quantile(0.99)


def test_memory_is_that_of_the_bins():
    """A hundred thousand values between a millisecond and a second are in under fifteen hundred bins."""
    found = Histogram()
    for i in range(100_000):
        found.add(0.001 + i * 1e-5)
    assert len(found._bins) < 1500


def test_of_nothing_there_is_no_quantile():
    """Nor a mean."""
    assert Histogram().quantile(0.5) is None
    assert Histogram().mean is None
