"""Which models can share replicas, and how the replicas are parted among those that cannot.

A batch that is efficient for one model may take longer than all of another's deadline, and who shares a replica with it
is late. Making it short enough for the other can cost more than it gives. So models are grouped: in a group all batches
are short enough for its tightest deadline and keep most of their efficiency. Each group has replicas of its own, as
many of each pool as leave the group that is worst off with the most room for its recent traffic. Groups with looser
deadlines lend their replicas to tighter ones while they have nothing to do, never the other way round.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from math import ceil, inf, sqrt
from operator import mul
from typing import Any

from turnout.core.policy import PoolView, View, Waiting
from turnout.policies.batching import Lane
from turnout.policies.quanta import RECENT_S

EFFICIENT = 0.7
"""Share of its items per second that a model has to keep with batches short enough for another's deadline."""

BLOCKS = 0.8
"""Share of another's deadline that even the longest batches of a model may take."""

LARGE = 0.98
"""Quantile of a model's sizes that counts for how long its batches have to be."""

REFRESH_S = 5.0
"""Seconds for which a parting is used once there is this much traffic to go by; less before."""

FULL = 0.9
"""Share of their time that replicas may be busy."""

LEAST_S = 0.1
"""Traffic is taken to be spread over so much time at least."""

Parting = dict[str, Any]
"""JSON-like: `groups`, lists of models, the tightest deadline first; `group_of` each replica; when it was made."""


NOT_PARTED: Parting = {"groups": (), "group_of": {}}
"""All lanes are everybody's."""


def parted(view: View, waiting: Sequence[Waiting], share: float, known: Parting | None) -> Parting:
    """The parting for what waits now: `known`, unless it is old, or lacks a replica or a model."""
    if known is not None and view.now_s < known["until_s"]:
        models, group_of = {model for group in known["groups"] for model in group}, known["group_of"]
        complete = not group_of or all(r.replica in group_of for r in view.replicas)
        if complete and all(w.model in models for w in waiting):
            return known
    since_s = _began_s(view) if known is None else known["since_s"]
    found = groups(view, {w.model for w in waiting}, share)
    return {
        "since_s": since_s,
        "until_s": view.now_s + min(max(view.now_s - since_s, LEAST_S), REFRESH_S),
        "groups": found,
        "group_of": _given(view, found, share, since_s),
    }


def groups(view: View, waiting: Collection[str], share: float) -> list[list[str]]:
    """The models that wait or had traffic lately, by deadline; each joins the last group if it can."""
    active = [
        model
        for model, standing in view.standings.items()
        if model in waiting or (view.workloads[model].mergeable and _recent(standing.recent_at_s, view.now_s))
    ]
    deadline_s = {m: view.workloads[m].slo.deadline_s for m in active}
    found: list[list[str]] = []
    for model in sorted(active, key=lambda m: deadline_s[m]):
        if found and _shares(view, model, deadline_s[found[-1][0]], share):
            found[-1].append(model)
        else:
            found.append([model])
    return found


def lent(
    lanes: Sequence[Lane], parting: Parting, waiting: Sequence[Waiting]
) -> list[tuple[Sequence[Waiting], Sequence[Lane]]]:
    """By group, the tightest deadline first, what waits and the lanes that it may use; only groups with work.

    If there are not enough replicas for all groups, all lanes are everybody's.
    """
    group_of: Mapping[str, int] = parting["group_of"]
    if not group_of:
        return [(waiting, lanes)] if waiting else []
    number = {model: i for i, group in enumerate(parting["groups"]) for model in group}
    work: dict[int, list[Waiting]] = {}
    for w in waiting:
        work.setdefault(number[w.model], []).append(w)
    return [
        (work[i], [lane for lane in lanes if (own := group_of[lane.replica]) == i or (own > i and own not in work)])
        for i in sorted(work)
    ]


def _began_s(view: View) -> float:
    """The first arrival that is remembered of any model."""
    return min([view.now_s, *(s.recent_at_s[0] for s in view.standings.values() if s.recent_at_s)])


def _recent(recent_at_s: Sequence[float], now_s: float) -> bool:
    return bool(recent_at_s) and recent_at_s[-1] >= now_s - RECENT_S


def _shares(view: View, model: str, tightest_s: float, share: float) -> bool:
    """Whether `model` can do with batches short enough for that deadline, on every pool that serves it."""
    piece, own_s = _piece(view, model), view.workloads[model].slo.deadline_s
    for pool in view.pools.values():
        if pool.serves(model):
            short = pool.most_items(model, share * tightest_s)
            own = pool.most_items(model, share * own_s) or pool.spec.max_items
            if not short or short / pool.mean_s(model, short) < EFFICIENT * own / pool.mean_s(model, own):
                return False
            if pool.mean_s(model, min(piece, pool.spec.max_items)) > BLOCKS * tightest_s:
                return False
    return True


def _piece(view: View, model: str) -> int:
    """The items that a batch of `model` has to take at least: of its large requests, cut as far as they may be."""
    standing = view.standings[model]
    ordered = sorted(standing.recent_items)
    return ceil(ordered[int(LARGE * len(ordered))] / max(standing.max_parts, 1)) if ordered else 1


def _given(view: View, found: Sequence[Sequence[str]], share: float, since_s: float) -> dict[str, int]:
    """The group of each replica, those of a pool in order; nobody's if there is one group, or one would get none."""
    if len(found) < 2:
        return {}
    names: dict[str, list[str]] = {}
    for r in view.replicas:
        names.setdefault(r.pool, []).append(r.replica)
    covers = [[_cover(view, view.pools[pool], group, share, since_s) for pool in names] for group in found]
    weights = [sum(_per_s(view, model, since_s)[0] for model in group) for group in found]
    counts = _counts(covers, weights, [len(replicas) for replicas in names.values()])
    if not all(any(row) for row in counts):
        return {}
    return {
        replica: i
        for j, replicas in enumerate(names.values())
        for replica, i in zip(replicas, [i for i, row in enumerate(counts) for _ in range(row[j])], strict=True)
    }


def _counts(covers: Sequence[Sequence[float]], weights: Sequence[float], replicas: Sequence[int]) -> list[list[int]]:
    """How many replicas of each pool each group gets, (groups, pools).

    No group goes without if there are enough; as many requests as can be are carried, and the least room is then as
    large as can be. `weights` are requests per second. All begin in the last group; then replicas move, alone or
    against one of another pool, while that helps.
    """
    counts = [[0] * len(replicas) for _ in covers]
    counts[-1] = list(replicas)

    def worth() -> tuple[int, float, list[float]]:
        covered = [sum(map(mul, row, cover)) for row, cover in zip(counts, covers, strict=True)]
        carried = sum(w * min(FULL * c, 1.0) for w, c in zip(weights, covered, strict=True))
        rooms = sorted(_room(c, sum(row)) for c, row in zip(covered, counts, strict=True))
        return sum(any(row) for row in counts), carried, rooms

    def moves() -> Iterator[list[tuple[int, int, int]]]:
        for a, b in permutations(range(len(counts)), 2):
            for j in range(len(replicas)):
                yield [(a, b, j)]
                yield from ([(a, b, j), (b, a, k)] for k in range(len(replicas)) if k != j)

    best, better = worth(), True
    while better:
        better = False
        for move in moves():
            if any(counts[a][j] < 1 for a, _, j in move):
                continue
            _move(counts, move)
            now = worth()
            if now > best:
                best, better = now, True
            else:
                _move(counts, [(b, a, j) for a, b, j in move])
    return counts


def _move(counts: list[list[int]], move: Sequence[tuple[int, int, int]]) -> None:
    """From one group to another, a replica of a pool."""
    for a, b, j in move:
        counts[a][j] -= 1
        counts[b][j] += 1


def _room(covered: float, count: int) -> float:
    """How well off a group is whose replicas can carry its traffic so many times.

    Source: square-root staffing (Halfin and Whitt, Operations Research 29, 1981): with n servers that are busy for the
    share ρ of their time, waiting depends on (1 - ρ)·√n alone.
    """
    return (1.0 - 1.0 / covered) * sqrt(count) if covered > 0.0 else -inf


def _cover(view: View, pool: PoolView, group: Sequence[str], share: float, since_s: float) -> float:
    """The share of a group's recent traffic that one replica of the pool can carry; 0 if it serves none of it."""
    tightest_s = view.workloads[group[0]].slo.deadline_s
    load = 0.0
    for model in group:
        if pool.serves(model):
            items = pool.most_items(model, share * tightest_s) or pool.spec.max_items
            load += _per_s(view, model, since_s)[1] * pool.mean_s(model, items) / items
    return 1.0 / load if load > 0.0 else 0.0


def _per_s(view: View, model: str, since_s: float) -> tuple[float, float]:
    """Requests and items per second of late, over as much time as is remembered."""
    standing = view.standings[model]
    oldest_s = view.now_s - RECENT_S
    if standing.arrivals > len(standing.recent_at_s):
        oldest_s = max(oldest_s, standing.recent_at_s[0])
    first = bisect_left(standing.recent_at_s, oldest_s)
    seconds = max(view.now_s - max(oldest_s, since_s), LEAST_S)
    return (len(standing.recent_items) - first) / seconds, sum(standing.recent_items[first:]) / seconds
