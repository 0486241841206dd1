"""A good schedule for large traces, by beam search with full knowledge of arrivals and service times.

Requests are taken in order of deadline or of arrival. A state is how far the schedule has come, and when each machine
is free; from each, the next request is left out, or made part of a batch on one of a few machines: alone, or with as
many of those behind it as their arrivals and deadlines allow, the last one cut if that may be. Of the states that have
come equally far, the `width` best are kept: those with the fewest misses so far and, by `future`, to come.

Known arrivals enter twice: by what is to come of a backlog, and because the search finds out what a state leads to.
What comes out is feasible, and in no way proved to be the best.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from turnout.bounds.fluid import costs, fluid
from turnout.bounds.future import Future
from turnout.bounds.schedule import Batch, Instance
from turnout.core.events import Part

BATCHES = 3
"""Batches looked at for each machine, those with the least price per item."""

GRAIN = 200.0
"""States whose scores agree to this part of a miss are alike, and one of them is kept."""

Free = tuple[tuple[tuple[float, int], ...], ...]
"""For each pool, when its machines are free, earliest first, and which machine it is."""


class State(Struct, gc=False):
    """How far a schedule has come: all before request `at` of the order, `done` items of it in `parts` parts.

    The batch that led here, from `before`, is on `machine` from `start_s`, led by the part `lead` (place, item).
    """

    score: float
    at: int
    done: int
    parts: int
    misses: int
    free: Free
    before: State | None = None
    machine: int = -1
    start_s: float = 0.0
    lead: tuple[int, int] = (0, 0)


class Proposal(Struct, gc=False):
    """One batch: `items` from `start_s` to `end_s`; what is next to be done is `done` items into request `at`."""

    price: float
    start_s: float
    end_s: float
    items: int
    at: int
    done: int
    parts: int
    lead: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Search:
    """What does not change during a search; all lists are by place in the order."""

    instance: Instance
    order: list[int]
    at_s: list[float]
    due_s: list[float]
    items: list[int]
    next_s: list[float]
    worth: list[float]
    luck: list[int]
    rows: list[list[list[float]]]
    limits: list[list[list[float]]]
    prices: list[float]
    future: Future


def _search(instance: Instance, patience: float, lean: float) -> _Search:
    """Order the requests, and price them by the fluid bound of this instance."""
    order = np.argsort(instance.at_s + lean * instance.deadline_s, kind="stable")
    work_s = instance.shared_s() if instance.merge or instance.max_parts > 1 else instance.alone_s()
    if not instance.merge:  # what must be cut has the price of a share, the rest the price that it has alone
        alone_s = instance.alone_s()
        whole = np.isfinite(alone_s.min(axis=1))
        work_s = np.where(whole[:, None], alone_s, work_s)
    prices = fluid(work_s, instance.replicas).price
    worth = costs(work_s, prices).min(axis=1)
    worth = np.where(np.isfinite(worth), worth, 0.0)
    at_s = instance.at_s[order]
    next_s = np.append(np.minimum.accumulate(at_s[::-1])[::-1], at_s.max())
    deadline_s = float(instance.deadline_s.mean())
    return _Search(
        instance=instance,
        order=order.tolist(),
        at_s=at_s.tolist(),
        due_s=instance.due_s[order].tolist(),
        items=instance.items[order].tolist(),
        next_s=next_s.tolist(),
        worth=worth[order].tolist(),
        luck=[instance.luck(rid, 0) for rid in order.tolist()],
        rows=[table.tolist() for table in instance.seconds],
        limits=[np.maximum.accumulate(table, axis=1).tolist() for table in instance.seconds],
        prices=prices.tolist(),
        future=Future(next_s, worth[order], deadline_s, patience * deadline_s),
    )


def beam(instance: Instance, width: int, patience: float, lean: float = 1.0) -> list[Batch]:
    """The schedule of the best state; `patience` is the share of the deadline that `future` lets requests wait.

    The order is that of arrival + `lean` · deadline: 1 is by deadline, 0 by arrival, all the same if deadlines are.
    """
    n = len(instance)
    if n == 0:
        return []
    search = _search(instance, patience, lean)
    ids = iter(range(len(instance.machines)))
    free = tuple(tuple((0.0, next(ids)) for _ in range(count)) for count in instance.replicas)
    ahead: list[list[State]] = [[] for _ in range(n + 1)]
    ahead[0].append(State(0.0, 0, 0, 0, 0, free))
    for at in range(n):
        states, ahead[at] = ahead[at], []
        while states:
            again: list[State] = []  # states that have come a part further into this same request
            for state in _kept(states, width):
                ahead[at + 1].append(_left_out(search, state))
                for following in _followers(search, state):
                    (again if following.at == at else ahead[following.at]).append(following)
            states = again
    return _batches(search, min(ahead[n], key=lambda state: (state.misses, state.score)))


def _kept(states: list[State], width: int) -> Iterator[State]:
    """The best states that are not alike."""
    states.sort(key=_score)
    seen = set()
    for state in states:
        kind = (state.done, state.misses, int(state.score * GRAIN))
        if kind not in seen:
            seen.add(kind)
            yield state
            if len(seen) == width:
                return


def _score(state: State) -> float:
    return state.score


def _score_of(search: _Search, free: Free, misses: int, at: int, done: int) -> float:
    """Misses so far and to be expected, with these machines, and `done` items of request `at` done."""
    now_s, backlog_s = search.next_s[at], 0.0
    for price, machines in zip(search.prices, free, strict=True):
        for free_s, _ in machines:
            if free_s > now_s:
                backlog_s += price * (free_s - now_s)
    if done:
        backlog_s = max(backlog_s - search.worth[at] * done / search.items[at], 0.0)
    return misses + search.future.misses(at, backlog_s)


def _left_out(search: _Search, state: State) -> State:
    """The next request is missed, and what was done of it is lost."""
    score = _score_of(search, state.free, state.misses + 1, state.at + 1, 0)
    return State(score, state.at + 1, 0, 0, state.misses + 1, state.free, state)


def _followers(search: _Search, state: State) -> Iterator[State]:
    """What one more batch can lead to."""
    at = state.at
    for pool, machines in enumerate(state.free):
        for index in _machines(search, machines, pool, at):
            free_s, machine = machines[index]
            proposals = list(_proposals(search, state, pool, max(free_s, search.at_s[at])))
            if len(proposals) > BATCHES:
                proposals.sort(key=_price)
                del proposals[BATCHES:]
            for found in proposals:
                left = [*machines[:index], *machines[index + 1 :]]
                insort(left, (found.end_s, machine))
                free = (*state.free[:pool], tuple(left), *state.free[pool + 1 :])
                yield State(
                    _score_of(search, free, state.misses, found.at, found.done),
                    found.at,
                    found.done,
                    found.parts,
                    state.misses,
                    free,
                    state,
                    machine,
                    found.start_s,
                    found.lead,
                )


def _price(proposal: Proposal) -> float:
    return proposal.price


def _machines(search: _Search, machines: tuple[tuple[float, int], ...], pool: int, at: int) -> list[int]:
    """Machines of a pool worth a try: the one that is idle last, else the first that is free; and the last in time.

    Batches that can grow wait for none but the first: the longer they wait, the smaller they must be.
    """
    last = len(search.instance.machines)  # sorts behind every machine that is free at the same time
    idle = bisect_right(machines, (search.at_s[at], last))
    found = [max(idle - 1, 0)] if machines else []
    if not search.instance.merge:
        row = search.rows[pool][search.luck[at]]
        latest_s = search.due_s[at] - row[min(search.items[at], len(row) - 1)]
        timely = bisect_right(machines, (latest_s, last)) - 1
        if timely >= idle and timely not in found:
            found.append(timely)
    return found


def _proposals(search: _Search, state: State, pool: int, start_s: float) -> Iterator[Proposal]:
    """Batches that begin with the next request: each longer by one, the last filled up with a part if that may be."""
    instance, at = search.instance, state.at
    price, begin_s, due_s = search.prices[pool], start_s, search.due_s[at]
    lead, luck = (at, state.done), search.luck[at] if not state.done else instance.luck(search.order[at], state.done)
    items, add, place = 0, search.items[at] - state.done, at
    while True:
        fits = bisect_right(search.limits[pool][luck], due_s - start_s, 1) - 1
        if items + add > fits:
            parts = state.parts if place == at else 0
            if fits > items and parts + 2 <= instance.max_parts:
                done = fits - items + (state.done if place == at else 0)
                end_s = start_s + search.rows[pool][luck][fits]
                yield Proposal(price * (end_s - begin_s) / fits, start_s, end_s, fits, place, done, parts + 1, lead)
            return
        items += add
        place += 1
        end_s = start_s + search.rows[pool][luck][items]
        yield Proposal(price * (end_s - begin_s) / items, start_s, end_s, items, place, 0, 0, lead)
        if not instance.merge or place == len(search.items) or search.at_s[place] > due_s:
            return
        due_s = min(due_s, search.due_s[place])
        start_s, add = max(start_s, search.at_s[place]), search.items[place]
        if search.rows[pool][search.luck[place]][items] < search.rows[pool][luck][items]:
            lead, luck = (place, 0), search.luck[place]


def _batches(search: _Search, state: State) -> list[Batch]:
    """The batches that led to a state, in the order in which they were made."""
    found: list[Batch] = []
    while state.before is not None:
        before = state.before
        if state.machine >= 0:
            parts = []
            for place in range(before.at, min(state.at + 1, len(search.items))):
                start = before.done if place == before.at else 0
                end = search.items[place] if place < state.at else state.done
                if end > start:
                    parts.append((place, start, end - start))
            parts.sort(key=lambda part: part[:2] != state.lead)
            rids = tuple(Part(search.order[place], start, items) for place, start, items in parts)
            found.append(Batch(machine=state.machine, start_s=state.start_s, parts=rids))
        state = before
    return found[::-1]
