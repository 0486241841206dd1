"""A recorded log through a fresh router: proves identical actions, or asks what another fleet would have made of it.

`verify` feeds the events alone to a router that has seen nothing else, and compares digests of what it did with
digests of what was recorded; each segment starts from its own head, so the snapshots are proven with it.
`what_if` takes the arrivals, and the replicas that came and went, to a simulation with the same router: what comes
out is modelled, from service times drawn from those that this very log recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnout import telemetry
from turnout.core import events as ev
from turnout.core.account import Account, Summary
from turnout.core.events import Action, Event
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import LatencyModel, bucket
from turnout.core.router import LoadPolicy, Router
from turnout.core.uptime import Uptime
from turnout.errors import ArtefactError

Simulate = Callable[
    [ev.Configured, Sequence[ev.Arrived], Sequence[Event], Mapping[tuple[str, str], LatencyModel]], Summary
]
"""Runs arrivals and faults on a fleet, with realised times drawn from a model by (pool, model)."""

MAX_REPLICAS = 1000
"""Of one pool in a what-if: more is a slip of the finger."""

_ENCODER = msgspec.json.Encoder()


class Difference(Struct, frozen=True, kw_only=True):
    """The first event on which the fresh router did something else. Actions are as in the log, in JSON."""

    path: str
    line: int
    event: str
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]


class Verification(Struct, frozen=True, kw_only=True):
    """The outcome of `verify`; `identical` is that the two digests agree."""

    segments: int
    events: int
    actions: int
    identical: bool
    recorded_digest: str
    replayed_digest: str
    difference: Difference | None = None


class Group(Struct, frozen=True, kw_only=True):
    """One event, the line it stands on, and the actions recorded after it."""

    line: int
    event: Event
    actions: tuple[Action, ...]


def verify(log: Path, load_policy: LoadPolicy, *, ignore_truncated_tail: bool = False) -> Verification:
    """Replay every segment of `log` (a file or a folder) through a fresh router each.

    Raises:
        ArtefactError: the log is missing, empty, damaged, or cut off; with `ignore_truncated_tail` the last event,
            whose actions may be incomplete, is left out instead.
    """
    paths = _segments(log)
    replayed, recorded = blake2b(digest_size=16), blake2b(digest_size=16)
    events = actions = 0
    for path in paths:  # first all that the routers do, from the events alone
        router = Router(load_policy)
        for group in groups(path, ignore_truncated_tail=ignore_truncated_tail):
            events += 1
            _digest(replayed, events, _handle(router, group, path))
    events = 0
    for path in paths:  # only now what was recorded
        for group in groups(path, ignore_truncated_tail=ignore_truncated_tail):
            events += 1
            actions += len(group.actions)
            _digest(recorded, events, group.actions)
    identical = replayed.digest() == recorded.digest()
    return Verification(
        segments=len(paths),
        events=events,
        actions=actions,
        identical=identical,
        recorded_digest=recorded.hexdigest(),
        replayed_digest=replayed.hexdigest(),
        difference=None if identical else _first_difference(paths, load_policy, ignore_truncated_tail),
    )


def groups(path: Path, *, ignore_truncated_tail: bool = False) -> Iterator[Group]:
    """The segment as events with their actions; of one that is cut off, and may be, the last event is left out."""
    current: tuple[int, Event] | None = None
    actions: list[Action] = []
    for line, record in telemetry.read_log(path, ignore_truncated_tail=ignore_truncated_tail):
        if isinstance(record, Event):
            if current is not None:
                yield Group(line=current[0], event=current[1], actions=tuple(actions))
            current, actions = (line, record), []
        else:
            actions.append(record)
    if current is not None and not telemetry.truncated(path):
        yield Group(line=current[0], event=current[1], actions=tuple(actions))


def _segments(log: Path) -> list[Path]:
    paths = telemetry.segments(log) if log.is_dir() else [log]
    if not paths:
        msg = f"{log} has no log segments in it; `turnout serve` writes them as *{telemetry.SUFFIX}"
        raise ArtefactError(msg)
    return paths


def _handle(router: Router, group: Group, path: Path) -> list[Action]:
    """Deliver one event; a log whose events contradict each other breaks an invariant of the router's."""
    try:
        return router.handle(group.event)
    except (AssertionError, KeyError) as error:
        said = f"{path}, line {group.line}: no router can have seen this event here: {error}"
        raise ArtefactError(f"{said}; the log was edited, or put together from several") from error


def _digest(state: Any, number: int, actions: Iterable[Action]) -> None:  # hashlib has no public type
    """Add one event's actions; its number keeps actions from moving between events unseen."""
    state.update(number.to_bytes(8, "little"))
    for action in actions:
        state.update(_ENCODER.encode(action))


def _first_difference(
    paths: Sequence[Path],
    load_policy: LoadPolicy,
    ignore_truncated_tail: bool,  # noqa: FBT001
) -> Difference | None:
    for path in paths:
        router = Router(load_policy)
        for group in groups(path, ignore_truncated_tail=ignore_truncated_tail):
            did = tuple(_handle(router, group, path))
            if did != group.actions:
                return Difference(
                    path=str(path),
                    line=group.line,
                    event=_text(group.event),
                    recorded=tuple(map(_text, group.actions)),
                    replayed=tuple(map(_text, did)),
                )
    return None


def _text(record: Event | Action) -> str:
    return _ENCODER.encode(record).decode()


# ---- what if ---------------------------------------------------------------------------------------------------------


class Recording(Struct, frozen=True, kw_only=True):
    """One run as its log has it: the head, the arrivals, the replicas that came and went, and what it came to.

    `path` is its first segment. `observed` are the run's latency models with the ratios of actual to predicted time
    that this log recorded; `slowdown` is, over all batches of a (pool, model), the time that they took / the time
    that its profile predicts.
    """

    path: str
    configured: ev.Configured
    arrivals: tuple[ev.Arrived, ...]
    faults: tuple[Event, ...]
    observed: dict[tuple[str, str], LatencyModel]
    slowdown: dict[tuple[str, str], float]
    summary: Summary


class WhatIf(Struct, frozen=True, kw_only=True):
    """`recorded` was measured; the other two are modelled: the same fleet, to judge the model by, and the changed."""

    path: str
    recorded: Summary
    same: Summary
    changed: Summary


def record(log: Path, *, ignore_truncated_tail: bool = False) -> Recording:
    """Read a whole run; of a folder with several, the latest that has requests.

    Raises:
        ArtefactError: as in `verify`, or the log has no arrivals.
    """
    runs: dict[str, list[Path]] = {}
    for path in _segments(log):
        runs.setdefault(path.stem.rpartition("-")[0], []).append(path)
    for name in reversed(runs):
        found = _record(runs[name], ignore_truncated_tail=ignore_truncated_tail)
        if found is not None:
            return found
    msg = f"{log} has no requests in it, so there is nothing to ask of another fleet"
    raise ArtefactError(msg)


def _record(paths: Sequence[Path], *, ignore_truncated_tail: bool) -> Recording | None:
    """The run in these segments, None if nothing arrived in it."""
    account = Account()
    configured: ev.Configured | None = None
    arrivals: list[ev.Arrived] = []
    faults: list[Event] = []
    services = _Services()
    for path in paths:
        for group in groups(path, ignore_truncated_tail=ignore_truncated_tail):
            event = group.event
            account.feed(event, group.actions)
            services.feed(group)
            if isinstance(event, ev.Configured):
                configured = configured or replace(event, snapshot=None)
            elif isinstance(event, ev.Arrived):
                arrivals.append(event)
            elif isinstance(event, ev.ReplicaDown) or (faults and isinstance(event, ev.ReplicaUp | ev.ReplicaStarting)):
                faults.append(event)  # starts before the first loss are how the run began
    if configured is None or not arrivals:
        return None
    return Recording(
        path=str(paths[0]),
        configured=configured,
        arrivals=tuple(arrivals),
        faults=tuple(faults),
        observed=services.models(configured),
        slowdown=services.slowdown(configured),
        summary=account.summary(),
    )


class _Services:
    """Collects what batches took, by (pool, model) and batch size."""

    def __init__(self) -> None:
        self._uptime = Uptime()
        self._flying: dict[int, ev.Dispatch] = {}
        self._took: dict[tuple[str, str], list[tuple[int, float]]] = {}

    def feed(self, group: Group) -> None:
        """Follow one event and its actions."""
        event = group.event
        self._flying.update((a.batch, a) for a in group.actions if isinstance(a, ev.Dispatch))
        self._uptime.follow(event)
        if isinstance(event, ev.Finished) and event.batch in self._flying:
            dispatch = self._flying.pop(event.batch)
            key = self._uptime.pool_of(dispatch.replica), dispatch.model
            self._took.setdefault(key, []).append((sum(p.items for p in dispatch.parts), event.service_s))

    def models(self, configured: ev.Configured) -> dict[tuple[str, str], LatencyModel]:
        """Each latency model of the head, with the recorded ratios in the buckets that the run has seen."""
        found = {}
        for workload in configured.models:
            for pool, model in workload.latency.items():
                ratios: dict[int, list[float]] = {}
                for items, service_s in self._took.get((pool, workload.name), ()):
                    ratios.setdefault(bucket(items), []).append(service_s / model.mean_s(items))
                seen = {b: tuple(sorted(r)) for b, r in ratios.items()}
                found[pool, workload.name] = replace(model, ratios={**model.ratios, **seen})
        return found

    def slowdown(self, configured: ev.Configured) -> dict[tuple[str, str], float]:
        """Seconds taken over seconds that the head's latency models predict, by (pool, model) seen."""
        models = {(pool, w.name): model for w in configured.models for pool, model in w.latency.items()}
        return {
            key: sum(s for _, s in batches) / sum(models[key].mean_s(items) for items, _ in batches)
            for key, batches in self._took.items()
            if key in models
        }


def what_if(
    recording: Recording,
    simulate: Simulate,
    *,
    add: Sequence[tuple[PoolSpec, Mapping[str, LatencyModel]]] = (),
    replicas: Mapping[str, int] | None = None,
    policy: str | None = None,
    params: Mapping[str, Any] | None = None,
) -> WhatIf:
    """The recorded traffic on a changed fleet or under another policy, beside the recorded one.

    `add` are new pools with their latency model per model served; `replicas` maps a pool of the log to how many
    replicas it gets or loses.

    Raises:
        ArtefactError: a pool is named that the log does not have, would have less than none or too many replicas, or
            is added under a name that is taken.
    """
    base = recording.configured
    pools = {spec.name: spec for spec in base.fleet.pools}
    known = ", ".join(f"{p.name} ({p.replicas} replicas)" for p in base.fleet.pools)
    for name, more in (replicas or {}).items():
        if name not in pools or not 0 <= pools[name].replicas + more <= MAX_REPLICAS:
            msg = f"cannot add {more} replicas to pool {name!r}; the log has: {known}; a pool has 0 to {MAX_REPLICAS}"
            raise ArtefactError(msg)
        pools[name] = replace(pools[name], replicas=pools[name].replicas + more)
    latency = dict(recording.observed)
    models = {w.name: w for w in base.models}
    for spec, by_model in add:
        if spec.name in pools:
            msg = f"pool {spec.name!r} is in the log already ({known}); give the added one another name"
            raise ArtefactError(msg)
        pools[spec.name] = spec
        for model, predictor in by_model.items():
            models[model] = replace(models[model], latency={**models[model].latency, spec.name: predictor})
            latency[spec.name, model] = predictor
    changed = replace(
        base,
        fleet=Fleet(pools=tuple(pools.values())),
        models=tuple(models.values()),
        policy=policy or base.policy,
        params=dict(params or {}) if policy else base.params,
    )
    return WhatIf(
        path=recording.path,
        recorded=recording.summary,
        same=simulate(base, recording.arrivals, recording.faults, recording.observed),
        changed=simulate(changed, recording.arrivals, _faults_in(changed.fleet, recording.faults), latency),
    )


def _faults_in(fleet: Fleet, faults: Sequence[Event]) -> list[Event]:
    """Those of replicas that the fleet has: one that was taken away must not come back up."""
    names = {f"{pool.name}-{i}" for pool in fleet.pools for i in range(pool.replicas)}
    return [
        e for e in faults if isinstance(e, ev.ReplicaUp | ev.ReplicaDown | ev.ReplicaStarting) and e.replica in names
    ]
