"""Small fleets and traffic for tests: values only, so that a test reads as its property."""

from __future__ import annotations

from typing import Any

from turnout.core import events as ev
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, Limits, PoolSpec
from turnout.core.latency import LatencyModel, line
from turnout.core.workload import Slo, Workload

SPREAD = (0.9, 0.95, 1.0, 1.0, 1.05, 1.1)


def pool(name: str, device: str = "cpu", replicas: int = 2, **changes: Any) -> PoolSpec:
    """A pool that serves model "m"; a GPU by default takes two batches at once, and larger ones."""
    fields: dict[str, Any] = {
        "name": name,
        "device": device,
        "models": ("m",),
        "replicas": replicas,
        "slots": 1 if device == "cpu" else 2,
        "max_items": 64 if device == "cpu" else 256,
        "price": Price(usd_per_s=0.1 / 3600 if device == "cpu" else 0.5 / 3600),
    }
    return PoolSpec(**{**fields, **changes})


CPU_LATENCY = line(0.002, 0.001, SPREAD)
GPU_LATENCY = line(0.010, 0.00005, SPREAD)


def configured(
    *pools: PoolSpec, policy: str = "turnout", latency: dict[str, LatencyModel] | None = None, **changes: Any
) -> ev.Configured:
    """A segment head with model "m" on these pools (by default two CPU replicas and one GPU)."""
    pools = pools or (pool("cpu"), pool("gpu", "cuda", 1))
    latency = latency or {p.name: CPU_LATENCY if p.device == "cpu" else GPU_LATENCY for p in pools}
    workload_fields = {"slo": Slo(deadline_s=0.05), "latency": latency, **changes.pop("workload", {})}
    return ev.Configured(
        at_s=0.0,
        fleet=Fleet(pools=pools),
        models=(Workload(name="m", **workload_fields),),
        policy=policy,
        limits=changes.pop("limits", Limits()),
        **changes,
    )


def arrived(rid: int, at_s: float = 0.0, items: int = 1, slack_s: float = 0.05, **changes: Any) -> ev.Arrived:
    """A request for model "m", due `slack_s` after it arrived."""
    return ev.Arrived(at_s=at_s, rid=rid, model="m", items=items, deadline_s=at_s + slack_s, **changes)
