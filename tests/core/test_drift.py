"""The drift alarm is quick where times are steady and patient where they are not, and says since when."""

from __future__ import annotations

import math

import numpy as np
import pytest

from turnout.core.drift import ALARM, MIN_DEVIATION, Drift


def alarms(offs, deviation):
    """Where the alarm goes off, with what it says: (observation, how long it lasted)."""
    drift = Drift(deviation=deviation)
    found = []
    for i, off in enumerate(offs):
        lasted = drift.observe(drift.clipped(float(off)))
        if lasted:
            found.append((i, lasted))
    return found


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
def test_chance_rarely_raises_an_alarm(sigma):
    """Normal logarithms raise at most two alarms in 100,000 observations, whatever their spread."""
    offs = np.random.default_rng(3).normal(0.0, sigma, 100_000)
    assert len(alarms(offs, 0.8 * sigma)) <= 2


@pytest.mark.parametrize("factor", [2.0, 0.5])
@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
def test_a_factor_of_two_is_found_within_thirty(sigma, factor):
    """The first alarm after a change comes within 30 observations, and it is right on how long it lasted, by five."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        offs = rng.normal(0.0, sigma, 450)
        offs[400:] += math.log(factor)
        at, lasted = next(alarm for alarm in alarms(offs, 0.8 * sigma) if alarm[0] >= 400)
        assert at - 399 - 5 <= lasted
        assert at < 430


def test_outliers_are_no_drift():
    """One batch in fifty that takes four times as long never raises the alarm."""
    rng = np.random.default_rng(5)
    offs = rng.normal(0.0, 0.05, 20_000) + np.where(rng.random(20_000) < 0.02, math.log(4.0), 0.0)
    assert not alarms(offs, 0.04)


def test_steady_times_may_move_a_little():
    """A change of 1 % is not worth an alarm even where times do not vary at all."""
    assert not alarms([0.01] * 5000, MIN_DEVIATION)


def test_the_alarm_begins_anew():
    """After an alarm nothing is left of what had come together."""
    drift = Drift()
    while not drift.observe(drift.clipped(1.0)):
        pass
    assert (drift.up, drift.down, drift.up_for, drift.down_for) == (0.0, 0.0, 0, 0)
    assert drift.deviation < ALARM
