"""The loop of routers that choose a replica when a request arrives: each replica has a queue of its own.

Most load balancers work like this. A baseline gives `pick`; when a replica is free it fills a batch from its queue as
all other policies do. Which replica has which waiting range is the policy's state. What belongs to a replica that is
gone is picked for again; the rest of a request that was cut stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.policy import Choice, Policy, Run, View, Waiting
from turnout.policies.batching import Lane, Queue, finish, lanes_of, serve
from turnout.policies.quanta import Quanta


class Load(Struct, kw_only=True):
    """What a replica has before it: requests, items and predicted seconds, what it runs now included."""

    lane: Lane
    requests: int = 0
    items: int = 0
    seconds: float = 0.0


Pick = Callable[[View, Waiting, Sequence[Load], Generator], "Load | None"]
"""The load of the replica that gets this request; None to leave it for later."""


def assigning(pick: Pick, share: float) -> Policy:
    """A policy that assigns with `pick` and then runs each replica's queue in order."""

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        lanes, quanta = lanes_of(view), Quanta(view, share)
        loads = {lane.replica: Load(lane=lane, seconds=lane.free_s - view.now_s) for lane in lanes}
        for flight in view.in_flight:
            loads[flight.replica].requests += len(flight.parts)
            loads[flight.replica].items += flight.items
        known: dict[str, str] = state or {}
        assigned: dict[str, str] = {}
        queues: dict[str, list[Waiting]] = {}
        for w in view.waiting:  # first what is assigned, so that a new request sees all queues
            name = known.get(str(w.rid))
            if name in loads and _may(w, loads[name].lane):
                _put(w, loads[name], quanta, assigned, queues)
        for w in view.waiting:
            if str(w.rid) not in assigned:
                chosen = pick(view, w, [load for load in loads.values() if _may(w, load.lane)], rng)
                if chosen is not None:
                    _put(w, chosen, quanta, assigned, queues)
        choices: list[Choice] = []
        for name, mine in queues.items():
            lane = loads[name].lane
            if lane.slots_left > 0:
                choices += _run(view, mine, lane, quanta)
        return choices, assigned

    return decide


def _may(w: Waiting, lane: Lane) -> bool:
    """Whether the replica can run this range, in pieces if need be."""
    pool = lane.pool
    return (
        pool.serves(w.model) and pool.spec.name not in w.barred and w.items <= pool.spec.max_items * (w.ranges_left + 1)
    )


def _put(w: Waiting, load: Load, quanta: Quanta, assigned: dict[str, str], queues: dict[str, list[Waiting]]) -> None:
    """Queue a range on a replica. Its seconds are its share of a full batch: what it adds to the queue."""
    assigned[str(w.rid)] = load.lane.replica
    queues.setdefault(load.lane.replica, []).append(w)
    load.requests += 1
    load.items += w.items
    load.seconds += added_s(w, load, quanta)


def added_s(w: Waiting, load: Load, quanta: Quanta) -> float:
    """Predicted seconds that a request adds to a replica's queue: alone, or its share of a batch it can share."""
    pool = load.lane.pool
    full = quanta.items(pool, w.model)
    alone_s = pool.mean_s(w.model, min(w.items, pool.spec.max_items))
    return min(alone_s, w.items / full * pool.mean_s(w.model, full)) if load.items else alone_s


def _run(view: View, mine: list[Waiting], lane: Lane, quanta: Quanta) -> list[Choice]:
    """Batches from the head of one replica's queue, one for each free slot; a model at a time."""
    choices: list[Choice] = []
    while mine and lane.slots_left > 0:
        model, alone = mine[0].model, mine[0].alone
        same = [w for w in mine if w.model == model and w.alone == alone]
        queue = Queue(pools=(lane.pool.spec.name,), waiting=same)
        before = lane.slots_left
        found = [c for c in serve(view, [queue], [lane], finish, quanta) if isinstance(c, Run)]
        choices += found
        taken = {part.rid for choice in found for part in choice.parts}
        mine = [w for w in mine if w.rid not in taken]
        if lane.slots_left == before:
            break
    return choices
