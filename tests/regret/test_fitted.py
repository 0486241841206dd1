"""Latency models from a log alone, and which of its rows have no queue in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.regret.requests import CURVES, log, served
from turnout.errors import ConfigError
from turnout.regret import fitted


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=25))
def test_alone_is_that_no_other_is_there(rows):
    """A request is alone if no other of its backend overlaps it; checked pair by pair."""
    rows = sorted(rows)
    table = log(
        [t for t, _, _ in rows],
        np.ones(len(rows)),
        [d for _, d, _ in rows],
        backend=np.array([b for *_, b in rows]),
        backends=("a", "b", "c"),
    )
    found = fitted.alone(table)
    for i, (t, d, b) in enumerate(rows):
        others = [(u, u + e) for j, (u, e, c) in enumerate(rows) if c == b and j != i]
        inside = any(u < t + d and t < end for u, end in others)
        if inside:
            assert not found[i]
        elif all(end != t and u != t + d and u != t for u, end in others):  # touching ends may count either way
            assert found[i]


@pytest.mark.parametrize("column", [True, False])
def test_the_curve_comes_back(column):
    """From a column of service seconds, and from requests that were alone, the very curve that made the log."""
    table = served(2000, rate_per_s=20.0)
    if not column:
        table = replace(table, service_s=None)
    fits = fitted.fit_pools(table, ("gpu", "cpu", "cpu"))
    for name, curve in CURVES.items():
        for items in (1, 4, 16, 64):
            assert fits[name].models["m"].mean_s(items) == pytest.approx(curve.mean_s(items), rel=0.01)
        assert fits[name].error < 0.01
        assert fits[name].largest == 64
    assert ("themselves" in fits["cpu"].basis) is not column


def test_noise_is_kept_as_spread():
    """The ratios of actual to predicted time are those of the rows, so that simulations have the log's luck."""
    rng = np.random.default_rng(1)
    n = 4000
    noise = rng.lognormal(0.0, 0.2, n)
    items = rng.integers(1, 65, n)
    service_s = (0.002 + 0.001 * items) * noise
    table = log(np.arange(n), items, service_s, service_s=service_s)
    fit = fitted.fit_pools(table, ("cpu",))["cpu"]
    ratios = np.log(np.concatenate([fit.models["m"].ratios[b] for b in (3, 4, 5)]))
    assert np.std(ratios) == pytest.approx(0.2, rel=0.1)
    assert fit.error == pytest.approx(0.2 * np.sqrt(2.0 / np.pi), rel=0.1)


def test_too_few_rows_say_what_to_do():
    """With the pool, the number of rows, and the ways out; and so if whole seconds hide who was alone."""
    table = log(np.arange(90), np.ones(90), np.full(90, 0.1), coarse=True)
    with pytest.raises(ConfigError, match=r"are whole seconds, .* --map service=COLUMN:ms"):
        fitted.fit_pools(table, ("cpu",))
    with pytest.raises(ConfigError, match=r"has 20 rows on cpu .* --map service=COLUMN:ms.* --fleet FLEET.toml"):
        fitted.fit_pools(log(np.arange(20), np.ones(20), np.full(20, 0.1)), ("cpu",))
