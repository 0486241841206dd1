"""Which of the waiting requests can all be done in time, and which have to stand back so that most can.

Source: J. M. Moore, "An n job, one machine sequencing algorithm for minimizing the number of late jobs", Management
Science 15 (1968): go by deadline, and whenever the work so far is more than can be done, put the largest aside. It is
exact for one machine. Here the fleet is taken as one machine that finishes whole batches only: by a deadline, a replica
has done as many quanta as end before it. Counting parts of batches instead lets the queue grow until batches have to
be small to be in time, which makes them inefficient, and the queue collapses.

What stands back is not dropped. It runs as soon as nothing else needs the replica, and is refused by the router when
no replica can finish it any more. A request that could not be done in time even if it were alone stands back without
the others: one model whose batches take long must not send back those of another.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from math import inf

import numpy as np

from turnout.core.policy import Waiting
from turnout.policies.batching import Lane
from turnout.policies.quanta import Quanta

Paces = list[tuple[float, float, float]]
"""Of each lane: when it is free, seconds per quantum, and what a quantum of it is of the fleet's work, in seconds."""

MANY = 200
"""Deadlines times lanes from which on numpy is quicker."""

ROUNDING = 1.0 + 1e-9
"""Seconds that were added up in different orders are the same up to this."""


def triage(
    waiting: Sequence[Waiting], lanes: Sequence[Lane], quanta: Quanta, trust: float = 1.0
) -> Collection[tuple[int, int]]:
    """The (rid, start) of what has to stand back; `waiting` is in order of deadline, of any models.

    Work is counted in seconds of the whole fleet of `lanes` on the model in question, so that models add up. `trust`
    is the share of the lanes' capacity that is counted on.
    """
    deadlines: dict[str, list[float]] = {}
    for w in waiting:
        due = deadlines.setdefault(w.model, [])
        if not due or due[-1] != w.deadline_s:
            due.append(w.deadline_s)
    models = {model: _paces(model, lanes, quanta) for model in deadlines}
    done_by = {model: dict(zip(due, _done(due, models[model][1]), strict=True)) for model, due in deadlines.items()}
    work = 0.0
    largest: list[tuple[float, int, int]] = []
    back: set[tuple[int, int]] = set()
    for w in waiting:
        done = trust * ROUNDING * done_by[w.model][w.deadline_s]
        seconds = w.items * models[w.model][0]
        if seconds > done:
            back.add((w.rid, w.start))
            continue
        work += seconds
        heappush(largest, (-seconds, w.rid, w.start))
        while work > done:
            seconds, rid, start = heappop(largest)
            work += seconds
            back.add((rid, start))
    return back


def _done(deadlines_s: Sequence[float], paces: Paces) -> list[float]:
    """Seconds of the fleet's work that lanes are through with by each deadline, in whole quanta."""
    if len(deadlines_s) * len(paces) < MANY:
        return [
            sum(worth_s * int((due_s - free_s) / batch_s) for free_s, batch_s, worth_s in paces if free_s < due_s)
            for due_s in deadlines_s
        ]
    free_s, batch_s, worth_s = np.array(paces).T
    quanta = np.floor((np.array(deadlines_s)[:, None] - free_s) / batch_s)
    found: list[float] = (np.maximum(quanta, 0.0) @ worth_s).tolist()
    return found


def _paces(model: str, lanes: Sequence[Lane], quanta: Quanta) -> tuple[float, Paces]:
    """Seconds of the fleet per item of `model`, infinite if no lane serves it, and the lanes' paces."""
    paces: dict[str, tuple[float, int]] = {}
    found = []
    for lane in lanes:
        pool = lane.pool
        pace = paces.get(pool.spec.name)
        if pace is None and pool.serves(model):
            items = quanta.items(pool, model)
            pace = paces[pool.spec.name] = pool.mean_s(model, items), items
        if pace is not None:
            found.append((lane.free_s, *pace))
    per_item_s = 1.0 / sum(items / batch_s for _, batch_s, items in found) if found else inf
    return per_item_s, [(free_s, batch_s, items * per_item_s) for free_s, batch_s, items in found]
