"""Small logs for tests: values only."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnout import simulate
from turnout.core import events as ev
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import LatencyModel, line
from turnout.core.workload import Slo, Workload
from turnout.regret.own import Objective, Own, Said, from_log
from turnout.regret.traffic import Traffic, of
from turnout.traces.access import AccessLog


def log(at_s: Any, items: Any, latency_s: Any, **changes: Any) -> AccessLog:
    """An access log of answered requests of one model, all of one backend."""
    n = len(at_s)
    fields: dict[str, Any] = {
        "source": "a.log",
        "format": "JSON lines",
        "epoch_s": 0.0,
        "at_s": np.asarray(at_s, dtype=np.float64),
        "items": np.asarray(items, dtype=np.int64),
        "latency_s": np.asarray(latency_s, dtype=np.float64),
        "ok": np.ones(n, dtype=np.bool_),
        "backend": np.zeros(n, dtype=np.int64),
        "backends": ("cpu-0",),
        "service_s": None,
        "model": np.zeros(n, dtype=np.int64),
        "models": ("m",),
        "time_is": "start",
        "coarse": False,
        "columns": {},
        "skipped": 0,
        "notes": (),
    }
    return AccessLog(**{**fields, **changes})


CURVES: dict[str, LatencyModel] = {"cpu": line(0.002, 0.001), "gpu": line(0.010, 0.0001)}
"""Seconds by items, exact."""


def served(
    n: int = 1200, rate_per_s: float = 60.0, seed: int = 0, machines: Any = ("gpu-0", "cpu-0", "cpu-1")
) -> AccessLog:
    """Requests to machines drawn at random, each first come, first served, with the very seconds of `CURVES`."""
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(1.0 / rate_per_s, n))
    items = rng.choice([1, 4, 16, 64], n, p=[0.4, 0.3, 0.2, 0.1])
    where = rng.integers(0, len(machines), n)
    free_s = dict.fromkeys(machines, 0.0)
    service_s, latency_s = np.empty(n), np.empty(n)
    for r in range(n):
        machine = machines[where[r]]
        service_s[r] = CURVES[machine.partition("-")[0]].mean_s(int(items[r]))
        free_s[machine] = max(free_s[machine], at_s[r]) + service_s[r]
        latency_s[r] = free_s[machine] - at_s[r]
    return log(at_s - at_s[0], items, latency_s, backend=where, backends=tuple(machines), service_s=service_s)


def asked(
    table: AccessLog, deadline_s: float = 0.1, attainment: float = 0.99, counts: dict[str, int] | None = None
) -> tuple[Traffic, Own]:
    """The log with a fleet fitted to it: a GPU at $0.50 an hour, CPUs at $0.10."""
    said = Said(counts=counts or {}, prices={"gpu": 0.5, "cpu": 0.1}, patterns={})
    own = from_log(said, table, Objective(deadline_s=deadline_s, attainment=attainment))
    return of(table, own.head.models, own.max_parts), own


def of_curves(
    curves: dict[str, LatencyModel], deadline_s: float, attainment: float = 0.99, *, merged: bool = False
) -> Own:
    """A fleet with one machine per curve, whose seconds are exactly those of the curve; prices as in `asked`."""
    usd_per_h = {"gpu": 0.5, "cpu": 0.1}
    pools = tuple(
        PoolSpec(
            name=name,
            device="cuda" if name == "gpu" else name,
            models=("m",),
            replicas=1,
            max_items=64,
            price=Price(usd_per_s=usd_per_h[name] / 3600.0),
        )
        for name in curves
    )
    slo = Slo(deadline_s=deadline_s, attainment=attainment)
    model = Workload(name="m", slo=slo, latency=curves, mergeable=merged)
    return Own(
        head=ev.Configured(at_s=0.0, fleet=Fleet(pools=pools), models=(model,), policy=""),
        draws={(name, "m"): simulate.from_model(curve) for name, curve in curves.items()},
        max_parts=1,
        pool_of=None,
        service_times="given",
    )
