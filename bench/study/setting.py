"""The yardstick: published service times of five models on a T4 and on CPU instances, size and arrival laws, fleets.

Service times were measured by others (Kairos, HPDC 2023); arrivals and sizes are drawn from laws; queueing, batching
and routing are the shipped Router on a virtual clock. So every figure of the study is modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from turnout import simulate
from turnout.bounds.schedule import Instance
from turnout.core import events as ev
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, Limits, PoolSpec
from turnout.core.latency import LatencyModel, fit
from turnout.core.profile import Profile
from turnout.core.trace import Trace
from turnout.core.workload import Slo, Workload
from turnout.demo.elsewhere import CPU, CPU_PRICE, GPU, GPU_PRICE, profile
from turnout.simulate import draws
from turnout.traces import laws

MODELS = ("rm2", "dien", "wnd", "mtwnd", "ncf")
POOLS = (CPU, GPU)
PRICES = {CPU: CPU_PRICE, GPU: GPU_PRICE}
MAX_ITEMS = 1000
MAX_PARTS = 8
FIXED = (9, 2)
"""Replicas of the fixed fleet: r5n.large and g4dn.xlarge."""

TRAIN_SEED = 101
"""Of the trace that policies and fleets are tuned on; those that are scored have other seeds."""

QUANTILES = 20
"""Rows of a table of draws: the profiles have so many samples of each size."""


class Regime(Struct, frozen=True, kw_only=True):
    """What is open to all: sharing batches, splitting into `parts`, and whether what is late is refused or served."""

    name: str
    merge: bool
    parts: int = 1
    refuse: bool = True


SINGLE = Regime(name="single", merge=False)
SERVED_LATE = Regime(name="single, late ones served", merge=False, refuse=False)
SHARED = Regime(name="shared", merge=True, parts=MAX_PARTS)


@cache
def latency(model: str, instance: str, slow: float = 1.0) -> LatencyModel:
    """What policies are told of a model on an instance, if it takes `slow` times as long as published."""
    published = profile(model, instance)
    return fit(times(published, [slow] * len(published.samples)))


def times(published: Profile, factors: Iterable[float]) -> Profile:
    """The profile with each measured size so many times as slow."""
    pairs = zip(published.samples, factors, strict=True)
    return replace(
        published, samples=tuple(replace(row, service_s=tuple(by * s for s in row.service_s)) for row, by in pairs)
    )


@cache
def draw(model: str, instance: str, slow: float = 1.0, sigma: float = 0.0) -> simulate.Draw:
    """What happens: the samples of the profile, `slow` times as long, with log-normal noise of `sigma`."""
    published = profile(model, instance)
    made = draws.from_profile(times(published, [slow] * len(published.samples)))
    return draws.lognormal(made, sigma) if sigma else made


@cache
def traffic(model: str, count: int, seed: int, cv: float = 1.0) -> Trace:
    """So many requests at a mean of 1 per second, in the sizes of the published study; gamma gaps if `cv` is not 1."""
    arrivals = laws.Poisson() if cv == 1.0 else laws.Gamma(cv=cv)
    return laws.trace(arrivals, laws.Kairos(), count=count, rate_per_s=1.0, seed=seed, model=model)


def pool(instance: str, models: Sequence[str], replicas: int, price: Price | None = None) -> PoolSpec:
    """A pool of one instance type."""
    return PoolSpec(
        name=instance,
        device="cpu" if instance == CPU else "cuda",
        models=tuple(models),
        replicas=replicas,
        max_items=MAX_ITEMS,
        price=price or PRICES[instance],
    )


def workload(
    model: str, regime: Regime, deadline_s: float, told: Mapping[str, LatencyModel] | None = None, name: str = ""
) -> Workload:
    """A model under a regime; `told` are its predictors by instance where they are not those of the profiles."""
    return Workload(
        name=name or model,
        slo=Slo(deadline_s=deadline_s),
        latency=dict(told or {instance: latency(model, instance) for instance in POOLS}),
        mergeable=regime.merge,
        late="reject" if regime.refuse else "serve",
    )


def configured(
    pools: Sequence[PoolSpec], models: Sequence[Workload], policy: str, params: Mapping[str, Any], seed: int
) -> ev.Configured:
    """The first event of a run; `seed` is that of the trace. The queue is unbounded: only deadlines refuse."""
    return ev.Configured(
        at_s=0.0,
        fleet=Fleet(pools=tuple(p for p in pools if p.replicas)),
        models=tuple(models),
        policy=policy,
        params=dict(params),
        seed=seed,
        limits=Limits(max_waiting=10**9),
        origin="simulated: service times measured elsewhere, arrivals and sizes from laws",
    )


def usd_per_h(cpu: int, gpu: int) -> float:
    """List price of a fleet."""
    return 3600.0 * (cpu * CPU_PRICE.usd_per_s + gpu * GPU_PRICE.usd_per_s)


@cache
def table(model: str, instance: str) -> np.ndarray:
    """Realised seconds (QUANTILES, MAX_ITEMS + 1) of a batch, a row for each quantile, as the simulator draws them."""
    made = draw(model, instance)
    levels = [_key_at((row + 0.5) / QUANTILES) for row in range(QUANTILES)]
    return np.array([[0.0] + [made(m, k, 0.0) for m in range(1, MAX_ITEMS + 1)] for k in levels])


def _key_at(level: float) -> int:
    return int(level * 2.0**53) << 11


def instance_of(
    model: str, trace: Trace, regime: Regime, fleet: tuple[int, int], *, deadline_s: float, seed: int
) -> Instance:
    """The realised trace as the bounds take it, with the luck that the simulator deals to this seed."""
    return Instance(
        at_s=trace.at_s,
        items=trace.items,
        deadline_s=np.full(len(trace), deadline_s),
        replicas=fleet,
        seconds=(table(model, CPU), table(model, GPU)),
        luck=lambda rid, start: int(draws.level(draws.key(seed, rid, start)) * QUANTILES),
        merge=regime.merge,
        max_parts=regime.parts,
    )
