"""A trace as the events of its arrivals, one at a time, so that memory grows with the queue and not with the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from turnout.core import events as ev
from turnout.core.trace import Trace
from turnout.errors import ConfigError

CHUNK = 4096
"""Requests that are turned from columns into Python's numbers at once."""


def arrivals(
    trace: Trace,
    slo_s: Mapping[str, float],
    max_parts: int | Mapping[str, int] = 1,
    priority: Mapping[str, int] | None = None,
) -> Iterator[ev.Arrived]:
    """The requests of `trace` in order; rid is the row.

    A request is due when the trace says, else by `slo_s`, seconds by model. It may be split over `max_parts` batches;
    `priority` by model is 0 where nothing is said.

    Raises:
        ConfigError: the trace has a model, without deadlines of its own, that is not in `slo_s`.
    """
    absent = [name for name in trace.models if name not in slo_s]
    if absent and trace.deadline_s is None:
        raise ConfigError(f"the trace has requests of {', '.join(absent)}, and there are: {', '.join(slo_s)}")
    return _events(trace, slo_s, max_parts, priority or {})


def _events(
    trace: Trace, slo_s: Mapping[str, float], max_parts: int | Mapping[str, int], priority: Mapping[str, int]
) -> Iterator[ev.Arrived]:
    names = trace.models
    due_s = [slo_s.get(name, 0.0) for name in names]
    parts = [max_parts if isinstance(max_parts, int) else max_parts.get(name, 1) for name in names]
    first = [priority.get(name, 0) for name in names]
    for begin in range(0, len(trace), CHUNK):
        rows = slice(begin, begin + CHUNK)
        at_s, items, model = trace.at_s[rows].tolist(), trace.items[rows].tolist(), trace.model[rows].tolist()
        own_s = None if trace.deadline_s is None else trace.deadline_s[rows].tolist()
        for i, now_s in enumerate(at_s):
            m = model[i]
            yield ev.Arrived(
                at_s=now_s,
                rid=begin + i,
                model=names[m],
                items=items[i],
                deadline_s=now_s + (due_s[m] if own_s is None else own_s[i]),
                priority=first[m],
                max_parts=parts[m],
            )
