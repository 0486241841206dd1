"""A run as its log has it, cut in two: the part that is fitted to, and the later part that judges the fit.

Nothing is fitted here. The cut is in time, not at random: a fit is used on what comes after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from turnout import replay, telemetry
from turnout.core import events as ev
from turnout.core.uptime import Uptime
from turnout.errors import ArtefactError

FIT_SHARE = 0.7
"""Share of the requests, in order of arrival, that are for fitting."""

MOST_SIMULATED = 50_000
"""Requests of each part that are simulated: those around the cut. All batches are fitted to, and judged by."""

LEAST_REQUESTS = 100
"""Of a log: with fewer, the held-out part says nothing."""

Lives = ev.ReplicaUp | ev.ReplicaDown | ev.ReplicaStarting


class Batch(Struct, frozen=True, gc=False, kw_only=True):
    """One batch that finished at `at_s`, what it took, and the p99 that was predicted for it, transfer included."""

    at_s: float
    items: int
    service_s: float
    total_s: float
    p99_s: float


Batches = dict[tuple[str, str], list[Batch]]
"""Finished batches in order of time, by (pool, model)."""


class Part(Struct, frozen=True, kw_only=True):
    """One side of the cut: its batches; and for a simulation a head, arrivals, and replicas that come and go."""

    configured: ev.Configured
    arrivals: tuple[ev.Arrived, ...]
    faults: tuple[ev.ReplicaUp | ev.ReplicaDown | ev.ReplicaStarting, ...]
    batches: Batches


class Run(Struct, frozen=True, kw_only=True):
    """One recorded run of `requests`. `configured` is its head, with the policy that it ended with."""

    path: str
    configured: ev.Configured
    requests: int
    first_s: float
    split_s: float
    last_s: float
    fitting: Part
    held_out: Part
    truncated: bool


def read(log: Path, *, ignore_truncated_tail: bool = False) -> Run:
    """Read a run, of a folder with several the latest that has requests, and cut it.

    Raises:
        ArtefactError: as in `replay.record`, or the run has too few requests, no batch that finished, or a fleet or
            models that changed on the way.
    """
    recording = replay.record(log, ignore_truncated_tail=ignore_truncated_tail)
    first = Path(recording.path)
    paths = [first] if log.is_file() else _of_one_run(log, first)
    head, arrivals = recording.configured, recording.arrivals
    cut = int(FIT_SHARE * len(arrivals))
    begin, end = max(cut - MOST_SIMULATED, 0), cut + MOST_SIMULATED
    batches: Batches = {}
    lives: list[tuple[int, Lives]] = []
    up: dict[int, set[str]] = {}
    uptime, flying = Uptime(), dict[int, ev.Dispatch]()
    seen = 0
    for path, group in _groups(paths, ignore_truncated_tail=ignore_truncated_tail):
        event = group.event
        uptime.follow(event)
        flying.update((a.batch, a) for a in group.actions if isinstance(a, ev.Dispatch))
        if isinstance(event, ev.Arrived):
            if seen in {begin, cut}:
                up[seen] = {replica for names in uptime.up().values() for replica in names}
            seen += 1
        elif isinstance(event, ev.Configured):
            head = _same_fleet(head, event, path, group.line)
        elif isinstance(event, Lives):
            lives.append((seen, event))
        elif isinstance(event, ev.Finished) and event.batch in flying:
            dispatch = flying.pop(event.batch)
            key = uptime.pool_of(dispatch.replica), dispatch.model
            batches.setdefault(key, []).append(_batch(event, dispatch))
    _check(log, arrivals, batches)
    split_s = arrivals[cut].at_s

    def part(first: int, last: int, rows: Batches) -> Part:
        at_s = arrivals[first].at_s
        faults = _faults(head, at_s, up[first], [event for k, event in lives if first < k <= last])
        return Part(configured=replace(head, at_s=at_s), arrivals=arrivals[first:last], faults=faults, batches=rows)

    return Run(
        path=recording.path,
        configured=head,
        requests=len(arrivals),
        first_s=arrivals[0].at_s,
        split_s=split_s,
        last_s=arrivals[-1].at_s,
        fitting=part(begin, cut, {key: [b for b in row if b.at_s < split_s] for key, row in batches.items()}),
        held_out=part(cut, end, {key: [b for b in row if b.at_s >= split_s] for key, row in batches.items()}),
        truncated=ignore_truncated_tail and any(map(telemetry.truncated, paths)),
    )


def _of_one_run(folder: Path, first: Path) -> list[Path]:
    """The segments that begin with `first`; a run's share its name up to the number."""
    name = first.stem.rpartition("-")[0]
    return [path for path in telemetry.segments(folder) if path.stem.rpartition("-")[0] == name]


def _groups(paths: Sequence[Path], *, ignore_truncated_tail: bool) -> Iterator[tuple[Path, replay.Group]]:
    for path in paths:
        for group in replay.groups(path, ignore_truncated_tail=ignore_truncated_tail):
            yield path, group


def _same_fleet(head: ev.Configured, event: ev.Configured, path: Path, line: int) -> ev.Configured:
    """The head with the policy of `event`, which must be of the same machines and models."""
    if (event.fleet, event.models) != (head.fleet, head.models):
        what = "fleet" if event.fleet != head.fleet else "models"
        raise ArtefactError(
            f"{path}, line {line}: the {what} changed here, and a fit is for one configuration; "
            "give the segments of one alone, such as the file that begins with the change"
        )
    return replace(head, policy=event.policy, params=event.params)


def _batch(event: ev.Finished, dispatch: ev.Dispatch) -> Batch:
    return Batch(
        at_s=event.at_s,
        items=sum(p.items for p in dispatch.parts),
        service_s=event.service_s,
        total_s=event.service_s + event.transfer_s,
        p99_s=dispatch.p99_s,
    )


def _check(log: Path, arrivals: Sequence[ev.Arrived], batches: Batches) -> None:
    """Say what a log lacks that has too little in it to learn from."""
    if not batches:
        raise ArtefactError(f"{log} has no batch that finished, so there is nothing to learn from it")
    if len(arrivals) < LEAST_REQUESTS:
        raise ArtefactError(
            f"{log} has {len(arrivals)} requests; it takes {LEAST_REQUESTS} to fit to some and to judge by others"
        )


def _faults(head: ev.Configured, at_s: float, up: set[str], lives: Sequence[Lives]) -> tuple[Lives, ...]:
    """What a simulation that starts with the head's replicas needs, to have those that were `up` at `at_s`."""
    started = [f"{pool.name}-{i}" for pool in head.fleet.pools for i in range(pool.replicas)]
    missing = [ev.ReplicaDown(at_s=at_s, replica=name, why="was not up") for name in started if name not in up]
    return (*missing, *lives)
