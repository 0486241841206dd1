"""A log that `turnout serve` wrote, as `regret` takes any log: requests with their fates, and what served them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import nan
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from turnout import replay, simulate, telemetry
from turnout.core import events as ev
from turnout.core.fleet import Limits
from turnout.core.uptime import Uptime
from turnout.core.workload import Slo
from turnout.errors import ArtefactError
from turnout.regret.own import MAX_WAITING, Objective, Own
from turnout.regret.traffic import Traffic
from turnout.traces.access import AccessLog
from turnout.traces.access.log import NONE


def is_turnout_log(path: Path) -> bool:
    """Whether `path` is a folder, or a file that begins as the event log does."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            first = file.readline(4096)
    except OSError:
        return False
    return first.startswith(b"{") and b'"type":"configured"' in first


@dataclass(kw_only=True)
class _Fates:
    """What became of each request, by rid."""

    uptime: Uptime = field(default_factory=Uptime)
    answered_s: dict[int, float] = field(default_factory=dict)
    rejected_s: dict[int, float] = field(default_factory=dict)
    pool: dict[int, str] = field(default_factory=dict)

    def feed(self, group: replay.Group) -> None:
        """Follow one event and its actions."""
        self.uptime.follow(group.event)
        for action in group.actions:
            if isinstance(action, ev.Dispatch):
                where = self.uptime.pool_of(action.replica)
                for part in action.parts:
                    self.pool.setdefault(part.rid, where)
            elif isinstance(action, ev.Reply):
                self.answered_s[action.rid] = group.event.at_s
            elif isinstance(action, ev.Reject):
                self.rejected_s[action.rid] = group.event.at_s


def read(log: Path, objective: Objective, *, ignore_truncated_tail: bool = False) -> tuple[Traffic, Own]:
    """The latest run with requests in `log`, a segment or a folder of them.

    Raises:
        ArtefactError: the log is damaged or cut off (see `replay.record`), or nothing arrived in it.
    """
    recording = replay.record(log, ignore_truncated_tail=ignore_truncated_tail)
    first = Path(recording.path)
    run = first.stem.rpartition("-")[0]
    paths = [p for p in telemetry.segments(log) if p.stem.rpartition("-")[0] == run] if log.is_dir() else [first]
    fates = _Fates()
    for path in paths:
        for group in replay.groups(path, ignore_truncated_tail=ignore_truncated_tail):
            fates.feed(group)
    table = _table(recording, fates, first.name)
    head = recording.configured
    deadline_s = np.array([a.deadline_s - a.at_s for a in recording.arrivals])
    if objective.deadline_s is not None:
        deadline_s = np.full(len(deadline_s), objective.deadline_s)
    if not (deadline_s > 0.0).all():
        raise ArtefactError(f"{first}: request {int(np.argmin(deadline_s))} was due before it arrived; give --slo-ms")
    models = tuple(
        replace(w, slo=Slo(deadline_s=objective.deadline_s or w.slo.deadline_s,
                           attainment=objective.attainment or w.slo.attainment))
        for w in head.models
    )  # fmt: skip
    lost = Counter(type(event).__name__ for event in recording.faults)["ReplicaDown"]
    own = Own(
        head=replace(head, models=models, limits=Limits(max_waiting=MAX_WAITING)),
        draws={key: simulate.from_model(model) for key, model in recording.observed.items()},
        max_parts=max(a.max_parts for a in recording.arrivals),
        pool_of=table.backends,
        service_times=f"recorded in {first.name} ({head.origin or 'of unknown origin'})",
        as_recorded=True,
        notes=(f"{lost} losses of replicas are in the log, and none in what is modelled",) if lost else (),
    )
    return Traffic(log=table, deadline_s=deadline_s, max_parts=own.max_parts), own


def _table(recording: replay.Recording, fates: _Fates, source: str) -> AccessLog:
    """The requests as columns."""
    arrivals = recording.arrivals
    names = tuple(w.name for w in recording.configured.models)
    pools = tuple(pool.name for pool in recording.configured.fleet.pools)
    at_s = np.array([a.at_s for a in arrivals])
    ends_s = [fates.answered_s.get(a.rid, fates.rejected_s.get(a.rid, nan)) for a in arrivals]
    where = [fates.pool.get(a.rid, "") for a in arrivals]
    return AccessLog(
        source=source,
        format="Turnout's event log",
        epoch_s=0.0,
        at_s=at_s - at_s[0],
        items=np.array([a.items for a in arrivals], dtype=np.int64),
        latency_s=np.array(ends_s) - at_s,
        ok=np.array([a.rid in fates.answered_s for a in arrivals]),
        backend=np.array([pools.index(name) if name in pools else NONE for name in where], dtype=np.int64),
        backends=pools,
        service_s=None,
        model=np.array([names.index(a.model) for a in arrivals], dtype=np.int64),
        models=names,
        time_is="start",
        coarse=False,
        columns={},
        skipped=0,
        notes=(),
    )
