"""The requests of a log as a simulation takes them, and the part of a long log that is simulated.

A log of any length is measured whole; of more than `MOST_ROWS` requests only the busiest contiguous window is
simulated, since that is what a fleet is sized for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from turnout.core import events as ev
from turnout.core.latency import quantile
from turnout.core.trace import Trace
from turnout.core.workload import Workload
from turnout.traces.access import AccessLog
from turnout.traces.access.log import Bools, Floats

MOST_ROWS = 20_000
"""Requests that are simulated."""

STEP_ROWS = 500
"""Windows begin at multiples of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """`n` requests, each due `deadline_s` (n,) seconds after it arrived."""

    log: AccessLog
    deadline_s: Floats
    max_parts: int

    @property
    def trace(self) -> Trace:
        """The requests without their fates."""
        log = self.log
        return Trace(
            at_s=log.at_s,
            items=log.items,
            model=log.model,
            models=log.models,
            source=log.source,
            deadline_s=self.deadline_s,
        )

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.log)

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.log.at_s[-1] - self.log.at_s[0])

    @property
    def met(self) -> Bools:
        """Which requests were answered in time, as observed."""
        late = np.where(np.isnan(self.log.latency_s), np.inf, self.log.latency_s) > self.deadline_s
        return self.log.ok & ~late

    def part(self, first: int, last: int) -> Traffic:
        """Rows `first` to `last` - 1."""
        return Traffic(log=self.log.part(first, last), deadline_s=self.deadline_s[first:last], max_parts=self.max_parts)

    def arrivals(self, chosen: Bools | None = None) -> Iterator[ev.Arrived]:
        """The requests as events; rid is the row. With `chosen` (n,) only those."""
        log = self.log
        columns = zip(log.at_s.tolist(), log.items.tolist(), log.model.tolist(), self.deadline_s.tolist(), strict=True)
        for rid, (at_s, items, model, deadline_s) in enumerate(columns):
            if chosen is None or chosen[rid]:
                yield ev.Arrived(
                    at_s=at_s,
                    rid=rid,
                    model=log.models[model],
                    items=items,
                    deadline_s=at_s + deadline_s,
                    max_parts=self.max_parts,
                )

    def observed(self, level: float) -> float | None:
        """A quantile of the latency of answered requests; None if there is none."""
        answered = np.sort(self.log.latency_s[self.log.ok & ~np.isnan(self.log.latency_s)])
        return quantile(answered.tolist(), level) if len(answered) else None


def of(log: AccessLog, workloads: Sequence[Workload], max_parts: int) -> Traffic:
    """The log's requests, each due by its model's objective; `workloads` are in the order of the log's models."""
    deadlines_s = np.array([w.slo.deadline_s for w in workloads])
    return Traffic(log=log, deadline_s=deadlines_s[log.model], max_parts=max_parts)


def busiest(traffic: Traffic, rows: int = MOST_ROWS) -> tuple[int, int]:
    """First and last + 1 of the `rows` contiguous requests with most items per second; all, if there are no more."""
    n = len(traffic)
    if n <= rows:
        return 0, n
    total = np.concatenate([[0], np.cumsum(traffic.log.items)])
    first = np.unique([*range(0, n - rows, STEP_ROWS), n - rows])
    spans_s = np.maximum(traffic.log.at_s[first + rows - 1] - traffic.log.at_s[first], 1e-9)
    best = int(first[np.argmax((total[first + rows] - total[first]) / spans_s)])
    return best, best + rows
