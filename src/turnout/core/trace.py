"""What arrived, as columns: the traffic that is simulated, bounded and billed, whoever recorded or drew it.

A trace knows nothing of fleets or outcomes. Rules: times ascend, every request has at least one item, and all columns
have the same length; `check` says which row breaks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """`n` requests in order of arrival. `source` says where they come from, for whoever is shown a result.

    `at_s` (n,) seconds since the trace's start, ascending. `items` (n,) at least 1. `model` (n,) index into `models`;
    all 0 where there is one. `deadline_s` (n,) seconds after arrival, or None where each model's SLO says it.
    """

    at_s: Floats
    items: Ints
    model: Ints
    models: tuple[str, ...]
    source: str
    deadline_s: Floats | None = None

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.at_s)

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.at_s[-1] - self.at_s[0]) if len(self) else 0.0

    @property
    def rate_per_s(self) -> float:
        """Mean requests per second; 0 if all came at once."""
        return (len(self) - 1) / self.duration_s if self.duration_s > 0.0 else 0.0

    def at_rate(self, rate_per_s: float) -> Trace:
        """The same requests with all gaps scaled, so that the mean rate is `rate_per_s`; deadlines stay."""
        factor = self.rate_per_s / rate_per_s
        return Trace(
            at_s=(self.at_s - self.at_s[0]) * factor,
            items=self.items,
            model=self.model,
            models=self.models,
            source=f"{self.source}, at {rate_per_s:g} requests/s",
            deadline_s=self.deadline_s,
        )

    def part(self, first: int, last: int) -> Trace:
        """Requests `first` to `last` (not included), with the first at second 0."""
        chosen = slice(first, last)
        return Trace(
            at_s=self.at_s[chosen] - self.at_s[first],
            items=self.items[chosen],
            model=self.model[chosen],
            models=self.models,
            source=self.source,
            deadline_s=None if self.deadline_s is None else self.deadline_s[chosen],
        )


def make(at_s: Any, items: Any, source: str, model: str = "model", deadline_s: Any = None) -> Trace:
    """A trace of one model from any sequences.

    Raises:
        ValueError: what `check` finds.
    """
    times = np.asarray(at_s, dtype=np.float64)
    trace = Trace(
        at_s=times,
        items=np.asarray(items, dtype=np.int64),
        model=np.zeros(len(times), dtype=np.int64),
        models=(model,),
        source=source,
        deadline_s=None if deadline_s is None else np.asarray(deadline_s, dtype=np.float64),
    )
    check(trace)
    return trace


def check(trace: Trace) -> None:
    """Verify the rules of a trace.

    Raises:
        ValueError: columns of different lengths, a time that goes back or is not finite, a request without items, or a
            deadline that is not positive; it names the row (from 0).
    """
    n = len(trace.at_s)
    for name in ("items", "model", "deadline_s"):
        column = getattr(trace, name)
        if column is not None and len(column) != n:
            msg = f"{len(column)} {name} for {n} arrivals"
            raise ValueError(msg)
    wrong = {
        "a time that is not finite": ~np.isfinite(trace.at_s),
        "an arrival before the one above it": np.concatenate([[False], np.diff(trace.at_s) < 0.0]) if n else None,
        "no items": trace.items < 1,
        "an unknown model": (trace.model < 0) | (trace.model >= len(trace.models)),
        "a deadline that is not positive": None if trace.deadline_s is None else ~(trace.deadline_s > 0.0),
    }
    for what, rows in wrong.items():
        if rows is not None and rows.any():
            msg = f"row {int(np.argmax(rows))} has {what}"
            raise ValueError(msg)
