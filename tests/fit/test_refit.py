"""Profiles from recorded batches: what they keep, what they fill, and how they are judged."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.core import latency
from turnout.core.latency import line
from turnout.core.profile import Provenance
from turnout.fit import refit
from turnout.fit.recorded import Batch

OLD = line(0.002, 0.001)


def batches(sizes, factor=1.5, sigma=0.05):
    """Batches of these sizes that take `factor` times what the old model says, give or take."""
    rng = np.random.default_rng(2)
    times = [float(OLD.mean_s(n) * factor * rng.lognormal(0, sigma)) for n in sizes]
    return [
        Batch(at_s=float(i), items=n, service_s=t, total_s=t, p99_s=1.0)
        for i, (n, t) in enumerate(zip(sizes, times, strict=True))
    ]


@pytest.mark.parametrize("way", ["log", "scaled"])
@pytest.mark.parametrize("sizes", [[4] * 50, [1, 8, 64] * 40, list(range(1, 401))], ids=["one", "few", "many"])
def test_both_ways_predict_what_was_recorded(way, sizes):
    """A pool half as slow again is predicted so at every size seen, with a profile that reaches the largest batch."""
    samples = refit._samples(way, OLD, batches(sizes), 512)
    model = latency.fit(refit._profile(samples))
    assert samples[-1].items >= 512
    for n in {min(sizes), max(sizes)}:
        assert model.mean_s(n) == pytest.approx(1.5 * OLD.mean_s(n), rel=0.06)


def test_many_sizes_are_grouped_and_the_ends_are_kept():
    """There are few sizes in the profile, the smallest and the largest as in the log, and no time is lost."""
    row = batches(list(range(3, 803)))
    groups = dict(refit._groups(OLD, row))
    assert len(groups) <= refit.MAX_SIZES
    assert (min(groups), max(groups)) == (3, 802)
    assert sum(map(len, groups.values())) == len(row)


def test_an_error_is_symmetric():
    """Twice too long and half too short count the same, so that no model gains by leaning to one side."""
    (long,) = refit._errors(OLD, batches([8], factor=2.0, sigma=0.0))
    (short,) = refit._errors(OLD, batches([8], factor=0.5, sigma=0.0))
    assert long == pytest.approx(short)


def test_a_time_of_zero_is_survived():
    """A batch that took no time at all has a large error and no infinite one."""
    zero = Batch(at_s=0.0, items=4, service_s=0.0, total_s=0.0, p99_s=1.0)
    assert 1.0 < refit._errors(OLD, [zero])[0] < 100.0
    assert latency.fit(refit._profile(refit._samples("log", OLD, [zero] * 50, 8))).mean_s(4) >= 0.0


def test_only_recorded_times_are_measured():
    """A profile is measured if every time in it was recorded; what comes from the old model is said, size by size."""
    live = Provenance(kind="measured", source="a log", date="2026-01-01", hardware="here")
    row = batches([1, 8, 64] * 40)

    def provenance(way, largest):
        return refit._of(live, way, refit._samples(way, OLD, row, largest), row)

    assert provenance("log", 64).kind == "measured"
    assert provenance("log", 128).kind == "modelled"
    assert "sizes 128 from the old model" in provenance("log", 128).source
    assert provenance("scaled", 64).kind == "modelled"
