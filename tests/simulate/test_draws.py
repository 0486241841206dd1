"""Realised times: keyed, exact from a seed, and wrapped in noise, spells and drift that are what they say."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, stdev

import numpy as np
import pytest

from tests.core.test_latency import noisy, profile
from turnout import simulate
from turnout.errors import ArtefactError, ConfigError
from turnout.simulate import tails


def steady(_items, _key, _now_s):
    """One second, always."""
    return 1.0


def test_noise_keeps_the_mean():
    """Log-normal noise has mean 1, the deviation asked for, and is that of the key."""
    draw = simulate.lognormal(steady, 0.3)
    times = [draw(1, simulate.key(7, i), 0.0) for i in range(40_000)]
    assert fmean(times) == pytest.approx(1.0, abs=0.005)
    assert stdev(np.log(times)) == pytest.approx(0.3, rel=0.02)
    assert draw(1, simulate.key(7, 3), 99.0) == times[3]


def test_noise_is_not_the_luck_of_the_profile():
    """The noise of a batch says nothing of which sample it drew."""
    measured = profile(noisy(lambda n: 0.001 * n, (4,), spread=0.1))
    plain, noised = simulate.from_profile(measured), simulate.lognormal(simulate.from_profile(measured), 0.3)
    keys = [simulate.key(i) for i in range(20_000)]
    first = np.array([plain(4, k, 0.0) for k in keys])
    noise = np.array([noised(4, k, 0.0) for k in keys]) / first
    assert abs(np.corrcoef(first, noise)[0, 1]) < 0.03


def test_slow_spells_have_their_share_and_length():
    """Over a long time the pool is slow for slow / (fast + slow) of it, in spells of that mean length."""
    draw = simulate.two_state(steady, 4.0, 30.0, 2.0, seed=5)
    step_s = 0.02
    slow = [draw(1, 0, i * step_s) == 4.0 for i in range(1_600_000)]
    begun = sum(now and not before for before, now in pairwise(slow))
    assert fmean(slow) == pytest.approx(2.0 / 32.0, rel=0.12)
    assert sum(slow) * step_s / begun == pytest.approx(2.0, rel=0.12)


def test_slow_spells_are_those_of_the_seed_in_any_order():
    """Whoever asks, and in whatever order, meets the same spells; another seed has others."""
    moments = [i * 0.37 for i in range(2000)]
    forward, backward = (simulate.two_state(steady, 4.0, 5.0, 5.0, seed=1) for _ in range(2))
    once = [forward(1, 0, t) for t in moments]
    assert [backward(1, 0, t) for t in reversed(moments)] == once[::-1]
    other = simulate.two_state(steady, 4.0, 5.0, 5.0, seed=2)
    assert [other(1, 0, t) for t in moments] != once


def test_drift_begins_when_it_says():
    """Before it nothing, from then on the factor."""
    draw = simulate.drift(steady, 2.0, 30.0)
    assert [draw(1, 0, t) for t in (0.0, 29.9, 30.0, 99.0)] == [1.0, 1.0, 2.0, 2.0]


def test_beyond_the_profile_goes_on_at_the_last_slope():
    """Extrapolated times are on the line through the last two sizes at the same quantile; refused unless asked for."""
    measured = profile(noisy(lambda n: 0.01 + 0.001 * n, (2, 4, 8), spread=0.1))
    with pytest.raises(ArtefactError, match="was measured up to 8"):
        simulate.from_profile(measured)(9, 0, 0.0)
    draw = simulate.from_profile(measured, extrapolate=True)
    for k in map(simulate.key, range(100)):
        at_4, at_8 = draw(4, k, 0.0), draw(8, k, 0.0)
        assert draw(16, k, 0.0) == pytest.approx(at_8 + 2.0 * max(at_8 - at_4, 0.0))
    with pytest.raises(ArtefactError, match="one batch size, 4"):
        simulate.from_profile(profile(noisy(lambda n: 0.01, (4,), spread=0.1)), extrapolate=True)


@pytest.mark.parametrize("text", ["lognormal=0.2", "two-state=4,30,2"])
def test_tails_are_read_and_written(text):
    """What is read is written the same."""
    assert tails.text(tails.parse(text)) == text


@pytest.mark.parametrize("text", ["noise=1", "lognormal=", "lognormal=9", "two-state=4,30", "two-state=4,0,2"])
def test_what_is_no_tail_is_refused(text):
    """The message says what tails there are."""
    with pytest.raises(ConfigError, match="lognormal=SIGMA"):
        tails.parse(text)


def test_pools_have_spells_of_their_own():
    """Two pools are not slow at the same moments, and each is for all its models."""
    tail = (tails.parse("two-state=4,5,5"),)
    one, same, other = (tails.with_tails(steady, tail, seed=1, pool=pool) for pool in (0, 0, 1))
    moments = [i * 0.5 for i in range(500)]
    assert [one(1, 3, t) for t in moments] == [same(9, 4, t) for t in moments]
    assert [one(1, 3, t) for t in moments] != [other(1, 3, t) for t in moments]
