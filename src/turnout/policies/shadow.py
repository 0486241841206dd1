"""Shadow prices: what a second of each pool is worth at the present mix of sizes, relative to the others.

They are the dual of the fluid linear program that spreads the recent requests over the pools so that the busiest is
least busy: at these prices every request is cheapest where that programme sends it. Found by raising the price of pools
that would be busier than the mean and lowering the others', which needs no solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from turnout.core.policy import PoolView, View

SAMPLE = 64
"""Sizes that stand for the recent requests of a model: evenly spaced in rank."""

ROUNDS = 60
"""Steps of the search; the step shrinks as 1 / sqrt(round), and the mean over the second half is taken."""

GAIN = 0.5


def prices(view: View, replicas: Mapping[str, int]) -> dict[str, float]:
    """A price per second for each pool with replicas, 1 for the lowest; all 1 before any request was seen.

    `replicas` counts those that are up, by pool. Every model's recent requests weigh alike, one by one.
    """
    pools = [view.pools[name] for name in replicas]
    rows = [
        _seconds(view, pools, model, items)
        for model, standing in view.standings.items()
        if (items := _sample(standing.recent_items))
    ]
    found = [r for r in rows if r.size]
    if len(pools) < 2 or not found:
        return dict.fromkeys(replicas, 1.0)
    seconds = np.concatenate(found)
    share = np.array([1.0 / replicas[p.spec.name] for p in pools])
    log_price = np.zeros(len(pools))
    total = np.zeros(len(pools))
    everyone = np.arange(len(seconds))
    for step in range(1, ROUNDS + 1):
        chosen = (seconds * np.exp(log_price)).argmin(axis=1)
        load = np.bincount(chosen, seconds[everyone, chosen], len(pools)) * share
        log_price += GAIN / np.sqrt(step) * (load / max(load.mean(), 1e-12) - 1.0)
        log_price -= log_price.min()
        if step > ROUNDS // 2:
            total += log_price
    price = np.exp((total - total.min()) / (ROUNDS - ROUNDS // 2))
    return {p.spec.name: float(x) for p, x in zip(pools, price, strict=True)}


def _sample(items: Sequence[int]) -> list[int]:
    ordered = sorted(items)
    if len(ordered) <= SAMPLE:
        return ordered
    return [ordered[(2 * i + 1) * len(ordered) // (2 * SAMPLE)] for i in range(SAMPLE)]


def _seconds(view: View, pools: Sequence[PoolView], model: str, items: Sequence[int]) -> np.ndarray:
    """(sizes, pools) seconds alone on each pool, a large number where it cannot be in time.

    Sizes that no pool can do in time are left out.
    """
    deadline_s = view.workloads[model].slo.deadline_s
    rows = []
    for n in items:
        row = [
            p.mean_s(model, n) if p.serves(model) and n <= p.spec.max_items and p.p99_s(model, n) <= deadline_s else inf
            for p in pools
        ]
        if min(row) < inf:
            rows.append([x if x < inf else 1e6 for x in row])
    return np.array(rows).reshape(-1, len(pools))
