"""The latency model takes the right form, and its calibration covers what it promises while the machine drifts."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from turnout.core.latency import WINDOW, Calibration, bucket, constant, fit, line, quantile
from turnout.core.profile import Profile, Provenance, Samples

PROVENANCE = Provenance(kind="modelled", source="test", date="2026-01-01", hardware="none")


def profile(times):
    """A profile with the given seconds by batch size."""
    samples = tuple(Samples(items=n, service_s=tuple(s)) for n, s in times.items())
    return Profile(
        model="m", model_digest="", device="cpu", device_key="", variant="", provenance=PROVENANCE, samples=samples
    )


def noisy(shape, sizes, seed=0, spread=0.05):
    """Times around `shape(n)` with log-normal noise."""
    rng = np.random.default_rng(seed)
    return {n: [float(shape(n) * rng.lognormal(0, spread)) for _ in range(40)] for n in sizes}


def test_a_line_is_fitted_as_a_line():
    """Linear service times give the line, with a and b recovered."""
    model = fit(profile(noisy(lambda n: 0.002 + 0.0005 * n, (1, 2, 4, 8, 16, 32, 64))))
    assert model.form == "line"
    assert model.mean_s(1) == pytest.approx(0.0025, rel=0.05)
    assert model.mean_s(48) == pytest.approx(0.026, rel=0.05)


def test_a_step_is_fitted_by_the_curve():
    """Times that jump where a batch fills another wave of the hardware are no line, and cross-validation says so."""
    model = fit(profile(noisy(lambda n: 0.001 if n < 24 else 0.010, (1, 2, 4, 8, 16, 24, 32, 48, 64), spread=0.01)))
    assert model.form == "isotonic"
    assert model.mean_s(8) == pytest.approx(0.001, rel=0.05)
    assert model.mean_s(40) == pytest.approx(0.010, rel=0.05)


@given(
    st.dictionaries(st.integers(1, 500), st.lists(st.floats(1e-5, 1.0), min_size=1, max_size=5), min_size=1, max_size=8)
)
@settings(max_examples=200)
def test_predictions_never_descend_and_never_are_negative(times):
    """Whatever was measured, a larger batch is never predicted to be faster."""
    model = fit(profile(times))
    predicted = [model.mean_s(n) for n in range(1, 600, 7)]
    assert predicted[0] >= 0.0
    assert all(a <= b * (1 + 1e-9) + 1e-12 for a, b in pairwise(predicted))


def test_a_profile_without_samples_is_refused():
    """There is nothing to fit."""
    with pytest.raises(ValueError, match="without samples"):
        fit(profile({}))
    with pytest.raises(ValueError, match="without samples"):
        fit(profile({4: []}))


def test_the_tail_belongs_to_its_batch_size():
    """A size with a heavy tail has a high p99; the others do not inherit it."""
    times = {1: [0.001] * 99 + [0.010], 64: [0.020] * 100}
    model = fit(profile(times))
    assert model.quantile_s(64, 0.99) == pytest.approx(0.020, rel=0.01)
    assert model.quantile_s(1, 0.995) == pytest.approx(0.010, rel=0.01)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=300), st.floats(0.5, 0.999))
def test_the_quantile_has_the_rank_of_split_conformal(values, level):
    """At least the share `level` of (n + 1) lies at or below it, or it is the maximum."""
    ordered = sorted(values)
    found = quantile(ordered, level)
    below = sum(v <= found for v in ordered)
    assert below >= level * (len(ordered) + 1) - 1e-9 or found == ordered[-1]


def test_buckets_are_powers_of_two():
    """Sizes from 2^k to 2^(k+1) - 1 share a bucket."""
    assert [bucket(n) for n in (1, 2, 3, 4, 7, 8, 1023, 1024)] == [0, 1, 1, 2, 2, 3, 9, 10]


@pytest.mark.parametrize("drift", [1.0, 2.0, 0.5])
def test_p99_covers_99_percent_through_a_drift(drift):
    """A pool that becomes twice as slow half-way still has 98 to 99.9 % of its batches within their predicted p99."""
    rng = np.random.default_rng(5)
    live = Calibration(line(0.002, 0.001, tuple(np.sort(rng.lognormal(0, 0.1, 200)))))
    covered, total = 0, 6000
    for i in range(total):
        items = int(rng.integers(1, 33))
        took_s = (0.002 + 0.001 * items) * float(rng.lognormal(0, 0.1)) * (drift if i > total / 2 else 1.0)
        covered += took_s <= live.p99_s(items)
        live.observe(items, took_s)
    assert 0.98 <= covered / total <= 0.999
    assert live.mean_s(8) == pytest.approx(0.010 * drift, rel=0.1)


def test_a_window_forgets():
    """After `WINDOW` batches at a new speed, the mean of that size is the new one."""
    live = Calibration(constant(0.010))
    for _ in range(WINDOW):
        live.observe(1, 0.030)
    assert live.mean_s(1) == pytest.approx(0.030)


def test_a_restored_calibration_predicts_the_same():
    """A snapshot carries everything that predictions depend on."""
    live, again = Calibration(line(0.001, 0.001)), Calibration(line(0.001, 0.001))
    for i in range(50):
        live.observe(1 + i % 9, 0.004)
    again.restore(live.state())
    assert [again.p99_s(n) for n in (1, 5, 9)] == [live.p99_s(n) for n in (1, 5, 9)]
