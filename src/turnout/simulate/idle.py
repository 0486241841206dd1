"""Whether the objective can be met at all: every request alone, in as many parts as it may have, on its best pool.

A request of n items in at most k parts has a part of at least n / k items, and takes no less than that part does on the
fastest pool, whatever else is on the fleet. So what is refused here no policy and no number of replicas could meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import numpy as np

from turnout.core import events as ev
from turnout.core.latency import LatencyModel
from turnout.core.trace import Floats, Trace
from turnout.core.workload import Workload
from turnout.errors import CheckFailedError

SAFE = 0.99
"""The quantile of service times by which a deadline is advised."""


def check_idle(configured: ev.Configured, trace: Trace, max_parts: int | Mapping[str, int] = 1) -> None:
    """Refuse an objective that an idle fleet does not meet, with the smallest deadline that it could be.

    Raises:
        CheckFailedError: of some model more requests than may be missed take longer than their deadline at the mean
            speed of the pool that is best for them; it names the smallest feasible deadline of every such model.
    """
    said = []
    usual_every_s = idle_s(configured, trace, max_parts)
    for workload in configured.models:
        rows = _rows(trace, workload.name)
        if not len(rows):
            continue
        parts = _parts(max_parts, workload.name)
        due_s = workload.slo.deadline_s if trace.deadline_s is None else trace.deadline_s[rows]
        usual_s = usual_every_s[rows]
        late = float((usual_s > due_s).mean())
        if late > 1.0 - workload.slo.attainment + 1e-12:
            said.append(
                _said(configured, workload, trace, parts=parts, late=late, too_large=float(np.isinf(usual_s).mean()))
            )
    if said:
        raise CheckFailedError("\n".join(said))


def idle_s(configured: ev.Configured, trace: Trace, max_parts: int | Mapping[str, int] = 1) -> Floats:
    """Mean seconds (n,) of each request alone, on the pool that is fastest for it; inf where no pool takes it."""
    found = np.full(len(trace), np.inf)
    for workload in configured.models:
        rows = _rows(trace, workload.name)
        found[rows] = _seconds(configured, workload, trace, rows, _parts(max_parts, workload.name), tail=False)
    return found


def least_deadline_s(configured: ev.Configured, trace: Trace, model: str, max_parts: int = 1) -> float:
    """The smallest deadline that the attainment asked of `model` allows on the idle fleet, at the 99 % service times.

    inf if more requests than may be missed are larger than any pool takes.
    """
    (workload,) = (w for w in configured.models if w.name == model)
    seconds = np.sort(_seconds(configured, workload, trace, _rows(trace, model), max_parts, tail=True))
    return float(seconds[max(ceil(len(seconds) * workload.slo.attainment - 1e-9), 1) - 1])


def _said(
    configured: ev.Configured, workload: Workload, trace: Trace, *, parts: int, late: float, too_large: float
) -> str:
    """One model's refusal in words."""
    split = f", split into up to {parts} parts" if parts > 1 else ""
    least_s = least_deadline_s(configured, trace, workload.name, parts)
    feasible = f"the smallest deadline that it can meet is {1e3 * least_s:.4g} ms"
    if np.isinf(least_s):
        feasible = f"no deadline is long enough, as {too_large:.1%} of them are larger than any pool's max_items"
    return (
        f"{workload.name}: the fleet cannot meet the objective even idle: {late:.1%} of the requests{split} take "
        f"longer than their deadline on every pool, and {1.0 - workload.slo.attainment:.1%} may; {feasible}"
    )


def _parts(max_parts: int | Mapping[str, int], model: str) -> int:
    """Parts that a request for a model may have."""
    return max_parts if isinstance(max_parts, int) else max_parts.get(model, 1)


def _rows(trace: Trace, model: str) -> np.ndarray:
    """The rows of a model."""
    if model not in trace.models:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(trace.model == trace.models.index(model))


def _seconds(
    configured: ev.Configured, workload: Workload, trace: Trace, rows: np.ndarray, parts: int, *, tail: bool
) -> Floats:
    """Seconds (n,) of the largest part of each request on the pool that is fastest for it."""
    sizes, at = np.unique(-(-trace.items[rows] // parts), return_inverse=True)
    best = np.full(len(sizes), np.inf)
    for pool in configured.fleet.pools:
        model = workload.latency.get(pool.name)
        if model is None or workload.name not in pool.models or not (pool.replicas and pool.parity_ok):
            continue
        link_s = pool.link.rtt_s
        taken_s = [link_s + _one_s(model, int(n), tail=tail) if n <= pool.max_items else np.inf for n in sizes]
        best = np.minimum(best, taken_s)
    return best[at]


def _one_s(model: LatencyModel, items: int, *, tail: bool) -> float:
    return model.quantile_s(items, SAFE) if tail else model.mean_s(items)
