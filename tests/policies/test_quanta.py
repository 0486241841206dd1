"""The size of a batch is the largest that leaves the rest of the deadline for the wait."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from tests.policies.views import shown
from turnout.core.latency import LatencyModel, line
from turnout.policies.quanta import Quanta

LINES = st.builds(line, st.floats(0.0, 0.05), st.floats(1e-6, 0.01), st.just((0.9, 1.0, 1.2)))
SHARES = st.floats(0.05, 1.0)
STEPS = st.lists(st.floats(0.0, 0.03), min_size=2, max_size=6).map(
    lambda rises: LatencyModel(
        form="isotonic",
        knot_items=tuple(float(8 * i + 1) for i in range(len(rises))),
        knot_s=tuple(0.001 + sum(rises[: i + 1]) for i in range(len(rises))),
        ratios={0: (0.9, 1.0, 1.2)},
    )
)


def seen(latency, max_items, slo_s=0.05):
    """A view of one pool that serves model "m"."""
    return shown({"cpu": {"m": latency}}, (), slo_s=slo_s, pools={"cpu": {"max_items": max_items}})


def quantum(view, share):
    """The size of a batch of "m" on the only pool."""
    return Quanta(view, share).items(view.pools["cpu"], "m")


def counted_s(view, items):
    """What a batch counts for: the middle of its mean and its p99."""
    return (view.pools["cpu"].mean_s("m", items) + view.pools["cpu"].p99_s("m", items)) / 2


@given(latency=LINES | STEPS, max_items=st.integers(1, 80), share=SHARES)
def test_it_is_the_largest_batch_within_the_share_of_the_deadline(latency, max_items, share):
    """Tried one by one; where not even one item is within it, the share says nothing and the pool's limit holds."""
    view = seen(latency, max_items)
    fits = [n for n in range(1, max_items + 1) if counted_s(view, n) <= share * 0.05]
    assert quantum(view, share) == max(fits, default=max_items)


@given(
    latency=LINES | STEPS, max_items=st.integers(1, 80), shares=st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0))
)
def test_a_larger_share_never_gives_a_smaller_batch(latency, max_items, shares):
    """As long as the smaller share has room for one item."""
    view = seen(latency, max_items)
    assume(counted_s(view, 1) <= min(shares) * 0.05)
    assert quantum(view, min(shares)) <= quantum(view, max(shares))


@pytest.mark.parametrize(("max_items", "expected"), [(20, 20), (64, 25)])
def test_the_pools_limit_comes_first(max_items, expected):
    """0.55 of 50 ms is 27.5 ms: 25 items at 2 ms and 1 ms each, unless the pool takes fewer."""
    assert quantum(seen(line(0.002, 0.001), max_items), 0.55) == expected


def test_each_pool_and_model_has_its_own():
    """By its own latency and the deadline of the model; what was asked for before is not mixed up."""
    latencies = {"cpu": {"m": line(0.0, 0.001), "n": line(0.0, 0.001)}, "gpu": {"m": line(0.0, 0.0005)}}
    view = shown(latencies, (), slo_s={"m": 0.05, "n": 0.02})
    quanta = Quanta(view, 0.5001)
    asked = [("cpu", "m"), ("gpu", "m"), ("cpu", "n"), ("cpu", "m")]
    assert [quanta.items(view.pools[name], model) for name, model in asked] == [25, 50, 10, 25]
