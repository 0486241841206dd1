"""The search finds the cheapest fleet, with few attempts."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from turnout.regret.floor import Floor
from turnout.regret.search import MOST_ATTEMPTS, Search


def floor_of(speed, needed, usd_per_h):
    """One cut: together the machines must be so fast."""
    return Floor(
        prices=np.array([speed], dtype=float), needed=np.array([needed]), usd_per_h=np.array(usd_per_h), possible=True
    )


@given(st.data())
def test_it_agrees_with_trying_every_fleet(data):
    """For 1 to 3 pools, and any objective that more machines never hurt, with a bound that is loose or exact."""
    pools = data.draw(st.integers(1, 3))
    speed = data.draw(st.lists(st.integers(1, 9), min_size=pools, max_size=pools))
    usd_per_h = data.draw(st.lists(st.sampled_from([0.1, 0.15, 0.5, 1.0]), min_size=pools, max_size=pools))
    most = data.draw(st.lists(st.integers(1, 5), min_size=pools, max_size=pools))
    needed = data.draw(st.integers(1, 40))
    start = tuple(data.draw(st.integers(0, m)) for m in most)
    slack = data.draw(st.sampled_from([0.0, 0.5, 1.0]))

    def meets(counts):
        return sum(k * s for k, s in zip(counts, speed, strict=True)) >= needed

    search = Search(usd_per_h=usd_per_h, most=most, floor=floor_of(speed, slack * needed, usd_per_h), meets=meets)
    found = search.run(start)
    assert search.complete
    every = [c for c in product(*(range(m + 1) for m in most)) if any(c) and meets(c)]
    if not every:
        assert found is None
    else:
        assert meets(found)
        assert abs(search.cost(found) - min(map(search.cost, every))) < 1e-9


def test_it_gives_up_after_so_many_fleets():
    """A search that is not done says so, and keeps the best that it has."""
    calls = []

    def meets(counts):
        calls.append(counts)
        return counts == (40, 40, 40)

    search = Search(
        usd_per_h=[1.0, 1.1, 0.1], most=[40, 40, 40], floor=floor_of([1, 1, 1], 0.0, [1.0, 1.1, 0.1]), meets=meets
    )
    assert search.run((40, 40, 40)) == (40, 40, 40)
    assert len(calls) == MOST_ATTEMPTS
    assert not search.complete
