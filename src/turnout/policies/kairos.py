"""Min-cost matching as in Kairos (Li et al., HPDC 2023): up to `window` batches per replica, assigned all at once.

The cost of a pair is the time until it is done there, times how much the replica is worth: the slowest pool's time for
a large query over this pool's. A pair that would be late costs `penalty` more. The original matches single queries;
where requests may share batches, the same matching is made of groups of them, which a replica then fills up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.random import Generator

from turnout.core.events import Option, Part, Why
from turnout.core.policy import Choice, Policy, PoolView, Run, View, Waiting
from turnout.policies.batching import Lane, lanes_of, queues
from turnout.policies.matching import Solve, solver
from turnout.policies.quanta import SHARE, Quanta

GRID = {"merge": (True, False)}
"""Values that are tried when the policy is tuned."""


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """The published constants: `window` batches per replica, `guard` on predicted times, `penalty_s` for a late pair.

    Where requests may share batches, `merge` says whether they do, else each is matched whole and alone as published;
    `share` of the deadline is what such a batch may take.
    """

    window: int = 2
    guard: float = 0.02
    penalty_s: float = 1000.0
    merge: bool = True
    share: float = SHARE


class _Group(Struct, kw_only=True):
    """Requests that are matched as one: the whole of each, but the last may be a piece."""

    parts: list[Part]
    items: int
    nbytes: int
    deadline_s: float


def policy(params: Params) -> Policy:
    """The policy; it keeps no state and draws no randomness.

    Raises:
        ExtraMissingError: scipy is not installed.
    """
    solve = solver()

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        if not any(r.slots_left for r in view.replicas):
            return [], state
        lanes, quanta = lanes_of(view), Quanta(view, params.share)
        choices: list[Choice] = []
        for queue in queues(view, view.waiting):
            mine = [lane for lane in lanes if lane.pool.spec.name in queue.pools]
            if mine:
                choices += _matched(view, queue.waiting, mine, quanta, params=params, solve=solve)
        return choices, state

    return decide


def _matched(
    view: View, waiting: list[Waiting], lanes: list[Lane], quanta: Quanta, *, params: Params, solve: Solve
) -> list[Choice]:
    """One queue matched with its lanes: the batches that start now."""
    model = waiting[0].model
    merge = params.merge and view.workloads[model].mergeable
    groups = _groups(waiting, lanes, quanta, params.window * len(lanes), merge=merge)
    worth = _worth({lane.pool.spec.name: lane.pool for lane in lanes}, model)
    costs = np.empty((len(groups), len(lanes)))
    for i, group in enumerate(groups):
        for j, lane in enumerate(lanes):
            fits = group.items <= lane.pool.spec.max_items
            busy_s = lane.pool.mean_s(model, group.items, group.nbytes) if fits else params.penalty_s
            done_s = lane.free_s - view.now_s + busy_s
            late = done_s * (1.0 + params.guard) > group.deadline_s - view.now_s
            costs[i, j] = worth[lane.pool.spec.name] * done_s + (params.penalty_s if late else 0.0)
    least = costs.min(axis=1)
    pairs = {int(i): int(j) for i, j in zip(*solve(costs), strict=True)}
    runs: list[Choice] = []
    reached: dict[int, int] = {}  # a piece runs only if all before it do
    spare = [group for i, group in enumerate(groups) if i not in pairs or lanes[pairs[i]].slots_left < 1]
    for i, group in enumerate(groups):
        j = pairs.get(i, -1)
        if j < 0 or lanes[j].slots_left < 1 or group.items > lanes[j].pool.spec.max_items:
            continue
        if costs[i, j] >= params.penalty_s > least[i]:  # another replica can still make it
            continue
        if any(p.start and reached.get(p.rid, _first(waiting, p.rid)) != p.start for p in group.parts):
            continue
        if merge and not waiting[0].alone:
            _fill(model, group, spare, lanes[j], quanta.items(lanes[j].pool, model))
        reached.update((p.rid, p.start + p.items) for p in group.parts)
        lanes[j].slots_left -= 1
        runs.append(Run(parts=tuple(group.parts), replica=lanes[j].replica, why=_why(view, model, group, lanes[j])))
    return runs


def _first(waiting: Sequence[Waiting], rid: int) -> int:
    """Where the first waiting range of a request starts."""
    return min((w.start for w in waiting if w.rid == rid), default=-1)


def _worth(pools: dict[str, PoolView], model: str) -> dict[str, float]:
    """Kairos' heterogeneity coefficient: the slowest pool's time for the largest common batch over each pool's own."""
    items = min(pool.spec.max_items for pool in pools.values())
    times = {name: pool.mean_s(model, items) for name, pool in pools.items()}
    slowest = max(times.values())
    return {name: slowest / s if s > 0.0 else 1.0 for name, s in times.items()}


def _groups(
    waiting: Sequence[Waiting], lanes: Sequence[Lane], quanta: Quanta, most: int, *, merge: bool
) -> list[_Group]:
    """Up to `most` groups in order of deadline: runs of requests that the slowest pool can take, or single ones."""
    model = waiting[0].model
    whole = max(lane.pool.spec.max_items for lane in lanes)
    limit = min(quanta.items(lane.pool, model) for lane in lanes) if merge else whole
    groups: list[_Group] = []
    for w in waiting:
        pieces = _pieces(w, limit)
        last = groups[-1] if groups else None
        if last and merge and not w.alone and len(pieces) == 1 and last.items + w.items <= limit:
            last.parts.append(w.part)
            last.items += w.items
            last.nbytes += w.nbytes
            continue
        if len(groups) + len(pieces) > most and groups:
            break
        for part in pieces:
            nbytes = w.nbytes * part.items // w.items
            groups.append(_Group(parts=[part], items=part.items, nbytes=nbytes, deadline_s=w.deadline_s))
    return groups


def _pieces(w: Waiting, limit: int) -> list[Part]:
    """A request as parts of at most `limit` items, as far as it may be cut."""
    count = min(-(-w.items // limit), w.ranges_left + 1)
    edges = [w.items * k // count for k in range(count + 1)]
    return [Part(w.rid, w.start + a, b - a) for a, b in pairwise(edges)]


def _fill(model: str, group: _Group, spare: list[_Group], lane: Lane, quantum: int) -> None:
    """Top the batch up with groups that no replica begins on now, while all in it stay in time."""
    patience_s = group.deadline_s - lane.free_s
    while spare and all(not p.start for p in spare[0].parts):
        extra = spare[0]
        items, nbytes = group.items + extra.items, group.nbytes + extra.nbytes
        if items > quantum or lane.pool.p99_s(model, items, nbytes) > max(patience_s, 0.0):
            return
        group.parts += extra.parts
        group.items, group.nbytes = items, nbytes
        spare.pop(0)


def _why(view: View, model: str, group: _Group, lane: Lane) -> Why:
    """The receipt: the pair that was matched."""
    pool = lane.pool
    mean_s, p99_s = pool.mean_s(model, group.items, group.nbytes), pool.p99_s(model, group.items, group.nbytes)
    option = Option(
        pool=pool.spec.name,
        replica=lane.replica,
        items=group.items,
        start_s=lane.free_s,
        mean_s=mean_s,
        p99_s=p99_s,
        marginal_usd=pool.marginal_usd(mean_s, group.nbytes),
        list_usd=pool.price.list_usd(mean_s),
        feasible=p99_s <= group.deadline_s - lane.free_s,
    )
    return Why(binding="matching", options=(option,))
