"""The fluid bound is the linear programme's optimum, and the cheapest fleet is the least of all."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from turnout.bounds import ascent
from turnout.bounds.fluid import (
    allowed_misses,
    amortised,
    b1_rate,
    b2_rate,
    cheapest,
    fluid,
    least_drops,
)


def programme(work_s, replicas, allowed):
    """The whole programme, a variable for each request and pool, solved by HiGHS."""
    n, k = work_s.shape
    cost = np.zeros(n * k + n + 1)
    cost[-1] = 1.0
    rows = np.zeros((k + n + 1, len(cost)))
    limits = np.zeros(k + n + 1)
    finite = np.where(np.isfinite(work_s), work_s, 0.0)
    for i in range(k):
        rows[i, np.arange(n) * k + i] = finite[:, i]
        rows[i, -1] = -replicas[i]
    for r in range(n):
        rows[k + r, r * k : r * k + k] = -1.0
        rows[k + r, n * k + r] = -1.0
        limits[k + r] = -1.0
    rows[-1, n * k : n * k + n] = 1.0
    limits[-1] = allowed
    upper = np.concatenate([np.isfinite(work_s).ravel().astype(float), np.ones(n), [np.inf]])
    answer = linprog(cost, A_ub=rows, b_ub=limits, bounds=np.column_stack([np.zeros(len(cost)), upper]))
    return answer.fun if answer.status == 0 else np.inf


@st.composite
def problems(draw):
    """Work, some of it impossible, and a fleet of up to three pools, some of them empty."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n, k = draw(st.integers(1, 25)), draw(st.integers(1, 3))
    work_s = rng.exponential(1.0, (n, k))
    work_s[rng.random((n, k)) < draw(st.sampled_from((0.0, 0.2)))] = np.inf
    replicas = np.array(draw(st.lists(st.integers(0, 3), min_size=k, max_size=k)), dtype=float)
    return work_s, replicas, draw(st.sampled_from((0.0, 0.1, 0.3)))


@given(problems())
@settings(max_examples=80, deadline=None)
def test_it_is_the_programmes_optimum(problem):
    """The dual's value is the primal's, within the gap that it reports, and never above it."""
    work_s, replicas, miss = problem
    found = fluid(work_s, replicas, miss)
    exact = programme(work_s, replicas, allowed_misses(len(work_s), miss))
    if np.isinf(exact):
        assert np.isinf(found.makespan_s)
        return
    assert found.makespan_s <= exact * (1.0 + 1e-6) + 1e-9
    assert found.makespan_s + found.gap_s == pytest.approx(exact, rel=1e-5, abs=1e-9)
    if found.makespan_s > 0.0:
        assert found.price @ replicas == pytest.approx(1.0)
        assert found.share.sum() == pytest.approx(1.0, abs=1e-5)
        assert len(found.dropped) == allowed_misses(len(work_s), miss)


def test_one_machine_is_a_sum():
    """With one machine and nothing to spare, the makespan is the total work; with misses, the dearest are left out."""
    work_s = np.arange(1.0, 101.0)[:, None]
    assert fluid(work_s, [1], 0.0).makespan_s == pytest.approx(5050.0)
    found = fluid(work_s, [2], 0.02)
    assert found.makespan_s == pytest.approx((5050.0 - 100.0 - 99.0) / 2.0)
    assert found.dropped.tolist() == [98, 99]
    assert found.rate_per_s == pytest.approx(100.0 / found.makespan_s)
    assert found.highest_rate(10.0) == pytest.approx(99.0 / (found.makespan_s - 10.0))
    assert found.highest_rate(1e9) == np.inf


def test_nothing_to_do_takes_no_time():
    """If all may be missed, no machine is needed."""
    found = fluid(np.ones((3, 1)), [1], 1.0)
    assert found.makespan_s == 0.0
    assert found.rate_per_s == np.inf
    assert cheapest(np.ones((3, 1)), [1.0], 1.0, 1.0, max_replicas=[3]).usd_per_h == 0.0


def test_amortised_work_is_the_best_rate_of_batches_in_time():
    """Batches of 1, 2, 4 take 1, 1.5 and 4 s: an item is charged the best rate of those that its deadline allows."""
    took_s = np.array([1.0, 1.5, 3.3, 4.0])
    work_s = amortised(np.array([2, 2, 2, 2]), [took_s], np.array([0.5, 1.0, 1.5, 9.0]))
    assert work_s[:, 0].tolist() == [np.inf, 2.0, 1.5, 1.5]
    items = np.full(100, 4)
    assert b2_rate(items, [took_s], np.full(100, 5.0), [1], 0.0) == pytest.approx(1.0 / 3.0)
    assert b1_rate(np.full((100, 1), 4.0), [1], 0.0) == pytest.approx(0.25)


@given(problems(), st.floats(0.1, 10.0))
@settings(max_examples=60, deadline=None)
def test_least_drops_and_makespan_agree(problem, horizon_s):
    """A horizon is long enough for all but m requests exactly if no more than m must be dropped in it."""
    work_s, replicas, miss = problem
    allowed = allowed_misses(len(work_s), miss)
    makespan_s = programme(work_s, replicas, allowed)
    drops, _ = least_drops(work_s, replicas * horizon_s)
    if makespan_s < horizon_s * 0.999:
        assert drops <= allowed + 1e-4
    if makespan_s > horizon_s * 1.001:
        assert drops > allowed - 1e-4


@given(problems(), st.floats(1.0, 8.0))
@settings(max_examples=40, deadline=None)
def test_the_cheapest_fleet_is_the_least_of_all(problem, horizon_s):
    """Among all whole-number fleets none that has the time costs less, and parts of machines never cost more."""
    work_s, _, miss = problem
    k = work_s.shape[1]
    usd_per_h = [0.5, 0.15, 0.31][:k]
    allowed = allowed_misses(len(work_s), miss)
    fits = [
        sum(c * y for c, y in zip(usd_per_h, fleet, strict=True))
        for fleet in product(range(4), repeat=k)
        if programme(work_s, np.array(fleet, dtype=float), allowed) <= horizon_s * (1.0 + 1e-7)
    ]
    found = cheapest(work_s, usd_per_h, horizon_s, miss, max_replicas=[3] * k)
    assert found.usd_per_h == pytest.approx(min(fits, default=np.inf), rel=1e-6)
    parts = cheapest(work_s, usd_per_h, horizon_s, miss, max_replicas=[3] * k, integer=False)
    assert parts.usd_per_h <= found.usd_per_h * (1.0 + 1e-6) + 1e-9


def test_a_large_trace_is_quick_and_certified():
    """50,000 requests on three pools are solved to a relative gap of 1e-5."""
    rng = np.random.default_rng(1)
    work_s = rng.exponential(1.0, (50_000, 3)) * [1.0, 0.3, 2.0]
    found = fluid(work_s, [2, 9, 3])
    assert found.gap_s < 1e-5 * found.makespan_s


def test_without_scipy_it_says_what_to_install(monkeypatch):
    """The message names the extra."""
    import sys

    from turnout.errors import ExtraMissingError

    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ExtraMissingError, match=r"\[match\]"):
        ascent.optimiser()
