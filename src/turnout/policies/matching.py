"""Requests assigned to replicas all at once: the least total price that keeps the deadlines.

Source: Kairos (Li et al., HPDC 2023), which matches waiting queries to instances by the assignment problem. Here each
replica may also offer a second seat, behind what it would be given first, so that a request is not spent on a replica
that another waiting one needs more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from turnout.core.policy import Waiting
from turnout.errors import ExtraMissingError
from turnout.policies.batching import Lane

Solve = Callable[[Any], tuple[Any, Any]]

PURPOSE = "a policy that matches requests with replicas (turnout, which is the default, or kairos)"

FAR = 1e6
"""A seat that cannot be taken costs this many times the dearest that can."""


def solver() -> Solve:
    """Scipy's assignment solver.

    Raises:
        ExtraMissingError: scipy is not installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ExtraMissingError("scipy", "match", PURPOSE) from error
    found: Solve = linear_sum_assignment
    return found


def assign(
    solve: Solve,
    waiting: Sequence[Waiting],
    lanes: Sequence[Lane],
    price: Mapping[str, float],
    *,
    now_s: float,
    seats: int,
) -> list[tuple[int, int]]:
    """Pairs (request, lane) of those that get a first seat; `price` is that of a lane's second, by pool.

    A seat costs its price times the seconds until the request is done there; one that is in time on average but not at
    the 99 % quantile comes after all that are safe. Requests that no lane can finish in time get none.
    """
    pools = list({lane.pool.spec.name: lane.pool for lane in lanes}.values())
    column = {pool.spec.name: i for i, pool in enumerate(pools)}
    which = [column[lane.pool.spec.name] for lane in lanes]
    mean_s, p99_s = np.full((2, len(waiting), len(pools)), np.inf)
    for i, w in enumerate(waiting):
        for k, pool in enumerate(pools):
            if pool.serves(w.model) and w.items <= pool.spec.max_items and pool.spec.name not in w.barred:
                mean_s[i, k] = pool.mean_s(w.model, w.items, w.nbytes)
                p99_s[i, k] = pool.p99_s(w.model, w.items, w.nbytes)
    slack_s = np.array([[w.deadline_s - now_s] for w in waiting])
    rate = np.array([price[pool.spec.name] for pool in pools])[which]
    free_s = np.array([lane.free_s - now_s for lane in lanes])
    surcharge = 5.0 * float(rate.max() * slack_s.max())
    fits = np.isfinite(mean_s)
    batch_s = np.where(fits, mean_s, 0.0).sum(axis=0) / np.maximum(fits.sum(axis=0), 1)
    blocks = []
    for seat in range(seats):
        after_s = free_s + seat * batch_s[which]
        costs = rate * (after_s + mean_s[:, which])
        costs += np.where(after_s + p99_s[:, which] > slack_s, surcharge, 0.0)
        costs[after_s + mean_s[:, which] > slack_s] = np.inf
        blocks.append(costs)
    costs = np.concatenate(blocks, axis=1)
    possible = np.isfinite(costs)
    if not possible.any():
        return []
    rows, columns = solve(np.where(possible, costs, FAR * costs[possible].max()))
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if j < len(lanes) and possible[i, j]]
