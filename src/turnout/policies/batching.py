"""The loop that the shipped policies share: take the earliest deadline, compare one batch per pool, run the best.

A policy gives `allow` (which pools a request may use at all) and `rank` (which of the options is best); everything
else, from filling a batch to reserving a replica within the decision, is here and the same for all of them.
Batches are filled in order of deadline from what waits already: a batch closes as soon as a replica is free for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from turnout.core.events import Option, Part, Why
from turnout.core.policy import Choice, Hold, PoolView, Run, View, Waiting

Allow = Callable[[Waiting, PoolView], bool]
Rank = Callable[[Option], tuple[Any, ...]]


def anywhere(waiting: Waiting, pool: PoolView) -> bool:  # noqa: ARG001  # the shape of `Allow`
    """Every pool that serves the model is allowed."""
    return True


def finish(option: Option) -> tuple[float]:
    """The earlier by prediction, the better."""
    return (option.start_s + option.mean_s,)


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


def greedy(view: View, allow: Allow, rank: Rank) -> list[Choice]:
    """Assign what waits, earliest deadline first, to the best-ranked candidate of all pools.

    If the best is a replica that is busy, the work waits for it, and is decided again before the best alternative
    with a free slot becomes too late.
    """
    lanes = _lanes(view)
    choices: list[Choice] = []
    for queue in _by_model(view.waiting):
        _serve(view, queue, lanes, choices, allow, rank)
    return choices


def _serve(
    view: View, queue: list[Waiting], lanes: list[Lane], choices: list[Choice], allow: Allow, rank: Rank
) -> None:
    """Assign the queue of one model until nothing is left of it, or no replica has a slot."""
    model = queue[0].model
    usable = [lane for lane in lanes if lane.pool.serves(model)]
    while queue and any(lane.slots_left > 0 for lane in usable):
        head = queue[0]
        candidates = [_candidate(view, lane, queue) for lane in _first_per_pool(usable, head, allow)]
        if not candidates:
            queue.pop(0)
            continue
        candidates.sort(key=lambda c: rank(c.option))
        best = candidates[0]
        if best.lane.slots_left > 0:
            why = Why(binding=_binding(candidates), options=tuple(c.option for c in candidates))
            choices.append(Run(parts=best.parts, replica=best.lane.replica, why=why))
            best.lane.slots_left -= 1
        else:
            _hold(view, head, candidates, choices)
        best.lane.free_s = best.option.start_s + best.option.mean_s
        _advance(queue, best)


def _lanes(view: View) -> list[Lane]:
    now_s = view.now_s
    return [
        Lane(
            replica=r.replica, pool=view.pools[r.pool], free_s=max(r.free_s, now_s), slots_left=r.slots_left
        )
        for r in view.replicas
    ]


def _by_model(waiting: Sequence[Waiting]) -> list[list[Waiting]]:
    """The waiting set as one queue per model, each in order of deadline, the most urgent queue first."""
    queues: dict[str, list[Waiting]] = {}
    for w in waiting:
        queues.setdefault(w.model, []).append(w)
    return list(queues.values())


def _first_per_pool(lanes: list[Lane], head: Waiting, allow: Allow) -> list[Lane]:
    """For each pool that `head` may use, the replica that can begin first; a free slot comes before all others."""
    first: dict[str, Lane] = {}
    for lane in lanes:
        spec = lane.pool.spec
        known = first.get(spec.name)
        if known is not None:
            if (lane.slots_left <= 0, lane.free_s) < (known.slots_left <= 0, known.free_s):
                first[spec.name] = lane
        elif (
            spec.name not in head.barred
            and (head.items <= spec.max_items or head.ranges_left > 0)
            and allow(head, lane.pool)
        ):
            first[spec.name] = lane
    return list(first.values())


def _candidate(view: View, lane: Lane, queue: list[Waiting]) -> Candidate:
    """The batch that starts with the head of the queue and grows while every deadline in it is still met."""
    head, pool = queue[0], lane.pool
    spec, model = pool.spec, head.model
    start_s = max(lane.free_s, view.now_s)
    items = min(head.items, spec.max_items)
    parts = [Part(head.rid, head.start, items)]
    nbytes = head.nbytes * items // head.items
    patience_s = head.deadline_s - start_s
    if view.workloads[model].mergeable and items == head.items:
        for w in queue[1:]:
            total = items + w.items
            if total > spec.max_items or pool.p99_s(model, total, nbytes + w.nbytes) > patience_s:
                break
            if spec.name not in w.barred:
                parts.append(w.part)
                items, nbytes = total, nbytes + w.nbytes
    mean_s, p99_s = pool.mean_s(model, items, nbytes), pool.p99_s(model, items, nbytes)
    late = p99_s > patience_s
    option = Option(
        pool=spec.name,
        replica=lane.replica,
        items=items,
        start_s=start_s,
        mean_s=mean_s,
        p99_s=p99_s,
        marginal_usd=pool.marginal_usd(mean_s, nbytes),
        list_usd=pool.price.list_usd(mean_s),
        feasible=not late,
        note="late" if late else "busy" if lane.slots_left <= 0 else "",
    )
    return Candidate(lane=lane, parts=tuple(parts), option=option)


def _binding(candidates: list[Candidate]) -> str:
    """The constraint that decided, in a word: for the receipt."""
    if len(candidates) == 1:
        return "only option"
    if not candidates[0].option.feasible:
        return "no option meets the deadline"
    if any(not c.option.feasible for c in candidates[1:]):
        return "deadline"
    return "cost"


def _hold(view: View, head: Waiting, candidates: list[Candidate], choices: list[Choice]) -> None:
    """Wait for the busy best, but not so long that the alternatives with a free slot are lost."""
    latest_s = [head.deadline_s - c.option.p99_s for c in candidates if c.lane.slots_left > 0]
    if latest_s and max(latest_s) > view.now_s:
        choices.append(Hold(rids=(head.rid,), until_s=max(latest_s)))


def _advance(queue: list[Waiting], best: Candidate) -> None:
    """Take the parts of a candidate out of the queue; a request that was cut leaves its rest to the next tick."""
    taken = {(p.rid, p.start) for p in best.parts}
    queue[:] = [w for w in queue if (w.rid, w.start) not in taken]
