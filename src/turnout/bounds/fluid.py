"""The fluid bounds: what no router can exceed on a trace, because the busy seconds are not there.

B1: request r takes `work_s[r, i]` busy seconds alone on pool i. Let x(r, i) be the share of it that pool i runs, in any
order and at any time of the horizon T. Then, with n requests of which m may be missed:

    least T with  sum over r of x(r, i) work_s(r, i) <= T replicas(i),  sum over i of x(r, i) >= 1 - drop(r),
                  sum over r of drop(r) <= m,  0 <= x, drop <= 1.

Every schedule that misses at most m requests gives such an x, so it needs at least T seconds of all machines. B2 is the
same with the amortised work of `amortised`: it holds even if requests may be merged and split at will.

The programme is solved through its Lagrangian dual, exactly and without rounding requests together: for prices p of
pool-seconds with sum of p(i) replicas(i) = 1, T is at least the sum of the n - m least values of min over i of
p(i) work_s(r, i), and the best prices reach T (see `ascent`). What the bounds do not say: when the work arrives
(`interval` does), or that any schedule reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.bounds.ascent import Floats, ascend, optimiser

Ints = NDArray[np.int64]
Cut = Callable[[Floats], "tuple[Floats, float] | None"]

MISS = 0.01
"""Share of requests that may be missed: an objective of 99 %."""

ROUNDING = 1e-9
"""Slack of whole numbers made from floats, so that rounding never makes a bound too strong."""

LEAST_S = 1e-12
"""Seconds of work that count as none."""

MAX_FLEETS_TRIED = 500
"""Fleets that `least_fleet` asks about; the last one asked is a valid bound whenever it stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fluid:
    """The optimum of the programme. All is 0 where there is nothing to do, `makespan_s` infinite if it cannot be.

    `makespan_s` is a certified lower bound, at most `gap_s` below the programme's optimum. `price` (k,) is what one
    more second of a pool saves of the makespan, so price · replicas = 1. `share` (k,) is the share of the served
    requests on each pool in an optimal solution. `dropped` are the requests left out at these prices, the dearest ones.
    """

    requests: int
    makespan_s: float
    gap_s: float
    price: Floats
    share: Floats
    dropped: Ints

    @property
    def rate_per_s(self) -> float:
        """Requests per second of a long run: n / T."""
        return self.requests / self.makespan_s if self.makespan_s > 0.0 else np.inf

    def highest_rate(self, grace_s: float) -> float:
        """The strict form for this one trace, whose mean rate is (n - 1) / (last arrival - first arrival).

        No schedule keeps the objective above it. `grace_s` is the seconds from the last arrival to the last deadline,
        in which work can still be done. Infinite if all of it can be done then.
        """
        left_s = self.makespan_s - grace_s
        return (self.requests - 1) / left_s if left_s > 0.0 else np.inf


def allowed_misses(requests: int, miss: float = MISS) -> int:
    """How many of so many requests may be missed."""
    return int(miss * requests + ROUNDING)


def costs(work_s: Floats, price: Floats) -> Floats:
    """Price times work (n, k); what cannot run on a pool is infinitely dear there, even at no price."""
    return np.multiply(work_s, price, out=np.full_like(work_s, np.inf), where=np.isfinite(work_s))


def fluid(work_s: Floats, replicas: Sequence[float], miss: float = MISS) -> Fluid:
    """Solve the programme for a fleet (k,) and `work_s` (n, k) seconds, infinite where a request cannot be in time."""
    return _fluid(np.asarray(work_s, dtype=np.float64), np.asarray(replicas, dtype=np.float64), miss)


def _fluid(work_s: Floats, replicas: Floats, miss: float) -> Fluid:
    n, k = work_s.shape
    present = replicas > 0.0
    work_s = np.where(present, work_s, np.inf)
    keep = n - allowed_misses(n, miss)
    shares: list[Floats] = []

    def oracle(price: Floats) -> tuple[float, Floats]:
        kept, pool = _cheapest_kept(work_s, price, keep)
        shares.append(np.bincount(pool, minlength=k) / max(keep, 1))
        return 0.0, np.bincount(pool, weights=work_s[kept, pool], minlength=k).astype(np.float64)

    if keep <= 0 or int(np.isfinite(work_s).any(axis=1).sum()) < keep:
        makespan_s = 0.0 if keep <= 0 else np.inf
        nothing = np.zeros(k)
        return Fluid(requests=n, makespan_s=makespan_s, gap_s=0.0, price=nothing, share=nothing, dropped=np.arange(n))
    scale = np.where(present, 1.0 / np.maximum(replicas, ROUNDING), 0.0)
    starts = [scale / present.sum(), *(np.where(np.arange(k) == i, scale, 0.0) for i in np.flatnonzero(present))]
    found = ascend(oracle, starts, np.where(present, scale, 0.0), replicas)
    dropped = np.setdiff1d(np.arange(n), _cheapest_kept(work_s, found.price, keep)[0])
    return Fluid(
        requests=n,
        makespan_s=found.value,
        gap_s=found.gap,
        price=found.price,
        share=found.weights @ np.array(shares[: len(found.weights)]),
        dropped=dropped,
    )


def _cheapest_kept(work_s: Floats, price: Floats, keep: int) -> tuple[Ints, Ints]:
    """The `keep` requests that are cheapest at these prices, and the pool where each is."""
    each = costs(work_s, price)
    pool = each.argmin(axis=1)
    kept = np.argpartition(each[np.arange(len(each)), pool], keep - 1)[:keep]
    return kept, pool[kept]


def amortised(items: Ints, seconds: Sequence[Floats], deadline_s: Floats) -> Floats:
    """Least busy seconds (n, k) of a request if it may be merged with any others and split at will (B2).

    `seconds[i][m - 1]` are the seconds l(m) of a batch of m items on pool i, for every m up to the pool's largest. A
    batch shares its time among its items evenly. As it begins after each of its requests arrived and ends by each of
    their deadlines, l(m) <= `deadline_s` (n,) for each: so an item is charged at least the least l(m) / m of those m.

    With random times, l is the least that a batch of m can take for a bound that holds on every realisation, even for
    a schedule that knows its luck beforehand. With the mean, it is a bound on the expected busy seconds of a router
    that does not know it; batches that are in time with luck only are then left out of account.
    """
    work_s = np.full((len(items), len(seconds)), np.inf)
    limits, at = np.unique(np.asarray(deadline_s, dtype=np.float64), return_inverse=True)
    for column, took_s in enumerate(seconds):
        rate_s = took_s / np.arange(1, len(took_s) + 1)
        order = np.argsort(took_s, kind="stable")
        best = np.minimum.accumulate(rate_s[order])
        reached = np.searchsorted(took_s[order], limits, side="right")
        least_s = np.where(reached > 0, best[np.maximum(reached, 1) - 1], np.inf)
        work_s[:, column] = items * least_s[at]
    return work_s


def b1_rate(work_s: Floats, replicas: Sequence[float], miss: float = MISS) -> float:
    """B1: requests per second that no router exceeds in a long run of this traffic, each request alone on a machine."""
    return fluid(work_s, replicas, miss).rate_per_s


def b2_rate(
    items: Ints, seconds: Sequence[Floats], deadline_s: Floats, replicas: Sequence[float], miss: float = MISS
) -> float:
    """B2: the same where requests may be merged and split; see `amortised` for the arguments."""
    return fluid(amortised(items, seconds, deadline_s), replicas, miss).rate_per_s


def least_drops(work_s: Floats, capacity_s: Floats) -> tuple[float, Floats]:
    """Fewest requests to leave out so that the others fit into `capacity_s` (k,) pool-seconds, and the prices (k,).

    The linear relaxation: any whole number of misses is at least its ceiling. Its dual is the most, over prices p >= 0
    in misses per pool-second, of the sum over r of min(1, min over i of p(i) work_s(r, i)) - p · capacity_s.
    """
    n, k = work_s.shape
    usable = capacity_s > 0.0
    work_s = np.where(usable, work_s, np.inf)
    hopeless = int(n - np.isfinite(work_s).any(axis=1).sum())
    most = np.zeros(k)
    for i in np.flatnonzero(usable):
        positive = work_s[np.isfinite(work_s[:, i]) & (work_s[:, i] > 0.0), i]
        most[i] = 1.0 / float(positive.min()) if len(positive) else 0.0

    def oracle(price: Floats) -> tuple[float, Floats]:
        each = costs(work_s, price)
        pool = each.argmin(axis=1)
        kept = np.flatnonzero(each[np.arange(n), pool] < 1.0)
        busy_s = np.bincount(pool[kept], weights=work_s[kept, pool[kept]], minlength=k)
        return float(n - len(kept)), np.asarray(busy_s - capacity_s)

    if hopeless == n:
        return float(n), most
    found = ascend(oracle, [np.zeros(k), most / 4.0], most)
    return max(found.value, float(hopeless)), found.price


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Machines per pool (k,), and their dollars per hour: a lower bound, infinite where no fleet can do it."""

    replicas: Floats
    usd_per_h: float


def cheapest(
    work_s: Floats,
    usd_per_h: Sequence[float],
    horizon_s: float,
    miss: float = MISS,
    *,
    max_replicas: Sequence[int],
    integer: bool = True,
) -> Fleet:
    """The least that any fleet costs which serves the trace within `horizon_s`: first arrival to last deadline.

    The same programme with `replicas` as variables from 0 to `max_replicas` (k,), whole numbers if `integer`. The price
    of each fleet that is too small cuts it off (Benders, Numerische Mathematik 4, 1962), and HiGHS finds the next.
    """
    work_s = np.asarray(work_s, dtype=np.float64)
    keep = len(work_s) - allowed_misses(len(work_s), miss)

    def cut(replicas: Floats) -> tuple[Floats, float] | None:
        price = price_against(work_s, replicas, miss)
        kept, pool = _cheapest_kept(work_s, price, keep)
        needed_s = float((work_s[kept, pool] * price[pool]).sum())
        if float(price @ replicas) * horizon_s >= needed_s * (1.0 - ROUNDING):
            return None
        return price * horizon_s, needed_s

    if keep <= 0:
        return Fleet(replicas=np.zeros(len(usd_per_h)), usd_per_h=0.0)
    if int(np.isfinite(work_s).any(axis=1).sum()) < keep:
        return Fleet(replicas=np.full(len(usd_per_h), np.nan), usd_per_h=np.inf)
    return least_fleet(cut, usd_per_h, max_replicas, integer=integer)


def price_against(work_s: Floats, replicas: Floats, miss: float) -> Floats:
    """Prices (k,) at which this fleet is too small, if there are any. Pools it lacks get the price that tempts nobody.

    If the pools that it has cannot serve enough, only those that it lacks have a price.
    """
    absent = replicas <= ROUNDING
    found = _fluid(work_s, np.where(absent, 0.0, replicas), miss)
    if np.isinf(found.makespan_s):
        return absent.astype(np.float64)
    if not absent.any():
        return found.price
    each = costs(work_s, found.price)
    each[:, absent] = np.inf
    least = each.min(axis=1)
    kept = np.setdiff1d(np.arange(len(work_s)), found.dropped)
    least = np.minimum(least, least[kept].max())  # what is left out must not come in again
    price = found.price.copy()
    price[absent] = (least[:, None] / np.maximum(work_s[:, absent], LEAST_S)).max(axis=0)
    return price


def least_fleet(cut: Cut, usd_per_h: Sequence[float], max_replicas: Sequence[int], *, integer: bool = True) -> Fleet:
    """The cheapest fleet that no cut removes. `cut(replicas)` gives (row (k,), least), or None if the fleet may stand.

    Row · replicas >= least must hold for every fleet that can do the work.
    """
    optimize = optimiser()
    prices = np.asarray(usd_per_h, dtype=np.float64)
    rows: list[Floats] = []
    found = Fleet(replicas=np.zeros(len(prices)), usd_per_h=0.0)
    for _ in range(MAX_FLEETS_TRIED):
        said = cut(found.replicas)
        if said is None:
            break
        rows.append(said[0] / said[1])
        answer = optimize.milp(
            prices,
            integrality=np.full(len(prices), int(integer)),
            bounds=optimize.Bounds(0.0, np.asarray(max_replicas, dtype=np.float64)),
            constraints=optimize.LinearConstraint(np.array(rows), 1.0 - ROUNDING, np.inf),
            options={"mip_rel_gap": 0.0},
        )
        if answer.x is None:
            return Fleet(replicas=np.full(len(prices), np.nan), usd_per_h=np.inf)
        replicas = np.round(answer.x) if integer else np.maximum(answer.x, 0.0)
        found = Fleet(replicas=replicas, usd_per_h=float(prices @ replicas))
    return found
