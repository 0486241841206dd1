"""Better a schedule in which requests run whole and alone: by large neighbourhood search (Shaw, CP 1998).

Each round takes out what runs in a stretch of time on a few machines, around a request that is missed, and puts it back
in another order together with what is missed near by, each request where it costs least. The outcome is kept if fewer
are missed, or as many with less of the machines' time at the fluid bound's prices; at first now and then also if it is
a little worse (simulated annealing). Sequences of a machine are held with the earliest and the latest start of each
request that its neighbours and deadlines allow, so that a place is tried in constant time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from math import exp, inf
from random import Random

from turnout.bounds.fluid import costs, fluid
from turnout.bounds.schedule import Batch, Instance
from turnout.core.events import Part

HEAT = 0.03
"""How much worse, in misses, an outcome may be that is kept every so often; falls to 0 over the rounds."""

LOAD = 0.15
"""What the cost of a mean request counts next to a miss."""

MACHINES = (2, 6)
"""Machines in a round: from, to."""


@dataclass(slots=True)
class _Line:
    """One machine: its requests in order, with the earliest and latest start of each."""

    price: float
    took_s: list[float]
    rids: list[int] = field(default_factory=list)
    early_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)

    def copy(self) -> _Line:
        return _Line(self.price, self.took_s, self.rids[:], self.early_s[:], self.late_s[:])


@dataclass(slots=True)
class _Spot:
    """Where a request fits: before the one at `index` of `machine`, from `start_s`."""

    cost: float
    machine: int
    index: int
    start_s: float


class _Lines:
    """All machines, and the requests' times."""

    def __init__(self, instance: Instance, prices: list[float], took_s: list[list[float]]) -> None:
        self.at_s: list[float] = instance.at_s.tolist()
        self.due_s: list[float] = instance.due_s.tolist()
        self.lines = [_Line(prices[pool], took_s[pool]) for pool in instance.machines]
        self.push = self.wait = 1.0  # what delaying others, and waiting, count next to busy seconds

    def spot(self, rid: int) -> _Spot | None:
        """The place that costs least, or None if there is none in time."""
        best: _Spot | None = None
        for machine, line in enumerate(self.lines):
            best = self._spot_on(machine, line, rid, best)
        return best

    def _spot_on(self, machine: int, line: _Line, rid: int, best: _Spot | None) -> _Spot | None:
        at_s, needs_s = self.at_s[rid], line.took_s[rid]
        latest_s = self.due_s[rid] - needs_s
        if latest_s < at_s:
            return best
        early_s, late_s = line.early_s, line.late_s
        index, count = bisect_right(early_s, at_s), len(early_s)
        while index and late_s[index - 1] >= at_s + needs_s:
            index -= 1
        while True:
            start_s = max(at_s, early_s[index - 1] + line.took_s[line.rids[index - 1]]) if index else at_s
            if start_s > latest_s:
                return best
            if index == count or start_s + needs_s <= late_s[index]:
                pushed_s = max(start_s + needs_s - early_s[index], 0.0) if index < count else 0.0
                cost = line.price * (needs_s + self.push * pushed_s + self.wait * (start_s - at_s))
                if best is None or cost < best.cost:
                    best = _Spot(cost, machine, index, start_s)
            if index == count:
                return best
            index += 1

    def insert(self, rid: int, spot: _Spot) -> None:
        """Put a request where it fits."""
        line = self.lines[spot.machine]
        line.rids.insert(spot.index, rid)
        line.early_s.insert(spot.index, -inf)
        line.late_s.insert(spot.index, inf)
        self._update(line, spot.index, spot.index)

    def take_out(self, machine: int, from_s: float, to_s: float) -> list[int]:
        """Remove what starts between two times at the earliest; returns it."""
        line = self.lines[machine]
        first, last = bisect_left(line.early_s, from_s), bisect_right(line.early_s, to_s)
        taken = line.rids[first:last]
        del line.rids[first:last], line.early_s[first:last], line.late_s[first:last]
        if taken and line.rids:
            self._update(line, first, first - 1)
        return taken

    def _update(self, line: _Line, first: int, last: int) -> None:
        """Earliest starts from `first` on and latest starts from `last` back, as far as they change."""
        rids, early_s, late_s, took_s = line.rids, line.early_s, line.late_s, line.took_s
        free_s = early_s[first - 1] + took_s[rids[first - 1]] if first else -inf
        for index in range(first, len(rids)):
            start_s = max(self.at_s[rids[index]], free_s)
            if start_s == early_s[index]:
                break
            early_s[index] = start_s
            free_s = start_s + took_s[rids[index]]
        next_s = late_s[last + 1] if last + 1 < len(rids) else inf
        for index in range(last, -1, -1):
            start_s = min(self.due_s[rids[index]], next_s) - took_s[rids[index]]
            if start_s == late_s[index]:
                break
            late_s[index] = next_s = start_s


@dataclass(slots=True)
class _Search:
    """The state of the search: `missed` in order, `worth` of each request, and their mean."""

    lines: _Lines
    random: Random
    missed: list[int]
    worth: list[float]
    mean: float
    patience_s: float


def repair(instance: Instance, schedule: list[Batch] | tuple[Batch, ...], rounds: int, seed: int = 0) -> list[Batch]:
    """The best schedule met in so many rounds from this one; exact from the seed.

    Raises:
        ValueError: requests may be merged or split.
    """
    if instance.merge or instance.max_parts > 1:
        raise ValueError("only schedules of whole requests that run alone are repaired")
    work_s = instance.alone_s()
    prices = fluid(work_s, instance.replicas).price
    worth = costs(work_s, prices).min(axis=1).tolist()
    lines = _Lines(instance, prices.tolist(), work_s.T.tolist())
    served = _take_in(lines, schedule)
    finite = [w for w in worth if w < inf]
    search = _Search(
        lines=lines,
        random=Random(seed),
        missed=[rid for rid in range(len(instance)) if rid not in served],
        worth=worth,
        mean=max(sum(finite) / max(len(finite), 1), 1e-12),
        patience_s=float(instance.deadline_s.mean()),
    )
    best, fewest = [line.copy() for line in lines.lines], len(search.missed)
    for number in range(rounds):
        if not search.missed:
            break
        _round(search, HEAT * (1.0 - number / rounds))
        if len(search.missed) < fewest:
            best, fewest = [line.copy() for line in lines.lines], len(search.missed)
    sizes = instance.items.tolist()
    return [
        Batch(machine=machine, start_s=start_s, parts=(Part(rid, 0, sizes[rid]),))
        for machine, line in enumerate(best)
        for rid, start_s in zip(line.rids, line.early_s, strict=True)
    ]


def _take_in(lines: _Lines, schedule: list[Batch] | tuple[Batch, ...]) -> set[int]:
    """Load a schedule, leaving out what would be late; returns what it serves."""
    served = set()
    for batch in sorted(schedule, key=lambda batch: batch.start_s):
        line, rid = lines.lines[batch.machine], batch.parts[0].rid
        start_s = max(lines.at_s[rid], line.early_s[-1] + line.took_s[line.rids[-1]] if line.rids else -inf)
        if start_s + line.took_s[rid] <= lines.due_s[rid]:
            lines.insert(rid, _Spot(0.0, batch.machine, len(line.rids), start_s))
            served.add(rid)
    return served


def _round(search: _Search, heat: float) -> None:
    """Take out, put back in another order, and undo it if that was no good."""
    lines, random = search.lines, search.random
    around_s = lines.at_s[random.choice(search.missed)] + search.patience_s * random.random()
    from_s = around_s - search.patience_s * random.random()
    to_s = around_s + search.patience_s * random.random()
    count = len(lines.lines)
    chosen = random.sample(range(count), min(random.randint(*MACHINES), count))
    saved = {machine: lines.lines[machine].copy() for machine in chosen}
    taken, load = [], 0.0
    for machine in chosen:
        line = lines.lines[machine]
        rids = lines.take_out(machine, from_s, to_s)
        load -= line.price * sum([line.took_s[rid] for rid in rids])
        taken += rids
    first = bisect_left(search.missed, bisect_left(lines.at_s, from_s - search.patience_s))
    last = bisect_left(search.missed, bisect_left(lines.at_s, to_s))
    near = search.missed[first:last]
    left, added = _put_back(search, taken + near, len(near) + (random.random() < heat * 10.0), saved)
    worse = len(left) - len(near) + LOAD * (load + added) / search.mean
    if added < inf and (worse <= 0.0 or (heat > 0.0 and random.random() < exp(-worse / heat))):
        search.missed[first:last] = sorted(left)
        search.missed.sort()
        return
    for machine, line in saved.items():
        lines.lines[machine] = line


def _put_back(search: _Search, rids: list[int], most: int, saved: dict[int, _Line]) -> tuple[list[int], float]:
    """Insert each where it costs least; returns what found no place, and the load added: infinite if over `most`."""
    lines, random = search.lines, search.random
    chance = random.random()
    if chance < 0.6:
        jitter_s = 0.6 * search.patience_s * random.random()
        rids.sort(key=lambda rid: lines.due_s[rid] + jitter_s * random.random())
    elif chance < 0.8:
        random.shuffle(rids)
    else:
        rids.sort(key=lambda rid: search.worth[rid] * random.uniform(0.7, 1.3))
    lines.push, lines.wait = random.choice((0.0, 0.5, 1.0, 2.0, 4.0)), random.choice((0.0, 0.3, 1.0))
    left, load = [], 0.0
    for rid in rids:
        spot = lines.spot(rid)
        if spot is None:
            left.append(rid)
            if len(left) > most:
                return left, inf
            continue
        if spot.machine not in saved:
            saved[spot.machine] = lines.lines[spot.machine].copy()
        lines.insert(rid, spot)
        line = lines.lines[spot.machine]
        load += line.price * line.took_s[rid]
    return left, load
