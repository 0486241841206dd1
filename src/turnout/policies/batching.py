"""The loop that the policies share: take the earliest deadline, compare one batch per pool, run the best.

A policy gives `allow` (which pools a request may use at all) and `rank` (which of the options is best); everything
else, from sizing and filling a batch to reserving a replica within the decision, is here and the same for all of them.
A batch is filled in order of the queue from what waits already, up to the pool's quantum; the last request in it is
cut to fit where it may be. It closes as soon as a replica is free for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from math import ceil, inf
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnout.core.events import Option, Part, Why
from turnout.core.policy import Choice, Hold, PoolView, Run, View, Waiting
from turnout.policies.quanta import SHARE, Quanta

Allow = Callable[[Waiting, PoolView], bool]
Rank = Callable[[Option], tuple[Any, ...]]

MAX_HOLDS = 16
"""Batches that one decision lets wait for busy replicas, per model; what is behind them is due later, and can too."""


def finish(option: Option) -> tuple[float]:
    """The earlier by prediction, the better."""
    return (option.start_s + option.mean_s,)


class Lane(Struct):
    """A replica in the course of one decision; `free_s` and `slots_left` move as the decision fills it."""

    replica: str
    pool: PoolView
    free_s: float
    slots_left: int


class Queue(Struct, kw_only=True):
    """What waits of one model for one set of pools, in the order in which it is to be served.

    `back` of the requests, at its end, stand back behind those of all other queues. `at` moves as it is served.
    """

    pools: tuple[str, ...]
    waiting: list[Waiting]
    back: int = 0
    at: int = 0
    held: int = 0

    @property
    def urgency(self) -> tuple[bool, float]:
        """Queues are served in this order of their heads."""
        return self.at >= len(self.waiting) - self.back, self.waiting[self.at].deadline_s


class Candidate(Struct, kw_only=True):
    """One batch that could run on one lane."""

    lane: Lane
    parts: tuple[Part, ...]
    option: Option


def one_sided(view: View) -> set[str]:
    """Models that only the CPU, or only accelerators, can serve: rules that choose between the two leave them alone."""
    sides = {m: {p.spec.device != "cpu" for p in view.pools.values() if p.serves(m)} for m in view.workloads}
    return {model for model, found in sides.items() if len(found) == 1}


def lanes_of(view: View) -> list[Lane]:
    """Every replica that is up, as it stands before the decision."""
    now_s = view.now_s
    pools = view.pools
    return [
        Lane(r.replica, pools[r.pool], max(now_s, r.free_s), r.slots_left)  # quicker than max()
        for r in view.replicas
    ]


def greedy(view: View, rank: Rank, allow: Allow | None = None, share: float = SHARE) -> list[Choice]:
    """Assign what waits, earliest deadline first, to the best-ranked candidate of all pools.

    If the best is a replica that is busy, the work waits for it, and is decided again before the best alternative
    with a free slot becomes too late.
    """
    if not any(r.slots_left for r in view.replicas):  # the usual tick under overload, which must not cost the queue
        return []
    return serve(view, queues(view, view.waiting, allow), lanes_of(view), rank, Quanta(view, share))


def queues(view: View, waiting: Iterable[Waiting], allow: Allow | None = None) -> list[Queue]:
    """`waiting`, in its order, by model and by the pools that may run it: a queue shares its batches."""
    serving = {
        model: [(name, pool) for name, pool in view.pools.items() if pool.serves(model)] for model in view.workloads
    }
    every = {model: tuple(name for name, _ in pools) for model, pools in serving.items()}
    least = {model: min((p.spec.max_items for _, p in pools), default=0) for model, pools in serving.items()}
    most = {model: max((p.spec.max_items for _, p in pools), default=0) for model, pools in serving.items()}
    found: dict[tuple[str, tuple[str, ...], bool], Queue] = {}
    for w in waiting:
        model = w.model
        names = every[model]
        if allow is not None or w.barred or w.items > least[model]:
            names = tuple(
                name
                for name, pool in serving[model]
                if name not in w.barred and _leaves(w, pool, most[model]) and (allow is None or allow(w, pool))
            )
        key = (model, names, w.alone)
        queue = found.get(key)
        if queue is None:
            queue = found[key] = Queue(pools=names, waiting=[])
        queue.waiting.append(w)
    return list(found.values())


def _leaves(waiting: Waiting, pool: PoolView, most: int) -> bool:
    """Whether what a batch of `pool` leaves of these items can be run in the cuts left, by batches of `most`."""
    return waiting.items - pool.spec.max_items <= waiting.ranges_left * most


def serve(view: View, queues: Sequence[Queue], lanes: Sequence[Lane], rank: Rank, quanta: Quanta) -> list[Choice]:
    """Assign the queues, the most urgent head first, until nothing is left of them or no lane has a slot."""
    choices: list[Choice] = []
    slots = sum([lane.slots_left for lane in lanes])
    open_queues = [queue for queue in queues if queue.at < len(queue.waiting)]
    usable = {queue.pools: [lane for lane in lanes if lane.pool.spec.name in queue.pools] for queue in open_queues}
    while open_queues and slots:
        queue = open_queues[0] if len(open_queues) == 1 else min(open_queues, key=_urgency)
        choice = _serve_head(view, queue, usable[queue.pools], rank, quanta)
        if choice is not None:
            choices.append(choice)
            slots -= isinstance(choice, Run)
        if queue.at >= len(queue.waiting) or queue.held >= MAX_HOLDS:
            open_queues.remove(queue)
    return choices


def _urgency(queue: Queue) -> tuple[bool, float]:
    return queue.urgency


def _serve_head(view: View, queue: Queue, lanes: list[Lane], rank: Rank, quanta: Quanta) -> Choice | None:
    """Assign one batch from the head of a queue; None if it has to wait for a reason that needs no waking."""
    head = queue.waiting[queue.at]
    every = _first_per_pool(lanes)
    most = max([lane.pool.spec.max_items for lane in every], default=0)
    firsts = [lane for lane in every if _leaves(head, lane.pool, most)]
    if not firsts:  # it takes a pool that has no replica now
        queue.at += 1
        return None
    candidates = [_candidate(view, lane, queue, quanta) for lane in firsts]
    if len(candidates) > 1:
        candidates.sort(key=lambda c: rank(c.option))
    best = candidates[0]
    runs = best.lane.slots_left > 0
    best.lane.free_s = best.option.start_s + best.option.mean_s
    queue.at += len(best.parts)  # a batch is always a run of the queue
    if not runs:
        queue.held += 1
        return _hold(view, head, candidates)
    best.lane.slots_left -= 1
    last, cut = queue.waiting[queue.at - 1], best.parts[-1].items
    if cut < last.items:  # the rest is the next head, so that idle replicas share a large request in this very tick
        queue.at -= 1
        queue.waiting[queue.at] = replace(
            last,
            start=last.start + cut,
            items=last.items - cut,
            nbytes=last.nbytes * (last.items - cut) // last.items,
            ranges_left=last.ranges_left - 1,
        )
    why = Why(binding=_binding(candidates), options=tuple(c.option for c in candidates))
    return Run(parts=best.parts, replica=best.lane.replica, why=why)


def _first_per_pool(lanes: list[Lane]) -> list[Lane]:
    """For each pool the replica that can begin first; a free slot comes before all others."""
    first: dict[str, Lane] = {}
    for lane in lanes:
        name = lane.pool.spec.name
        known = first.get(name)
        if known is None or (lane.slots_left <= 0, lane.free_s) < (known.slots_left <= 0, known.free_s):
            first[name] = lane
    return list(first.values())


def _candidate(view: View, lane: Lane, queue: Queue, quanta: Quanta) -> Candidate:
    """The batch that starts with the head of the queue and grows while every deadline in it is still met."""
    waiting, at = queue.waiting, queue.at
    head, pool = waiting[at], lane.pool
    model = head.model
    patience_s = head.deadline_s - lane.free_s
    quantum = quanta.items(pool, model)
    items = _bite(head, pool, quantum, patience_s)
    nbytes = head.nbytes * items // head.items
    parts: tuple[Part, ...] = (Part(head.rid, head.start, items),)
    if items == head.items and at + 1 < len(waiting) and view.workloads[model].mergeable and not head.alone:
        parts, items, nbytes = _grow(waiting, at, lane, max(quantum, items))
    mean_s, p99_s = pool.mean_s(model, items, nbytes), pool.p99_s(model, items, nbytes)
    option = Option(
        pool=pool.spec.name,
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


def _bite(head: Waiting, pool: PoolView, quantum: int, patience_s: float) -> int:
    """How many items of a request one batch takes: all of them, or its share where it can be cut and has to be.

    It has to be where the whole is more than a batch may be, or would be late.
    """
    largest = pool.spec.max_items
    if head.ranges_left < 1 or head.items <= 1:
        return min(head.items, largest)
    share = ceil(head.items / (head.ranges_left + 1))  # less than this, and the cuts left do not reach to the end
    items = min(head.items, max(quantum, share), largest)
    if pool.p99_s(head.model, items) > patience_s:
        fits = bisect_left(range(1, items), x=True, key=lambda n: pool.p99_s(head.model, n) > patience_s)
        items = min(max(fits, share), items) if fits else items
    return items


def _grow(waiting: Sequence[Waiting], at: int, lane: Lane, limit: int) -> tuple[tuple[Part, ...], int, int]:
    """The parts, items and bytes of one batch of what waits from `at` on.

    As many as fit in `limit` and are done by the earliest deadline that this lane can keep at all; the last is cut to
    fill the batch where it can be. Requests that are late even alone set no limit: the sooner they are through the
    better, and a shared batch is the quickest way.
    """
    pool, model = lane.pool, waiting[at].model
    parts: list[Part] = []
    totals: list[tuple[int, int, float]] = []  # items, bytes, and the patience of the batch up to this part
    patience_s = inf
    items = nbytes = 0
    for w in waiting[at : at + limit]:
        take = min(w.items, limit - items)
        if take < w.items and (w.ranges_left < 1 or w.items - take > w.ranges_left * limit):
            break
        items += take
        nbytes += w.nbytes * take // w.items
        own_s = w.deadline_s - lane.free_s
        if own_s < patience_s and pool.p99_s(model, take, w.nbytes) <= own_s:
            patience_s = own_s
        parts.append(Part(w.rid, w.start, take))
        totals.append((items, nbytes, patience_s))
        if items >= limit:
            break

    def late(count: int) -> bool:
        total, carried, patient_s = totals[count - 1]
        return pool.p99_s(model, total, carried) > patient_s

    count = len(totals)
    if count > 1 and late(count):
        count = bisect_left(range(count), 1, lo=1, key=lambda n: late(n + 1))
    return tuple(parts[:count]), totals[count - 1][0], totals[count - 1][1]


def _binding(candidates: list[Candidate]) -> str:
    """The constraint that decided, in a word: for the receipt."""
    if len(candidates) == 1:
        return "only option"
    if not candidates[0].option.feasible:
        return "no option meets the deadline"
    if any(not c.option.feasible for c in candidates[1:]):
        return "deadline"
    return "cost"


def _hold(view: View, head: Waiting, candidates: list[Candidate]) -> Hold | None:
    """Wait for the busy best, but not so long that the alternatives with a free slot are lost."""
    latest_s = [head.deadline_s - c.option.p99_s for c in candidates if c.lane.slots_left > 0]
    until_s = max(latest_s, default=view.now_s)
    return Hold(rids=(head.rid,), until_s=until_s) if until_s > view.now_s else None
