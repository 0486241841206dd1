"""Whether the machines can meet the objective at all: every request alone on its best pool, with nothing else to do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from turnout.core.latency import LatencyModel, quantile
from turnout.errors import ArtefactError, CheckFailedError
from turnout.regret.own import Latency, Own
from turnout.regret.traffic import Traffic

LEAST_ROWS = 200
"""Requests; with fewer, half of them say nothing of a share of 0.99."""


def latencies(own: Own) -> Latency:
    """The fleet's latency models by (pool, model)."""
    return {(pool, w.name): model for w in own.head.models for pool, model in w.latency.items()}


def check_idle(traffic: Traffic, own: Own) -> None:
    """Refuse an objective that no routing can meet, with the smallest deadline that could be.

    Raises:
        ArtefactError: too few requests.
        CheckFailedError: more requests than may be missed take too long on every pool even at their usual speed.
    """
    if len(traffic) < LEAST_ROWS:
        raise ArtefactError(f"{traffic.log.source} has {len(traffic)} requests, and it takes {LEAST_ROWS} to judge by")
    usual_s, safe_s = _seconds(traffic, own, tail=False), _seconds(traffic, own, tail=True)
    late = usual_s > traffic.deadline_s
    if late.mean() <= 1.0 - own.attainment + 1e-12:
        return
    too_large = int(np.isinf(usual_s).sum())
    largest = f" ({too_large} of them are larger than any pool's largest batch)" if too_large else ""
    said = (
        f"the objective cannot be met: {late.mean():.1%} of the requests{largest} take longer than their deadline on "
        f"every pool, even with nothing else to do, and {1.0 - own.attainment:.1%} may"
    )
    least = ", ".join(
        f"{name}: {1e3 * seconds:.4g} ms" if np.isfinite(seconds) else f"{name}: none"
        for name, seconds in _least_s(traffic, own, safe_s).items()
    )
    raise CheckFailedError(f"{said}. The smallest deadline that an idle fleet keeps at the 99 % quantile is {least}")


def _least_s(traffic: Traffic, own: Own, seconds: np.ndarray) -> Mapping[str, float]:
    """The smallest deadline of each model that its attainment allows."""
    least = {}
    for index, workload in enumerate(own.head.models):
        rows = np.sort(seconds[traffic.log.model == index])
        if len(rows):
            least[workload.name] = float(quantile(rows.tolist(), workload.slo.attainment))
    return least


def _seconds(traffic: Traffic, own: Own, *, tail: bool) -> np.ndarray:
    """Seconds (n,) of each request on the pool that is best for it, split into as many parts as it may be."""
    models, log = latencies(own), traffic.log
    best = np.full(len(traffic), np.inf)
    for pool in own.pools:
        for index, name in enumerate(log.models):
            model = models.get((pool.name, name))
            if model is None:
                continue
            rows = np.flatnonzero(log.model == index)
            parts = -(-log.items[rows] // own.max_parts)
            sizes, at = np.unique(parts, return_inverse=True)
            taken_s = np.array([_one_s(model, int(n), pool.max_items, tail=tail) for n in sizes])
            best[rows] = np.minimum(best[rows], taken_s[at] if len(sizes) else best[rows])
    return best


def _one_s(model: LatencyModel, items: int, most: int, *, tail: bool) -> float:
    if items > most:
        return float("inf")
    return model.quantile_s(items, 0.99) if tail else model.mean_s(items)
