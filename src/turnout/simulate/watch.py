"""Watches one run for what a summary leaves out: how it went over time, by size of request, and by pool.

It sees the events and actions that a log would have, and changes nothing. What it keeps of a request is gone with its
answer; beyond that it holds one number per answer (its latency) and one row per distinct size.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from turnout.core import events as ev
from turnout.core.events import Action, Event
from turnout.core.fleet import Fleet
from turnout.core.latency import quantile
from turnout.core.uptime import Uptime
from turnout.simulate.artefact import QUANTILES, Decile, Latencies, Timeline

SPANS = 120
"""Of a timeline."""


class _Open(Struct):
    """A request that is not answered. `waits` is that none of it is on a replica."""

    span: int
    at_s: float
    deadline_s: float
    items: int
    waits: bool = True


class _Span(Struct):
    """Counts of one span of the timeline."""

    arrived: int = 0
    met: int = 0
    waiting: int = 0


class _Size(Struct):
    """Counts of one size of request."""

    requests: int = 0
    rejects: int = 0
    met: int = 0


class Watch:
    """Give `observe` to a simulation, then ask for what it saw."""

    def __init__(
        self,
        fleet: Fleet,
        duration_s: float,
        measured: Mapping[tuple[str, str], int],
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """`duration_s` is about how long the run is, `measured` the largest batch measured by (pool, model).

        `progress` is told the share that is over, whenever a span is.
        """
        self._fleet = fleet
        self._width_s = duration_s / SPANS if duration_s > 0.0 else 1.0
        self._measured = measured
        self._progress = progress or (lambda _share: None)
        self._uptime = Uptime()
        self._open: dict[int, _Open] = {}
        self._flying: dict[int, ev.Dispatch] = {}
        self._spans: list[_Span] = []
        self._busy_s: dict[str, list[float]] = {pool.name: [] for pool in fleet.pools}
        self._sizes: dict[int, _Size] = {}
        self._latencies_s: dict[str, array[float]] = {}
        self._waiting = 0
        self.beyond_profile = 0

    def observe(self, event: Event, actions: Sequence[Action]) -> None:
        """Take one event and what the router did on it."""
        span = self._at(event.at_s)
        pool = ""
        if isinstance(event, ev.Arrived):
            self._arrive(event)
        elif isinstance(event, ev.Finished):
            dispatch = self._flying.pop(event.batch, None)
            if dispatch is not None:
                pool = self._uptime.pool_of(dispatch.replica)
                self._work(pool, event.at_s - event.service_s, event.at_s)
        elif not isinstance(event, ev.Decide):
            self._uptime.follow(event)
        for action in actions:
            if isinstance(action, ev.Dispatch):
                self._dispatch(action)
            elif isinstance(action, ev.Reply):
                self._answer(action.rid, event.at_s, pool)
            elif isinstance(action, ev.Reject):
                self._answer(action.rid, event.at_s, None)
        span.waiting = max(span.waiting, self._waiting)

    def _at(self, at_s: float) -> _Span:
        """The span of a moment; spans between, in which nothing happened, come to be on the way."""
        number = int(at_s / self._width_s)
        while len(self._spans) <= number:
            self._spans.append(_Span(waiting=self._waiting))
            self._progress(min(len(self._spans) / SPANS, 1.0))
        return self._spans[number]

    def _arrive(self, event: ev.Arrived) -> None:
        number = int(event.at_s / self._width_s)
        self._spans[number].arrived += 1
        self._sizes.setdefault(event.items, _Size()).requests += 1
        self._open[event.rid] = _Open(number, event.at_s, event.deadline_s, event.items)
        self._waiting += 1

    def _dispatch(self, action: ev.Dispatch) -> None:
        self._flying[action.batch] = action
        items = 0
        for part in action.parts:
            items += part.items
            request = self._open.get(part.rid)
            if request is not None and request.waits:
                request.waits = False
                self._waiting -= 1
        largest = self._measured.get((self._uptime.pool_of(action.replica), action.model))
        self.beyond_profile += largest is not None and items > largest

    def _answer(self, rid: int, at_s: float, pool: str | None) -> None:
        """A reply, its last batch from `pool`; or a reject, where that is None."""
        request = self._open.pop(rid, None)
        if request is None:
            return
        self._waiting -= request.waits
        size = self._sizes[request.items]
        if pool is None:
            size.rejects += 1
            return
        self._latencies_s.setdefault(pool, array("d")).append(at_s - request.at_s)
        if at_s <= request.deadline_s:
            size.met += 1
            self._spans[request.span].met += 1

    def _work(self, pool: str, from_s: float, until_s: float) -> None:
        """Spread a batch's busy seconds over the spans that it lay in."""
        spans = self._busy_s.setdefault(pool, [])
        first, last = int(max(from_s, 0.0) / self._width_s), int(until_s / self._width_s)
        spans.extend([0.0] * (last + 1 - len(spans)))
        for number in range(first, last + 1):
            begin_s = number * self._width_s
            spans[number] += max(min(until_s, begin_s + self._width_s) - max(from_s, begin_s), 0.0)

    # ---- what it saw -------------------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """The run over time."""
        count = len(self._spans)
        replicas = {pool.name: max(pool.replicas, 1) for pool in self._fleet.pools}
        return Timeline(
            width_s=self._width_s,
            arrivals_per_s=tuple(span.arrived / self._width_s for span in self._spans),
            attainment=tuple(span.met / span.arrived if span.arrived else None for span in self._spans),
            waiting=tuple(span.waiting for span in self._spans),
            utilisation={
                pool: tuple(
                    (busy_s[i] if i < len(busy_s) else 0.0) / (replicas[pool] * self._width_s) for i in range(count)
                )
                for pool, busy_s in self._busy_s.items()
                if pool in replicas
            },
        )

    def deciles(self) -> tuple[Decile, ...]:
        """The requests by size, smallest first, in up to ten groups; equal sizes are in the same one."""
        total = sum(size.requests for size in self._sizes.values())
        groups: list[list[int]] = []
        seen, edge = 0, -1
        for items in sorted(self._sizes):
            number = int(10 * seen / total)
            if number != edge:
                groups.append([])
                edge = number
            groups[-1].append(items)
            seen += self._sizes[items].requests
        return tuple(self._decile(group) for group in groups)

    def _decile(self, group: Sequence[int]) -> Decile:
        rows = [self._sizes[items] for items in group]
        return Decile(
            low=group[0],
            high=group[-1],
            requests=sum(row.requests for row in rows),
            rejects=sum(row.rejects for row in rows),
            met=sum(row.met for row in rows),
        )

    def latencies(self) -> tuple[Latencies, ...]:
        """Quantiles of all answered requests, then by pool; none where nothing was answered."""
        by_pool = {name: sorted(seconds) for name, seconds in self._latencies_s.items()}
        every = sorted(second for seconds in by_pool.values() for second in seconds)
        names = ["", *(pool.name for pool in self._fleet.pools)]
        return tuple(
            Latencies(pool=name, requests=len(rows), seconds=tuple(_quantile(rows, level) for level in QUANTILES))
            for name in names
            if (rows := every if not name else by_pool.get(name, []))
        )


def _quantile(ordered: Sequence[float], level: float) -> float:
    return ordered[0] if level == 0.0 else quantile(ordered, level)
