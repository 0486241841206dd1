"""The loop that the shipped policies share: take the earliest deadline, compare one batch per pool, run the best.

A policy gives `allow` (which pools a request may use at all) and `rank` (which of the options is best); everything
else, from filling a batch to reserving a replica within the decision, is here and the same for all of them.
Batches are filled in order of deadline from what waits already: a batch closes as soon as a replica is free for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import inf
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnout.core.events import Option, Part, Why
from turnout.core.policy import Choice, Hold, PoolView, Run, View, Waiting

Allow = Callable[[Waiting, PoolView], bool]
Rank = Callable[[Option], tuple[Any, ...]]


def finish(option: Option) -> tuple[float]:
    """The earlier by prediction, the better."""
    return (option.start_s + option.mean_s,)


MAX_HOLDS = 16
"""Batches that one decision lets wait for busy replicas, per model; what is behind them is due later, and can too."""


class Lane(Struct, kw_only=True):
    """A replica in the course of one decision; `free_s` and `slots_left` move as the decision fills it."""

    replica: str
    pool: PoolView
    free_s: float
    slots_left: int


class Candidate(Struct, kw_only=True):
    """One batch that could run on one lane."""

    lane: Lane
    parts: tuple[Part, ...]
    option: Option


def greedy(view: View, rank: Rank, allow: Allow | None = None) -> list[Choice]:
    """Assign what waits, earliest deadline first, to the best-ranked candidate of all pools.

    If the best is a replica that is busy, the work waits for it, and is decided again before the best alternative
    with a free slot becomes too late.
    """
    if not any(r.slots_left for r in view.replicas):  # the usual tick under overload, which must not cost the queue
        return []
    now_s = view.now_s
    lanes = [
        Lane(replica=r.replica, pool=view.pools[r.pool], free_s=max(r.free_s, now_s), slots_left=r.slots_left)
        for r in view.replicas
    ]
    choices: list[Choice] = []
    for pools, queue in _queues(view, allow):
        choices += _serve(view, queue, [lane for lane in lanes if lane.pool.spec.name in pools], rank)
    return choices


def _queues(view: View, allow: Allow | None) -> list[tuple[tuple[str, ...], list[Waiting]]]:
    """What waits, in order of deadline, by model and by the pools that may run it: a queue shares its batches."""
    serving = {
        model: [(name, pool) for name, pool in view.pools.items() if pool.serves(model)] for model in view.workloads
    }
    every = {model: tuple(name for name, _ in pools) for model, pools in serving.items()}
    least = {model: min((p.spec.max_items for _, p in pools), default=0) for model, pools in serving.items()}
    most = {model: max((p.spec.max_items for _, p in pools), default=0) for model, pools in serving.items()}
    queues: dict[tuple[str, tuple[str, ...], bool], list[Waiting]] = {}
    for w in view.waiting:
        model = w.model
        names = every[model]
        if allow is not None or w.barred or w.items > least[model]:
            names = tuple(
                name
                for name, pool in serving[model]
                if name not in w.barred and _leaves(w, pool, most[model]) and (allow is None or allow(w, pool))
            )
        queues.setdefault((model, names, w.alone), []).append(w)
    return [(names, queue) for (_, names, _), queue in queues.items()]


def _leaves(waiting: Waiting, pool: PoolView, most: int) -> bool:
    """Whether what a batch of `pool` leaves of these items can be run in the cuts left, by batches of `most`."""
    return waiting.items - pool.spec.max_items <= waiting.ranges_left * most


def _serve(view: View, queue: list[Waiting], lanes: list[Lane], rank: Rank) -> list[Choice]:
    """Assign one queue until nothing is left of it, or no replica has a slot."""
    choices: list[Choice] = []
    at = held = 0
    slots = sum(lane.slots_left for lane in lanes)
    most = max((lane.pool.spec.max_items for lane in lanes), default=0)
    while at < len(queue) and slots > 0 and held < MAX_HOLDS:
        head = queue[at]
        firsts = [lane for lane in _first_per_pool(lanes) if _leaves(head, lane.pool, most)]
        if not firsts:  # it takes a pool that has no replica now
            at += 1
            continue
        candidates = [_candidate(view, lane, queue, at) for lane in firsts]
        candidates.sort(key=lambda c: rank(c.option))
        best = candidates[0]
        if best.lane.slots_left > 0:
            why = Why(binding=_binding(candidates), options=tuple(c.option for c in candidates))
            choices.append(Run(parts=best.parts, replica=best.lane.replica, why=why))
            best.lane.slots_left -= 1
            slots -= 1
        else:
            choices += _hold(view, head, candidates)
            held += 1
        best.lane.free_s = best.option.start_s + best.option.mean_s
        rest = head.items - best.parts[0].items
        if rest:  # what does not fit is the next head, so that idle replicas share a large request in this very tick
            queue[at] = replace(
                head,
                start=head.start + best.parts[0].items,
                items=rest,
                nbytes=head.nbytes * rest // head.items,
                ranges_left=head.ranges_left - 1,
            )
        else:
            at += len(best.parts)  # a batch is always a run of the queue
    return choices


def _first_per_pool(lanes: list[Lane]) -> list[Lane]:
    """For each pool the replica that can begin first; a free slot comes before all others."""
    first: dict[str, Lane] = {}
    for lane in lanes:
        name = lane.pool.spec.name
        known = first.get(name)
        if known is None or (lane.slots_left <= 0, lane.free_s) < (known.slots_left <= 0, known.free_s):
            first[name] = lane
    return list(first.values())


def _candidate(view: View, lane: Lane, queue: list[Waiting], at: int) -> Candidate:
    """The batch that starts with the head of the queue and grows while every deadline in it is still met."""
    head, pool = queue[at], lane.pool
    spec, model = pool.spec, head.model
    patience_s = head.deadline_s - lane.free_s
    items = min(head.items, spec.max_items)
    nbytes = head.nbytes * items // head.items
    parts: tuple[Part, ...] = (Part(head.rid, head.start, items),)
    if items == head.items and at + 1 < len(queue) and view.workloads[model].mergeable and not head.alone:
        taken, items, nbytes = _grow(queue, at, lane)
        parts = tuple(w.part for w in queue[at : at + taken])
    mean_s, p99_s = pool.mean_s(model, items, nbytes), pool.p99_s(model, items, nbytes)
    option = Option(
        pool=spec.name,
        replica=lane.replica,
        items=items,
        start_s=lane.free_s,
        mean_s=mean_s,
        p99_s=p99_s,
        marginal_usd=pool.marginal_usd(mean_s, nbytes),
        list_usd=pool.price.list_usd(mean_s),
        feasible=p99_s <= patience_s,
        busy=lane.slots_left <= 0,
    )
    return Candidate(lane=lane, parts=parts, option=option)


def _grow(queue: list[Waiting], at: int, lane: Lane) -> tuple[int, int, int]:
    """How many of the queue from `at` on make one batch, with its items and bytes.

    As many as fit and are done by the earliest deadline that this lane can keep at all. Requests that are late even
    alone set no limit: the sooner they are through the better, and a shared batch is the quickest way.
    """
    head, pool = queue[at], lane.pool
    limit = pool.spec.max_items
    totals: list[tuple[int, int]] = []
    patience_s = inf
    items = nbytes = 0
    for w in queue[at : at + limit]:
        items += w.items
        nbytes += w.nbytes
        if items > limit:
            break
        totals.append((items, nbytes))
        if patience_s == inf and pool.p99_s(w.model, w.items, w.nbytes) <= w.deadline_s - lane.free_s:
            patience_s = w.deadline_s - lane.free_s

    def late(count: int) -> bool:
        return pool.p99_s(head.model, *totals[count - 1]) > patience_s

    count = len(totals)
    if count > 1 and late(count):
        count = bisect_left(range(count), 1, lo=1, key=lambda n: late(n + 1))
    return (count, *totals[count - 1])


def _binding(candidates: list[Candidate]) -> str:
    """The constraint that decided, in a word: for the receipt."""
    if len(candidates) == 1:
        return "only option"
    if not candidates[0].option.feasible:
        return "no option meets the deadline"
    if any(not c.option.feasible for c in candidates[1:]):
        return "deadline"
    return "cost"


def _hold(view: View, head: Waiting, candidates: list[Candidate]) -> list[Choice]:
    """Wait for the busy best, but not so long that the alternatives with a free slot are lost."""
    latest_s = [head.deadline_s - c.option.p99_s for c in candidates if c.lane.slots_left > 0]
    until_s = max(latest_s, default=view.now_s)
    return [Hold(rids=(head.rid,), until_s=until_s)] if until_s > view.now_s else []
