"""The demand bound sees bursts that the fluid bound averages away, and each of its runs proves what it says."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.bounds import interval
from turnout.bounds.fluid import cheapest, fluid, least_drops


def burst(n=20, service_s=0.1, pause_s=100.0):
    """Two bursts of n requests of 0.1 s each, due after 0.5 s, a long time apart."""
    at_s = np.concatenate([np.zeros(n), np.full(n, pause_s)])
    return at_s, np.full(2 * n, 0.5), np.full((2 * n, 1), service_s)


def test_a_burst_is_counted_where_it_is():
    """One machine does 5 of 20 in 0.5 s, twice; the fluid bound sees 4 s of work in 100 s."""
    at_s, deadline_s, work_s = burst()
    found = interval.least_misses(at_s, deadline_s, work_s, [1])
    assert found.misses == 30
    assert [len(run.rows) for run in found.runs] == [20, 20]
    assert fluid(work_s, [1], 0.0).makespan_s == pytest.approx(4.0)


def test_every_run_proves_its_misses():
    """The runs share no request, and each is checked again by the fluid programme in its own interval."""
    rng = np.random.default_rng(3)
    at_s = np.cumsum(rng.exponential(0.06, 300))
    deadline_s = rng.choice([0.3, 2.0], 300)
    work_s = rng.exponential(0.3, (300, 2))
    found = interval.least_misses(at_s, deadline_s, work_s, [1, 1])
    rows = np.concatenate([run.rows for run in found.runs])
    assert len(rows) == len(set(rows.tolist()))
    assert found.misses > 5
    for run in found.runs:
        assert at_s[run.rows].min() >= run.first_s
        assert (at_s + deadline_s)[run.rows].max() <= run.until_s
        assert run.misses <= least_drops(work_s[run.rows], np.full(2, run.until_s - run.first_s))[0] + 1e-6


def test_short_deadlines_are_looked_at_alone():
    """Ten requests due at once in the shadow of one that may wait for a year are ten too many for one machine."""
    at_s = np.arange(11) * 0.01
    deadline_s = np.array([1000.0] + [0.2] * 10)
    found = interval.least_misses(at_s, deadline_s, np.full((11, 1), 0.1), [1])
    assert found.misses == 8  # 0.29 s are enough for two


def test_the_highest_rate_of_steady_traffic():
    """A request every 0.1 s of 0.1 s of work: one machine can just do it, whatever the deadline."""
    at_s = np.arange(2000) * 1.0
    rate = interval.highest_rate(at_s, np.full(2000, 0.5), np.full((2000, 1), 0.1), [1], 0.0)
    assert 10.0 <= rate <= 10.0 * 1.01


def test_rates_without_a_bound():
    """What fits in one deadline has no highest rate; what no machine can do has rate 0."""
    at_s, deadline_s = np.array([0.0, 1.0]), np.array([1.0, 1.0])
    assert interval.highest_rate(at_s, deadline_s, np.full((2, 1), 0.1), [1], 0.0) == np.inf
    assert interval.highest_rate(at_s, deadline_s, np.full((2, 1), np.inf), [1], 0.0) == 0.0


def test_a_burst_takes_machines():
    """20 requests of 0.1 s within 0.5 s take 4 machines; the average would take one."""
    at_s, deadline_s, work_s = burst()
    found = interval.cheapest(at_s, deadline_s, work_s, [0.15], 0.0, max_replicas=[50])
    assert found.replicas.tolist() == [4.0]
    assert found.usd_per_h == pytest.approx(0.6)
    assert cheapest(work_s, [0.15], 100.5, 0.0, max_replicas=[50]).usd_per_h == pytest.approx(0.15)
    half = interval.cheapest(at_s, deadline_s, work_s, [0.15], 0.25, max_replicas=[50])
    assert half.replicas.tolist() == [3.0]  # 10 of 40 may be missed, 5 a burst


def test_a_fleet_that_cannot_be_is_said_to_be():
    """Too few allowed machines, or requests that nothing can serve, have no finite price."""
    at_s, deadline_s, work_s = burst()
    assert interval.cheapest(at_s, deadline_s, work_s, [0.15], 0.0, max_replicas=[3]).usd_per_h == np.inf
    nothing = np.full_like(work_s, np.inf)
    assert interval.cheapest(at_s, deadline_s, nothing, [0.15], 0.0, max_replicas=[3]).usd_per_h == np.inf


def test_two_pools_for_a_burst():
    """What only one pool can do in time makes that pool necessary, however dear."""
    at_s, deadline_s = np.zeros(10), np.full(10, 1.0)
    work_s = np.column_stack([np.full(10, 0.5), np.where(np.arange(10) < 5, np.inf, 0.1)])
    found = interval.cheapest(at_s, deadline_s, work_s, [1.0, 0.1], 0.0, max_replicas=[9, 9])
    assert found.replicas.tolist() == [3.0, 1.0]
