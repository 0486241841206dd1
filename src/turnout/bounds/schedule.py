"""Schedules made with full knowledge: their form, the instance they are for, and an independent check of them.

A machine runs one batch at a time, without interruption. A batch holds whole requests, or parts of them if they may be
split; it begins when all its requests have arrived and takes the realised seconds that the simulator would draw for it.
A request is met if all its items are done by its deadline; one that is not run at all is a miss like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.bounds.ascent import Floats
from turnout.bounds.fluid import Ints, amortised
from turnout.core.events import Part

Luck = Callable[[int, int], int]
"""`luck(rid, start)`: which row of the tables a batch draws its seconds from, if it is led by that part."""


def even_luck(rid: int, start: int) -> int:
    """The luck where service times are certain: there is one row."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """`n` requests, numbered in order of arrival, and a fleet.

    `at_s` (n,) ascends, `items` (n,), `deadline_s` (n,) relative to arrival. `replicas` (k,) machines of each pool.
    `seconds[pool][row, m]` are the realised seconds of a batch of m items, for m up to the pool's largest; column 0 is
    not used. Its row is the `luck` of its leading part, so that the simulator's own draws can be tabled, a row for each
    quantile. `merge`: requests may share a batch. A request may be cut into `max_parts`.
    """

    at_s: Floats
    items: Ints
    deadline_s: Floats
    replicas: tuple[int, ...]
    seconds: tuple[Floats, ...]
    luck: Luck = even_luck
    merge: bool = False
    max_parts: int = 1

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.at_s)

    @property
    def due_s(self) -> Floats:
        """When each request is due (n,), on the clock of the arrivals."""
        return self.at_s + self.deadline_s

    @property
    def machines(self) -> tuple[int, ...]:
        """The pool of each machine, pool by pool."""
        return tuple(pool for pool, count in enumerate(self.replicas) for _ in range(count))

    @property
    def max_items(self) -> tuple[int, ...]:
        """The largest batch of each pool."""
        return tuple(table.shape[1] - 1 for table in self.seconds)

    def took_s(self, pool: int, items: int, rid: int, start: int) -> float:
        """Realised seconds of a batch that the part of `rid` from item `start` on leads."""
        return float(self.seconds[pool][self.luck(rid, start), items])

    def alone_s(self) -> Floats:
        """Seconds (n, k) of each request alone in one batch (B1); infinite where too large, or late even at once."""
        rows = np.array([self.luck(rid, 0) for rid in range(len(self))], dtype=np.int64)
        work_s = np.full((len(self), len(self.replicas)), np.inf)
        for pool, most in enumerate(self.max_items):
            fits = self.items <= most
            took_s = self.seconds[pool][rows[fits], self.items[fits]]
            work_s[fits, pool] = np.where(took_s <= self.deadline_s[fits], took_s, np.inf)
        return work_s

    def shared_s(self) -> Floats:
        """Least seconds (n, k) of each request if it may be merged and split, at the best luck there is (B2)."""
        return amortised(self.items, [table[:, 1:].min(axis=0) for table in self.seconds], self.deadline_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`parts` run as one batch on machine `machine` from `start_s`; the first part leads it."""

    machine: int
    start_s: float
    parts: tuple[Part, ...]


def missed(instance: Instance, schedule: Sequence[Batch]) -> Ints:
    """The requests that a schedule misses, counted from its batches alone.

    Raises:
        ValueError: a batch that the rules forbid, or two at once on one machine; it says which.
    """
    machines = instance.machines
    free_s = [-np.inf] * len(machines)
    done: list[list[tuple[int, int, float]]] = [[] for _ in range(len(instance))]
    for batch in sorted(schedule, key=lambda b: (b.machine, b.start_s)):
        _check(instance, batch)
        if batch.start_s < free_s[batch.machine]:
            raise ValueError(f"machine {batch.machine} is busy at {batch.start_s}: {batch.parts}")
        lead = batch.parts[0]
        items = sum(part.items for part in batch.parts)
        end_s = batch.start_s + instance.took_s(machines[batch.machine], items, lead.rid, lead.start)
        free_s[batch.machine] = end_s
        for part in batch.parts:
            done[part.rid].append((part.start, part.items, end_s))
    met = [_met(instance, rid, pieces) for rid, pieces in enumerate(done)]
    return np.flatnonzero(~np.array(met, dtype=bool))


def _check(instance: Instance, batch: Batch) -> None:
    """What the rules say of one batch.

    Raises:
        ValueError: it breaks one.
    """
    pool = instance.machines[batch.machine]
    if not batch.parts or sum(part.items for part in batch.parts) > instance.max_items[pool]:
        raise ValueError(f"a batch has between 1 and {instance.max_items[pool]} items on pool {pool}: {batch.parts}")
    if not instance.merge and len({part.rid for part in batch.parts}) > 1:
        raise ValueError(f"requests must not share a batch: {batch.parts}")
    for part in batch.parts:
        if batch.start_s < instance.at_s[part.rid]:
            raise ValueError(f"request {part.rid} has not arrived at {batch.start_s}")
        if part.items < 1 or part.start < 0 or part.start + part.items > instance.items[part.rid]:
            raise ValueError(f"request {part.rid} has no items {part.start}+{part.items}")


def _met(instance: Instance, rid: int, pieces: list[tuple[int, int, float]]) -> bool:
    """Whether the pieces (start, items, end_s) are all of the request, once each, by its deadline.

    Raises:
        ValueError: an item that is run twice, or more pieces than the request may be cut into.
    """
    if len(pieces) > instance.max_parts:
        raise ValueError(f"request {rid} is cut into {len(pieces)} parts, and may be into {instance.max_parts}")
    at = 0
    for start, items, _ in sorted(pieces):
        if start < at:
            raise ValueError(f"item {start} of request {rid} is run twice")
        if start > at:
            return False
        at = start + items
    return at == instance.items[rid] and all(end_s <= instance.due_s[rid] for *_, end_s in pieces)
