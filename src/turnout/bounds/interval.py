"""B3, the demand bound over intervals: what arrives together must also be done together.

A run of requests is those that arrive one after the other from a to b. All of them are served between the arrival of
the first and the last of their deadlines, H seconds: so with pools of k machines, at least

    D(a, b) = max over prices p >= 0 of  sum over r in the run of min(1, min over i of p(i) work_s(r, i)) - H p · k

of them are missed (`fluid.least_drops`: the fluid programme in the interval). Runs that share no request are missed
apart, even where their intervals overlap in time: so the sum of ceil(D) over any set of disjoint runs is a lower bound
on the misses of the trace. Any runs and any prices are valid; the choice only decides how strong the bound is. For one
p, the best runs are found in one pass (the maximum sum of segments, each at a fixed charge for the last deadline); that
is done for several prices, and for the requests with short deadlines alone.

The busy seconds may be those of `fluid`'s B1 (alone) or B2 (`amortised`). What the bound does not say: that requests
cannot be cut to fill the machines evenly, so that even this may be out of reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from turnout.bounds.ascent import Floats
from turnout.bounds.fluid import (
    MISS,
    ROUNDING,
    Fleet,
    Ints,
    allowed_misses,
    costs,
    fluid,
    least_drops,
    least_fleet,
    price_against,
)

CLASSES = 4
"""Limits on the deadline that are looked at: all requests, and those with the shortest deadlines alone."""

MISS_AT = (0.7, 0.9, 0.97, 0.99, 0.997, 1.0)
"""What a miss is worth, in terms of the requests' costs: that of the request at this quantile."""

TILTS = (1.0, 0.7, 1.4)
"""Factors on each pool's price in turn."""

REFINED = 40
"""Runs whose prices are made the best ones; the others keep the best of those tried."""

CEIL_SLACK = 1e-6
"""A value this little above a whole number does not count as the next one."""

PRECISION = 1e-3
"""Relative width to which the highest rate is narrowed down; the upper end is returned, so it stays a bound."""

LOWEST = 1e-6
"""Share of B1 below which no rate is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Requests that cannot all be met: `rows` (m,) arrive from `first_s` on, and the last is due at `until_s`.

    At least `misses` of them are missed, by `price` (k,) in misses per pool-second.
    """

    rows: Ints
    first_s: float
    until_s: float
    price: Floats
    misses: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """At least `misses` requests are missed by any schedule on this fleet; `runs` prove it."""

    misses: int
    runs: tuple[Run, ...]


def least_misses(at_s: Floats, deadline_s: Floats, work_s: Floats, replicas: Sequence[float]) -> Demand:
    """A lower bound on the misses of a trace; `at_s` (n,) ascends, `deadline_s` (n,) is relative, `work_s` (n, k)."""
    fleet = np.asarray(replicas, dtype=np.float64)
    work_s = np.where(fleet > 0.0, work_s, np.inf)
    best = Demand(misses=0, runs=())
    for rows in (*_classes(deadline_s), None):
        chosen = np.arange(len(at_s)) if rows is None else rows
        runs = (
            [_run(at_s, deadline_s, chosen, np.zeros(len(fleet)))]
            if rows is None and len(at_s)
            else _best_runs(at_s, deadline_s, work_s, fleet, chosen)
        )
        found = _demand([_refined(work_s, fleet, run) for run in runs[:REFINED]] + runs[REFINED:])
        if found.misses > best.misses:
            best = found
    return best


def _classes(deadline_s: Floats) -> list[Ints]:
    """Requests whose deadline is at most a limit, for a few limits."""
    limits = np.unique(deadline_s)
    if len(limits) > CLASSES:
        limits = np.unique(np.quantile(deadline_s, np.arange(1, CLASSES + 1) / CLASSES, method="higher"))
    return [np.flatnonzero(deadline_s <= limit) for limit in limits]


def _demand(runs: list[Run]) -> Demand:
    proved = tuple(run for run in runs if run.misses > CEIL_SLACK)
    return Demand(misses=sum(ceil(run.misses - CEIL_SLACK) for run in proved), runs=proved)


def _run(at_s: Floats, deadline_s: Floats, rows: Ints, price: Floats, misses: float = 0.0) -> Run:
    first_s, until_s = float(at_s[rows[0]]), float((at_s[rows] + deadline_s[rows]).max())
    return Run(rows=rows, first_s=first_s, until_s=until_s, price=price, misses=misses)


def _refined(work_s: Floats, fleet: Floats, run: Run) -> Run:
    """The same run at its best prices."""
    misses, price = least_drops(work_s[run.rows], (run.until_s - run.first_s) * fleet)
    if misses <= run.misses:
        return run
    return Run(rows=run.rows, first_s=run.first_s, until_s=run.until_s, price=price, misses=misses)


def _best_runs(at_s: Floats, deadline_s: Floats, work_s: Floats, fleet: Floats, rows: Ints) -> list[Run]:
    """The strongest set of disjoint runs of `rows` over the prices tried, the most missed first."""
    best: list[Run] = []
    for price in _prices(work_s[rows], fleet):
        worth = np.minimum(costs(work_s[rows], price).min(axis=1), 1.0)
        charge = float(price @ fleet)
        runs = []
        for first, last in _segments(at_s[rows], worth, charge, float(deadline_s[rows].max())):
            run = _run(at_s, deadline_s, rows[first : last + 1], price)
            missed = float(worth[first : last + 1].sum()) - charge * (run.until_s - run.first_s)
            runs.append(Run(rows=run.rows, first_s=run.first_s, until_s=run.until_s, price=price, misses=missed))
        if _demand(runs).misses > _demand(best).misses:
            best = runs
    return sorted(best, key=lambda run: -run.misses)


def _prices(work_s: Floats, fleet: Floats) -> Iterator[Floats]:
    """Prices in misses per pool-second: the fluid programme's, and tilts of them, at several worths of a miss."""
    direction = price_against(work_s, fleet, MISS)
    for pool in range(len(fleet)):
        for tilt in TILTS if len(fleet) > 1 else TILTS[:1]:
            if pool and tilt == 1.0:
                continue
            price = direction.copy()
            price[pool] *= tilt
            least = costs(work_s, price).min(axis=1)
            least = least[np.isfinite(least) & (least > 0.0)]
            for at in MISS_AT if len(least) else ():
                yield price / float(np.quantile(least, at, method="lower"))


def _segments(at_s: Floats, worth: Floats, charge: float, grace_s: float) -> list[tuple[int, int]]:
    """Disjoint runs (first, last) with the largest sum of worths less `charge` per second of interval.

    An interval lasts `grace_s` beyond its last arrival. A run is kept open as long as that is better than to have none.
    """
    times, worths = at_s.tolist(), worth.tolist()
    closed, opened = 0.0, -np.inf
    began = [0] * len(times)  # where the run that is open after each request began
    ends: list[bool] = []  # whether closing after this request is better than not having it
    start = 0
    for i, (now_s, value) in enumerate(zip(times, worths, strict=True)):
        extended = opened + value - charge * (now_s - times[i - 1]) if i else -np.inf
        fresh = closed + value - charge * grace_s
        if fresh > extended:
            start = i
        opened = max(fresh, extended)
        began[i] = start
        ends.append(opened > closed)
        closed = max(closed, opened)
    runs = []
    i = len(times) - 1
    while i >= 0:
        if ends[i]:
            runs.append((began[i], i))
            i = began[i]
        i -= 1
    return runs


def highest_rate(
    at_s: Floats, deadline_s: Floats, work_s: Floats, replicas: Sequence[float], miss: float = MISS
) -> float:
    """Requests per second above which this trace, its gaps scaled, must miss more than its objective allows.

    The mean rate is (n - 1) / (last arrival - first arrival). Found by halving below the strict form of the fluid
    bound; runs that prove a rate too high prove all higher rates too, as their intervals only get shorter. Infinite or
    0 where the fluid bound is.
    """
    span_s = float(at_s[-1] - at_s[0])
    allowed = allowed_misses(len(at_s), miss)
    rate_per_s = fluid(work_s, replicas, miss).highest_rate(float((at_s + deadline_s).max() - at_s[-1]))
    if rate_per_s <= 0.0:
        return 0.0
    if np.isinf(rate_per_s) or span_s <= 0.0:
        return np.inf

    def too_high(rate: float) -> bool:
        factor = (len(at_s) - 1) / (span_s * rate)
        return least_misses((at_s - at_s[0]) * factor, deadline_s, work_s, replicas).misses > allowed

    low, high = rate_per_s / 2.0, rate_per_s
    while too_high(low):
        low, high = low / 2.0, low
        if low < rate_per_s * LOWEST:
            return high
    while high > low * (1.0 + PRECISION):
        middle = (low + high) / 2.0
        low, high = (low, middle) if too_high(middle) else (middle, high)
    return high


def cheapest(
    at_s: Floats,
    deadline_s: Floats,
    work_s: Floats,
    usd_per_h: Sequence[float],
    miss: float = MISS,
    *,
    max_replicas: Sequence[int],
    integer: bool = True,
) -> Fleet:
    """The least that any fleet costs that serves the trace, bursts included; `fluid.cheapest` has the arguments.

    The runs that prove a fleet too small cut it off: the sum of their worths less the misses allowed is at most the sum
    of H p · replicas.
    """
    n = len(at_s)
    allowed = allowed_misses(n, miss)

    def cut(replicas: Floats) -> tuple[Floats, float] | None:
        best: tuple[Floats, float] | None = None
        shortest = 0.0
        for rows in _classes(deadline_s):
            for runs in _cuts(at_s, deadline_s, work_s, replicas, rows):
                row, least = _sum(work_s, runs, allowed)
                short = least - float(row @ replicas)
                if short > shortest and short > ROUNDING * least:
                    best, shortest = (row, least), short
        return best

    if int(np.isfinite(work_s).any(axis=1).sum()) < n - allowed:
        return Fleet(replicas=np.full(len(usd_per_h), np.nan), usd_per_h=np.inf)
    return least_fleet(cut, usd_per_h, max_replicas, integer=integer)


def _cuts(at_s: Floats, deadline_s: Floats, work_s: Floats, fleet: Floats, rows: Ints) -> Iterator[list[Run]]:
    """The best runs at the prices tried, and all requests in one."""
    runs = _best_runs(at_s, deadline_s, work_s, fleet, rows)
    if runs:
        yield runs
    for price in _prices(work_s[rows], fleet):
        yield [_run(at_s, deadline_s, rows, price)]


def _sum(work_s: Floats, runs: list[Run], allowed: int) -> tuple[Floats, float]:
    """What the runs ask of a fleet: row · replicas >= least."""
    row = np.sum([(run.until_s - run.first_s) * run.price for run in runs], axis=0)
    worth = sum(float(np.minimum(costs(work_s[run.rows], run.price).min(axis=1), 1.0).sum()) for run in runs)
    return row, worth - allowed
