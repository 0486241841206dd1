"""The true optimum of small instances: fewest misses of any schedule, by dynamic programming over sets.

The units that are scheduled are the requests; or the single items, if requests may be split. For one machine of a pool
and a set S of units, the earliest end E(S) of a sequence of batches that keeps every deadline in S is the least, over
the last batch B, of max(E(S - B), last arrival in B) + seconds(B): an earlier end is never worse for what follows.
Sets that some machine can run are then combined, machine by machine. Every subset of every subset is looked at.

The leader of a batch is the member with which it is quickest, since a schedule that knows everything would choose it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from turnout.bounds.schedule import Batch, Instance
from turnout.core.events import Part

MAX_UNITS = 10
"""Requests, or items where they may be split, that are looked at: 59,049 steps for each pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """No schedule has fewer `misses`; `schedule` has so many."""

    misses: int
    schedule: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class _Block:
    """Units that make one batch on a pool, with its leader first."""

    parts: tuple[Part, ...]
    ready_s: float
    due_s: float
    took_s: float


Ends = dict[int, tuple[float, int]]
"""Set of units -> the earliest end of one machine that runs them all in time, and its last batch."""


def exact(instance: Instance) -> Optimum:
    """The optimum.

    Raises:
        ValueError: too many units, or a request that may be split, but not into all of its items.
    """
    units = _units(instance)
    wholes = _wholes(units)
    ends = [_ends(instance, units, pool) for pool in range(len(instance.replicas))]
    reached: dict[int, tuple[int, int]] = {0: (0, -1)}  # set -> (set before the last machine, that machine)
    layers = [reached]
    for pool in instance.machines:
        layer: dict[int, tuple[int, int]] = {}
        for before in layers[-1]:
            for more in ends[pool]:
                if not before & more:
                    layer.setdefault(before | more, (before, more))
        layers.append(layer)
    best = max(layers[-1], key=lambda run: (sum(run & whole == whole for whole in wholes), -run.bit_count()))
    misses = len(instance) - sum(best & whole == whole for whole in wholes)
    schedule: list[Batch] = []
    for machine in reversed(range(len(instance.machines))):
        best, own = layers[machine + 1][best]
        schedule += _batches(instance, units, ends[instance.machines[machine]], machine, own)
    return Optimum(misses=misses, schedule=tuple(schedule))


def _units(instance: Instance) -> list[Part]:
    """What is scheduled as a whole.

    Raises:
        ValueError: there is too much of it.
    """
    items = instance.items.tolist()
    if instance.max_parts > 1:
        if max(items, default=1) > instance.max_parts:
            raise ValueError(f"a request of {max(items)} items in at most {instance.max_parts} parts: not exact")
        units = [Part(rid, start, 1) for rid, n in enumerate(items) for start in range(n)]
    else:
        units = [Part(rid, 0, n) for rid, n in enumerate(items)]
    if len(units) > MAX_UNITS:
        raise ValueError(f"{len(units)} units are too many for the exact optimum; at most {MAX_UNITS}")
    return units


def _wholes(units: list[Part]) -> list[int]:
    """The set of units of each request."""
    wholes: dict[int, int] = {}
    for at, unit in enumerate(units):
        wholes[unit.rid] = wholes.get(unit.rid, 0) | 1 << at
    return list(wholes.values())


def _block(instance: Instance, units: list[Part], pool: int, chosen: int) -> _Block | None:
    """One batch of these units, or None if the pool or the rules do not allow it."""
    parts = [unit for at, unit in enumerate(units) if chosen >> at & 1]
    items = sum(part.items for part in parts)
    if items > instance.max_items[pool] or (not instance.merge and len({part.rid for part in parts}) > 1):
        return None
    took_s, lead = min((instance.took_s(pool, items, part.rid, part.start), i) for i, part in enumerate(parts))
    parts.insert(0, parts.pop(lead))
    ready_s = max(float(instance.at_s[part.rid]) for part in parts)
    due_s = min(float(instance.due_s[part.rid]) for part in parts)
    return _Block(tuple(parts), ready_s, due_s, took_s) if ready_s + took_s <= due_s else None


def _ends(instance: Instance, units: list[Part], pool: int) -> Ends:
    """Every set that one machine of the pool can run in time."""
    blocks = {
        chosen: block
        for chosen in range(1, 1 << len(units))
        if (block := _block(instance, units, pool, chosen)) is not None
    }
    ends: Ends = {0: (-inf, 0)}
    for run in range(1, 1 << len(units)):
        best = (inf, 0)
        last = run
        while last:
            block = blocks.get(last)
            if block is not None and run ^ last in ends:
                end_s = max(ends[run ^ last][0], block.ready_s) + block.took_s
                if end_s <= block.due_s:
                    best = min(best, (end_s, last))
            last = (last - 1) & run
        if best[0] < inf:
            ends[run] = best
    return ends


def _batches(instance: Instance, units: list[Part], ends: Ends, machine: int, run: int) -> list[Batch]:
    """The batches of one machine that runs this set."""
    found = []
    while run:
        last = ends[run][1]
        block = _block(instance, units, instance.machines[machine], last)
        assert block is not None, "it was made of blocks"
        start_s = max(ends[run ^ last][0], block.ready_s)
        found.append(Batch(machine=machine, start_s=start_s, parts=block.parts))
        run ^= last
    return found
