"""What a policy is shown, built for tests: any pools, replicas and requests, with predictions that are exact.

Without a spread a pool's p99 is its mean, up to rounding, so that a test can say in plain numbers what is in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.fleets import pool
from turnout import policies
from turnout.core.events import Part
from turnout.core.latency import Calibration, LatencyModel, line
from turnout.core.policy import Choice, PoolView, ReplicaView, Run, View, Waiting
from turnout.core.standing import Standing
from turnout.core.workload import Slo, Workload

Latencies = Mapping[str, Mapping[str, LatencyModel]]
"""Pool -> model -> its latency there."""

TWO: Latencies = {"cpu": {"m": line(0.002, 0.001)}, "gpu": {"m": line(0.010, 0.00005)}}
"""The CPU is the faster one up to 8 items, and takes batches of up to 64; the GPU, of up to 256."""


def request(rid: int, items: int = 1, due_s: float = 0.05, model: str = "m", **changes: Any) -> Waiting:
    """Items of one request, all of them by default, that arrived at second 0."""
    fields = {"start": 0, "arrived_s": 0.0, **changes}
    return Waiting(rid=rid, items=items, model=model, deadline_s=due_s, **fields)


def requests(sizes: Sequence[int], due_s: float = 0.05, **changes: Any) -> list[Waiting]:
    """One request per size, all due at once."""
    return [request(rid, items, due_s, **changes) for rid, items in enumerate(sizes)]


def replica(pool_name: str, number: int = 0, free_s: float = 0.0, slots: int = 1) -> ReplicaView:
    """One replica of a pool; it is idle unless something else is said."""
    return ReplicaView(replica=f"{pool_name}-{number}", pool=pool_name, free_s=free_s, slots_left=slots)


def shown(
    latencies: Latencies,
    waiting: Sequence[Waiting],
    replicas: Sequence[ReplicaView] | None = None,
    *,
    slo_s: float | Mapping[str, float] = 0.05,
    pools: Mapping[str, Mapping[str, Any]] | None = None,
    models: Mapping[str, Mapping[str, Any]] | None = None,
    standings: Mapping[str, Standing] | None = None,
    now_s: float = 0.0,
) -> View:
    """A view of these pools; one whose name begins with "gpu" is an accelerator, and each has one idle replica.

    `waiting` is put in order of deadline. `pools` and `models` change the fields of a pool's spec or a workload.
    """
    names = sorted({m for row in latencies.values() for m in row})
    views = {}
    for name, row in latencies.items():
        device = "cuda" if name.startswith("gpu") else "cpu"
        spec = pool(name, device, **{"models": tuple(row), "slots": 1, **(pools or {}).get(name, {})})
        views[name] = PoolView(spec, {model: Calibration(latency) for model, latency in row.items()})
    workloads = {}
    for name in names:
        slo = Slo(deadline_s=slo_s if isinstance(slo_s, float) else slo_s[name])
        found = {pool_name: row[name] for pool_name, row in latencies.items() if name in row}
        workloads[name] = Workload(name=name, slo=slo, latency=found, **(models or {}).get(name, {}))
    return View(
        now_s=now_s,
        waiting=tuple(sorted(waiting, key=lambda w: (w.deadline_s, w.rid, w.start))),
        replicas=tuple([replica(name) for name in latencies] if replicas is None else replicas),
        pools=views,
        workloads=workloads,
        standings=standings or {name: Standing(attainment=0.99) for name in names},
        in_flight=(),
        hedges_left=0.0,
    )


def choices(name: str, view: View, seed: int = 0, **params: Any) -> Sequence[Choice]:
    """What a policy of the registry chooses, fresh."""
    return policies.load(name, params)(view, None, np.random.default_rng(seed))[0]


def runs(found: Sequence[Choice]) -> dict[str, list[Part]]:
    """Replica -> all parts that start there."""
    started: dict[str, list[Part]] = {}
    for choice in found:
        if isinstance(choice, Run):
            started.setdefault(choice.replica, []).extend(choice.parts)
    return started


def pools_of(found: Sequence[Choice]) -> dict[int, set[str]]:
    """Request -> the pools on which it starts."""
    taken: dict[int, set[str]] = {}
    for name, parts in runs(found).items():
        for part in parts:
            taken.setdefault(part.rid, set()).add(name.rpartition("-")[0])
    return taken
