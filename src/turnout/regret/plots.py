"""Figures that need no simulation: what a request takes on each pool by its size, and where one overtakes another."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from turnout.core.fleet import PoolSpec
from turnout.core.latency import LatencyModel
from turnout.regret.artefact import Crossover, Curve
from turnout.regret.own import Own
from turnout.regret.traffic import Traffic

POINTS = 60
"""Sizes that a curve is drawn at."""


def curves(own: Own, traffic: Traffic) -> tuple[Curve, ...]:
    """Mean seconds by size, up to the largest request of the traffic."""
    models = own.latencies
    found = []
    for pool in own.pools:
        for name in traffic.log.models:
            if (pool.name, name) not in models:
                continue
            sizes = _sizes(traffic, pool)
            seconds = tuple(models[pool.name, name].mean_s(n) for n in sizes)
            found.append(Curve(pool=pool.name, model=name, items=sizes, seconds=seconds))
    return tuple(found)


def _sizes(traffic: Traffic, *pools: PoolSpec) -> tuple[int, ...]:
    """Sizes from 1 to what the traffic has and the pools take."""
    most = min(int(traffic.log.items.max()), *(pool.max_items for pool in pools), 10**9)
    return tuple(int(n) for n in np.unique(np.geomspace(1, max(most, 1), POINTS).round()))


def crossovers(own: Own, traffic: Traffic) -> tuple[Crossover, ...]:
    """For each model and pair of pools, from which size on the one is faster and cheaper, if it is not from 1 on."""
    models = own.latencies
    found = []
    for name in traffic.log.models:
        for pool, than in permutations([p for p in own.pools if (p.name, name) in models], 2):
            most = min(int(traffic.log.items.max()), pool.max_items, than.max_items)
            pair = models[pool.name, name], models[than.name, name]
            faster = _from(*pair, 1.0, 1.0, most)
            cheaper = _from(*pair, pool.price.usd_per_s, than.price.usd_per_s, most)
            if (faster or 1) > 1 or (cheaper or 1) > 1:
                found.append(
                    Crossover(model=name, pool=pool.name, than=than.name, faster_from=faster, cheaper_from=cheaper)
                )
    return tuple(found)


def _from(a: LatencyModel, b: LatencyModel, weight_a: float, weight_b: float, most: int) -> int | None:
    """The size from which on, up to `most`, a is less than b, each times its weight; None if it is not at all."""
    least = None
    for n in range(most, 0, -1):
        if weight_a * a.mean_s(n) >= weight_b * b.mean_s(n):
            break
        least = n
    return least
