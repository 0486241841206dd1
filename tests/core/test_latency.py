"""The latency model takes the right form, and its calibration covers what it promises while the machine drifts."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from turnout.core.latency import (
    LAST,
    WINDOW,
    Calibration,
    CalibrationState,
    bucket,
    constant,
    fit,
    line,
    quantile,
)
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


MODEL = line(0.002, 0.001, tuple(np.exp(0.02 * np.linspace(-2.5, 2.5, 200)).tolist()))
COUNT = 6000


def stream(trouble, rng):
    """`COUNT` sizes, and how much longer each batch takes than `MODEL` says, under one kind of trouble."""
    items = rng.integers(1, 600, COUNT)
    factor = rng.lognormal(0.0, 0.02, COUNT)
    if "wrong by size" in trouble:
        factor *= rng.uniform(0.7, 1.3, 600)[items]
    if "wrong by bucket" in trouble:
        factor *= rng.uniform(0.7, 1.3, 10)[[int(n).bit_length() - 1 for n in items]]
    if "wrong by pool" in trouble:
        factor *= 1.3
    if "noisy" in trouble:
        factor *= rng.lognormal(0.0, 0.3, COUNT)
    if "noisy when small" in trouble:
        factor *= np.where(items < 256, rng.lognormal(0.0, 0.3, COUNT), 1.0)
    if "slow at times" in trouble:
        factor *= np.where(rng.random(COUNT) < 0.02, 4.0, 1.0)
    if "twice as slow" in trouble:
        factor[COUNT // 2 :] *= 2.0
    if "twice as fast" in trouble:
        factor[COUNT // 2 :] *= 0.5
    return items, factor


def live_through(trouble, seed=5):
    """The stream through a calibration: the calibration, sizes, seconds taken, and the means and p99s before each."""
    items, factor = stream(trouble, np.random.default_rng(seed))
    live = Calibration(MODEL)
    taken, means, tails = (np.empty(COUNT) for _ in range(3))
    for i, (n, f) in enumerate(zip(items.tolist(), factor.tolist(), strict=True)):
        means[i], tails[i] = live.mean_s(n), live.p99_s(n)
        taken[i] = MODEL.mean_s(n) * f
        live.observe(n, taken[i])
    return live, items, taken, means, tails


TROUBLES = (
    ("none",),
    ("wrong by size",),
    ("wrong by bucket",),
    ("wrong by pool",),
    ("noisy",),
    ("slow at times",),
    ("wrong by bucket", "noisy"),
    ("noisy", "slow at times"),
    ("noisy when small",),
    ("twice as slow",),
    ("twice as fast", "noisy"),
    ("wrong by size", "twice as slow", "noisy"),
    ("slow at times", "twice as slow"),
)


@pytest.mark.parametrize("trouble", TROUBLES, ids=", ".join)
def test_p99_covers_99_percent_and_not_much_more(trouble):
    """Whatever the trouble, 98.5 to 99.5 % of all batches keep their p99: beyond that it refuses work for nothing."""
    _, _, taken, _, tails = live_through(trouble)
    assert 0.985 <= np.mean(taken <= tails) <= 0.995


@pytest.mark.parametrize("trouble", TROUBLES, ids=", ".join)
def test_no_size_pays_for_another(trouble):
    """Coverage holds in each half of the range of sizes by itself, once the first 500 batches are seen."""
    _, items, taken, _, tails = live_through(trouble)
    covered, late = taken <= tails, np.arange(COUNT) >= 500
    for chosen in (items < 256, items >= 256):
        assert 0.98 <= np.mean(covered[chosen & late]) <= 0.997


@pytest.mark.parametrize("change", ["twice as slow", "twice as fast"])
@pytest.mark.parametrize("noise", [(), ("noisy",), ("slow at times",)], ids=str)
def test_a_drift_is_followed_within_forty_batches(change, noise):
    """From 20 to 220 batches after the change, the means that are predicted add up to the time taken within 8 %."""
    live, _, taken, means, _ = live_through((change, *noise))
    assert live.alarms >= 1
    after = slice(COUNT // 2 + 20, COUNT // 2 + 220)
    assert means[after].sum() == pytest.approx(taken[after].sum(), rel=0.08)


def test_sizes_that_are_rare_follow_a_drift_of_the_others():
    """A size that has not come since the pool became twice as slow is predicted to take twice as long."""
    live = Calibration(MODEL)
    for _ in range(20):
        live.observe(500, MODEL.mean_s(500))
    for factor in (1.0, 2.0):
        for i in range(60):
            live.observe(1 + i % 30, factor * MODEL.mean_s(1 + i % 30))
    assert live.mean_s(500) == pytest.approx(2.0 * MODEL.mean_s(500), rel=0.03)


@pytest.mark.parametrize("trouble", [("none",), ("noisy",), ("slow at times",), ("noisy", "slow at times")])
def test_chance_is_no_drift(trouble):
    """Noise and rare slow batches raise at most one alarm in 6000 batches."""
    assert live_through(trouble)[0].alarms <= 1


def test_times_that_are_all_the_same_are_within_their_p99():
    """A tie is covered whatever the rounding, and a pool without spread has no margin on top."""
    live = Calibration(line(0.0013, 0.00017))
    for i in range(400):
        items = 1 + i % 97
        assert live.model.mean_s(items) <= live.p99_s(items) <= live.mean_s(items) * 1.000001
        live.observe(items, live.model.mean_s(items))


def test_a_size_forgets():
    """After 128 batches at a new speed, the mean of that size is the new one."""
    live = Calibration(constant(0.010))
    for _ in range(128):
        live.observe(1, 0.030)
    assert live.mean_s(1) == pytest.approx(0.030)


@given(st.lists(st.tuples(st.integers(1, 3000), st.floats(0.0, 100.0)), max_size=200))
@settings(max_examples=50)
def test_any_observations_leave_usable_predictions(batches):
    """Zeros and absurdities included: predictions stay finite, and the p99 is never below the mean."""
    live = Calibration(line(0.001, 0.0001))
    for items, service_s in batches:
        live.observe(items, service_s)
        assert 0.0 <= live.mean_s(items) <= live.p99_s(items) < float("inf")


@pytest.mark.parametrize("seen", [5, 50, 600])
def test_a_restored_calibration_goes_on_the_same(seen):
    """A snapshot, through JSON, carries everything: alarms that come later come in both, and predictions are equal."""
    items, factor = stream(("noisy", "slow at times"), np.random.default_rng(1))
    batches = [(n, MODEL.mean_s(n) * f) for n, f in zip(items.tolist(), factor.tolist(), strict=True)][: seen + 300]
    live, again = Calibration(MODEL), Calibration(MODEL)
    for batch in batches[:seen]:
        live.observe(*batch)
    again.restore(msgspec.json.decode(msgspec.json.encode(live.state()), type=CalibrationState))
    for n, service_s in batches[seen:]:
        live.observe(n, 2.0 * service_s)
        again.observe(n, 2.0 * service_s)
        assert (again.mean_s(n), again.p99_s(n)) == (live.mean_s(n), live.p99_s(n))
    assert again.alarms == live.alarms >= 1


def test_the_last_batches_are_few():
    """What a calibration remembers is bounded, however long it lives."""
    live = live_through(("noisy", "twice as slow"))[0]
    state = live.state()
    assert len(state.last) <= LAST
    assert all(
        len(w.recent) == len(w.ordered) <= WINDOW for w in (state.common, *(b.window for b in state.buckets.values()))
    )
