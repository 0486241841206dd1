"""Laws keep their rate, their shape and their bounds, are exact from a seed, and refuse what they cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConfigError
from turnout.traces import laws
from turnout.traces.laws import Counts, Diurnal, parse_arrivals, parse_sizes

ARRIVALS = ("poisson", "gamma:cv=13.2", "gamma:cv=0.5", "diurnal:peak=2,period_s=10")
SIZES = laws.SIZES.split(", ")


def rng(seed=0):
    """A generator of its own for each test."""
    return np.random.default_rng(seed)


@pytest.mark.parametrize("text", ARRIVALS)
def test_arrivals_ascend_and_are_those_of_the_seed(text):
    """Times never go back, and the same seed draws the same ones."""
    law = parse_arrivals(text)
    at_s = law.draw(5000, 100.0, rng(1))
    assert (np.diff(at_s) >= 0.0).all()
    assert at_s[0] > 0.0
    assert (law.draw(5000, 100.0, rng(1)) == at_s).all()
    assert (law.draw(5000, 100.0, rng(2)) != at_s).any()


@pytest.mark.parametrize("text", ARRIVALS)
def test_arrivals_have_the_rate_that_was_asked(text):
    """Over many requests the mean rate is the one given."""
    at_s = parse_arrivals(text).draw(400_000, 100.0, rng())
    assert len(at_s) / at_s[-1] == pytest.approx(100.0, rel=0.08)


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
def test_gaps_have_the_coefficient_of_variation(cv):
    """Gamma gaps vary as much as they are told to."""
    gaps = np.diff(parse_arrivals(f"gamma:cv={cv}").draw(200_000, 10.0, rng()))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


def test_the_day_is_a_sine():
    """The rate over a period is 1 + (peak - 1)·sin, with its highest at the peak and its lowest at night."""
    at_s = Diurnal(peak=1.8, period_s=100.0).draw(300_000, 1000.0, rng())
    whole = at_s[at_s < 200.0]
    counts, edges = np.histogram(whole % 100.0, 50, (0.0, 100.0))
    middles = 0.5 * (edges[1:] + edges[:-1])
    assert counts / counts.mean() == pytest.approx(1.0 + 0.8 * np.sin(2 * np.pi * middles / 100.0), abs=0.06)


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any), seed=st.integers(0, 99))
def test_counts_put_requests_where_there_were_some(counts, seed):
    """No request comes in a second that had none; the shares of the others are those recorded."""
    at_s = Counts(counts=tuple(counts), source="x").draw(20_000, 100.0, rng(seed))
    assert (np.diff(at_s) >= 0.0).all()
    seconds = np.minimum((at_s % len(counts)).astype(int), len(counts) - 1)
    found = np.bincount(seconds, minlength=len(counts))
    empty = np.array(counts) == 0
    assert found[empty].sum() <= 2  # rounding at the very end of a second
    rounds = at_s[-1] / len(counts)
    if rounds > 20:
        assert found / found.sum() == pytest.approx(np.array(counts) / sum(counts), abs=0.12)


@pytest.mark.parametrize("text", SIZES)
def test_sizes_are_whole_and_within_their_range(text):
    """Every size is a whole number of at least 1, and what a law writes it reads again."""
    law = parse_sizes(text)
    items = law.draw(20_000, rng())
    assert items.dtype == np.int64
    assert items.min() >= 1
    assert parse_sizes(law.text) == law
    assert (law.draw(20_000, rng()) == items).all()


@pytest.mark.parametrize(
    ("text", "low", "high", "mean"),
    [("fixed:32", 32, 32, 32.0), ("uniform:1-64", 1, 64, 32.5), ("deeprecsys", 80, 250, 165.0),
     ("lognormal:5.1,0.2,100-200", 100, 200, 163.2), ("choice:1=0.9,64=0.1", 1, 64, 7.3)],
)  # fmt: skip
def test_sizes_have_their_mean(text, low, high, mean):
    """The mean is the law's, and nothing is beyond its range."""
    items = parse_sizes(text).draw(100_000, rng())
    assert items.mean() == pytest.approx(mean, rel=0.02)
    assert low <= items.min() <= items.max() <= high


def test_kairos_sizes_have_the_published_shares():
    """8 % are 1 to 99, 22 % 200 to 599, 5 % 600 to 999, and the rest 100 to 200."""
    items = parse_sizes("kairos").draw(200_000, rng())
    assert (items < 100).mean() == pytest.approx(0.08, abs=0.003)
    assert (items >= 600).mean() == pytest.approx(0.05, abs=0.003)
    assert ((items > 200) & (items < 600)).mean() == pytest.approx(0.22, abs=0.005)
    assert items.max() <= 999


def test_a_trace_of_laws_is_that_of_its_seed():
    """Arrivals do not change with the size law, so that two size laws can be compared on the same moments."""
    one = laws.trace(parse_arrivals("poisson"), parse_sizes("kairos"), count=100, rate_per_s=5.0, seed=3)
    two = laws.trace(parse_arrivals("poisson"), parse_sizes("fixed:1"), count=100, rate_per_s=5.0, seed=3)
    assert (one.at_s == two.at_s).all()
    assert "poisson at 5 requests/s, sizes kairos, seed 3" in one.source


@pytest.mark.parametrize(
    ("text", "said"),
    [("steady", "such are: poisson"), ("poisson:3", "not an arrival law"), ("gamma", "needs cv"),
     ("gamma:cv=0", "0.01 to 1000"), ("gamma:x=1", "parameters of this law are cv"), ("gamma:cv=a", "not a number"),
     ("gamma:cv=1,cv=2", "parameters"), ("diurnal:peak=3", "1 to 2"), ("diurnal:period_s=0", "above 0")],
)  # fmt: skip
def test_what_is_no_arrival_law_is_refused(text, said):
    """The message says what is wrong, or what laws there are."""
    with pytest.raises(ConfigError, match=said):
        parse_arrivals(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("big", "such are: kairos"), ("kairos:3", "not a size law"), ("fixed:0", "at least 1"), ("fixed:", "at least 1"),
     ("uniform:5", "range"), ("uniform:9-3", "empty"), ("normal:1", "two numbers"), ("normal:1,-1", "not negative"),
     ("lognormal:a,b", "not a number"), ("lognormal:700,1", "bound"), ("choice:5", "not a number"),
     ("choice:5=0", "nor all 0"), ("uniform:1-9999999999", "number of items")],
)  # fmt: skip
def test_what_is_no_size_law_is_refused(text, said):
    """The message says what is wrong, or what laws there are."""
    with pytest.raises(ConfigError, match=said):
        parse_sizes(text)
