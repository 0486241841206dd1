"""The least that any fleet can cost, whatever routes it: the fluid bound in whole machines.

Request r takes w(r, i) busy seconds on pool i. For any prices p >= 0 of a pool-second, serving it takes at least
min over i of p(i) · w(r, i); so a fleet k that serves all but the dearest share `miss` within the horizon H has
sum over i of p(i) · k(i) · H >= the sum of the others. Each p cuts off fleets that are too small (weak duality of the
fluid linear programme), and the cheapest whole-number fleet that no cut removes is the bound. With p = the prices per
second it is that programme's optimum, so that more cuts only account for whole machines.

w is what the request takes alone (B1); or, where requests may be merged or split, its items at the best rate of any
batch that is done by its deadline (B2). Both are mean service times: a bound in expectation, over the luck of batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

import numpy as np

from turnout.core.fleet import PoolSpec
from turnout.core.latency import LatencyModel
from turnout.regret.traffic import Traffic
from turnout.traces.access.log import Floats, Ints

DIRECTIONS = 24
"""Steps of the prices between two pools."""

MOST_FLEETS = 2_000_000
"""Whole-number fleets that are looked at."""

MOST_SIZES = 4096
"""Batch sizes whose rate is looked at."""

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The cuts: fleet k (pools,) can only serve the traffic if prices (cuts, pools) · k >= needed (cuts,).

    `possible` is that enough requests can be in time on any pool at all.
    """

    prices: Floats
    needed: Floats
    usd_per_h: Floats
    possible: bool

    def allows(self, counts: Sequence[int]) -> bool:
        """Whether no cut removes a fleet."""
        return self.possible and bool((self.prices @ np.asarray(counts, dtype=np.float64) >= self.needed).all())

    def least_usd_per_h(self) -> float:
        """Dollars per hour of the cheapest whole-number fleet that no cut removes; infinite if there is none."""
        if not self.possible:
            return float("inf")
        scaled = np.divide(self.needed[:, None], self.prices, out=np.zeros_like(self.prices), where=self.prices > 0.0)
        most = np.ceil(scaled.max(axis=0)).astype(np.int64) + 1  # one machine more breaks no cut that it did not
        if int(np.prod(most + 1)) > MOST_FLEETS:
            return float(self.needed[0])  # the first cut is in dollars per hour: the bound in parts of machines
        fleets = np.stack(np.meshgrid(*(np.arange(m + 1) for m in most), indexing="ij"), axis=-1).reshape(-1, len(most))
        allowed = (fleets @ self.prices.T >= self.needed).all(axis=1)
        return float((fleets[allowed] @ self.usd_per_h).min())


def floor(traffic: Traffic, pools: Sequence[PoolSpec], work_s: Floats, miss: float) -> Floor:
    """The cuts for this traffic; `work_s` (n, pools) is infinite where a request cannot be in time."""
    usd_per_h = np.array([pool.price.usd_per_s * 3600.0 for pool in pools])
    horizon_s = traffic.duration_s + float(traffic.deadline_s.max())
    keep = len(traffic) - int(miss * len(traffic) + ROUNDING)
    possible = int(np.isfinite(work_s).any(axis=1).sum()) >= keep
    if not possible:
        return Floor(prices=usd_per_h[None, :], needed=np.array([np.inf]), usd_per_h=usd_per_h, possible=False)
    scale = np.array([_typical(work_s[:, i]) for i in range(len(pools))])
    prices = np.array([usd_per_h, *(direction * scale for direction in _directions(len(pools)))])
    needed = [_sum_of_least(_products(work_s, p).min(axis=1), keep) / horizon_s for p in prices]
    return Floor(prices=prices, needed=np.array(needed) * (1.0 - ROUNDING), usd_per_h=usd_per_h, possible=True)


def _products(work_s: Floats, prices: Floats) -> Floats:
    """Prices times seconds; infinite work stays infinite at no price."""
    return np.multiply(work_s, prices, out=np.full_like(work_s, np.inf), where=np.isfinite(work_s))


def _typical(seconds: Floats) -> float:
    """1 / the median of what can be done, so that directions are spread where the pools weigh about the same."""
    done = seconds[np.isfinite(seconds)]
    return 1.0 / float(np.median(done)) if len(done) else 1.0


def _directions(pools: int) -> list[Floats]:
    """Ways to weigh the pools: ratios over five octaves either way, and each pool alone."""
    if pools == 1:
        return [np.ones(1)]
    steps = 2.0 ** np.linspace(-5.0, 5.0, DIRECTIONS if pools == 2 else 7)
    ways = [np.array([1.0, *rest]) for rest in product(steps, repeat=min(pools - 1, 3))]
    padded = [np.concatenate([way, np.ones(pools - len(way))]) for way in ways]
    return [*padded, *np.eye(pools)]


def _sum_of_least(values: Floats, keep: int) -> float:
    return float(np.sort(values)[:keep].sum())


def work(
    traffic: Traffic, pools: Sequence[PoolSpec], latency: Mapping[tuple[str, str], LatencyModel], *, merged: bool
) -> Floats:
    """Busy seconds (n, pools) of each request: alone, or with `merged` at the best rate that its deadline allows."""
    log = traffic.log
    found = np.full((len(traffic), len(pools)), np.inf)
    for column, pool in enumerate(pools):
        for index, name in enumerate(log.models):
            model = latency.get((pool.name, name))
            rows = np.flatnonzero(log.model == index)
            if model is None or not len(rows):
                continue
            items, deadline_s = log.items[rows], traffic.deadline_s[rows]
            if merged:
                found[rows, column] = items * _best_rate(model, pool.max_items, deadline_s)
            else:
                found[rows, column] = _alone(model, pool.max_items, items, deadline_s)
    return found


def _alone(model: LatencyModel, most: int, items: Ints, deadline_s: Floats) -> Floats:
    sizes, at = np.unique(items, return_inverse=True)
    mean_s = np.array([model.mean_s(int(n)) if n <= most else np.inf for n in sizes])[at]
    quickest_s = mean_s * np.array([model.bucket_ratios(int(n))[0] for n in sizes])[at]
    return np.where(quickest_s <= deadline_s, mean_s, np.inf)


def _best_rate(model: LatencyModel, most: int, deadline_s: Floats) -> Floats:
    """The least seconds per item of any batch that is done by each deadline; infinite if none is."""
    sizes = np.unique(np.geomspace(1, most, min(most, MOST_SIZES)).round().astype(np.int64))
    quickest_s = np.array([model.mean_s(int(n)) * model.bucket_ratios(int(n))[0] for n in sizes])
    upper = np.append(sizes[1:] - 1, most)  # a size between two that are looked at is at best this rate
    rate_s = np.array([model.mean_s(int(n)) for n in sizes]) / np.maximum(upper, sizes)
    limits, at = np.unique(deadline_s, return_inverse=True)
    best = np.array([rate_s[quickest_s <= limit].min(initial=np.inf) for limit in limits])
    return np.asarray(best[at], dtype=np.float64)


def alone_count(work_s: Floats, horizon_s: float, column: int) -> int:
    """Machines of one pool that could do, in seconds alone, all that can be done there."""
    seconds = work_s[:, column]
    return ceil(float(seconds[np.isfinite(seconds)].sum()) / horizon_s)
