"""Part two of the demo: the same router on published measurements of a T4 and of CPU instances. Measured elsewhere.

Service times were measured by others (Kairos, HPDC 2023); arrivals and sizes are drawn from laws; queueing, batching
and routing are this package's own router on a virtual clock. So: measured elsewhere, modelled here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from turnout import policies, simulate, store
from turnout.core import events as ev
from turnout.core.account import Summary
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import fit
from turnout.core.profile import Profile, ProfileTable
from turnout.core.workload import Slo, Workload
from turnout.simulate.given import USD_PER_H

CPU, GPU = "r5n.large", "g4dn.xlarge"
CPU_PRICE, GPU_PRICE = (
    Price(usd_per_s=USD_PER_H[instance] / 3600, source="Kairos (HPDC 2023), AWS on demand", date="2023-06-20")
    for instance in (CPU, GPU)
)
DEADLINES_S = {"rm2": 0.350, "dien": 0.035, "wnd": 0.025, "mtwnd": 0.025, "ncf": 0.005}
"""Latency objectives of the published study, by model."""

MAX_PARTS = 8
"""Recommendation queries rank independent candidates, so a large one may be split over replicas."""

SPLIT_SHARE = 0.6
"""A CPU batch is held to the size that takes at most this share of the deadline; larger queries are split."""

THRESHOLDS = (100, 150, 200, 300, 400, 600)
"""Query sizes that the threshold policy is tuned over."""

BURST_CV = 1.1
"""Coefficient of variation of the gaps between arrivals: that of the Azure conversation trace of 2023."""


class Setting(Struct, frozen=True, kw_only=True):
    """One model's traffic: queries per second with gamma-distributed gaps, `count` of them from `seed`."""

    model: str
    deadline_s: float
    rate_qps: float
    count: int
    seed: int = 1


@cache
def table() -> tuple[Profile, ...]:
    """The published profiles that ship with the package."""
    return store.load(Path(str(files("turnout").joinpath("data/kairos.json"))), ProfileTable).profiles


@cache
def profile(model: str, instance: str) -> Profile:
    """One model on one instance type."""
    return next(p for p in table() if (p.model, p.device_key) == (model, instance))


@cache
def _draw(model: str, instance: str) -> simulate.Draw:
    return simulate.from_profile(profile(model, instance))


@cache
def traffic(setting: Setting) -> tuple[ev.Arrived, ...]:
    """Arrivals in bursts (gamma gaps), with the size mix that Kairos replays from DeepRecSys.

    Sizes: 8 % uniform 1-99, 22 % uniform 200-599, 5 % uniform 600-999, the rest log-normal(5.1, 0.2) within 100-200.
    """
    rng = np.random.default_rng(setting.seed)
    n, shape = setting.count, 1.0 / BURST_CV**2
    at_s = np.cumsum(rng.gamma(shape, 1.0 / (shape * setting.rate_qps), n))
    kind = rng.random(n)
    items = np.clip(rng.lognormal(5.1, 0.2, n), 100, 200).astype(int)
    for low, high, first, last in ((0.0, 0.08, 1, 99), (0.08, 0.30, 200, 599), (0.30, 0.35, 600, 999)):
        chosen = (kind >= low) & (kind < high)
        items[chosen] = rng.integers(first, last + 1, int(chosen.sum()))
    return tuple(
        ev.Arrived(
            at_s=float(t),
            rid=i,
            model=setting.model,
            items=int(k),
            deadline_s=float(t) + setting.deadline_s,
            max_parts=MAX_PARTS,
        )
        for i, (t, k) in enumerate(zip(at_s, items, strict=True))
    )


def configured(setting: Setting, cpu: int, gpu: int, policy: str, params: dict[str, object]) -> ev.Configured:
    """A fleet of so many r5n.large and g4dn.xlarge under a policy."""
    model = setting.model
    latency = {instance: fit(profile(model, instance)) for instance in (CPU, GPU)}
    share_s = SPLIT_SHARE * setting.deadline_s
    cpu_items = max((n for n in range(10, 1001, 10) if latency[CPU].quantile_s(n, 0.99) <= share_s), default=10)
    pools = [
        PoolSpec(name=CPU, device="cpu", models=(model,), replicas=cpu, max_items=cpu_items, price=CPU_PRICE),
        PoolSpec(name=GPU, device="cuda", models=(model,), replicas=gpu, max_items=1000, price=GPU_PRICE),
    ]
    return ev.Configured(
        at_s=0.0,
        fleet=Fleet(pools=tuple(p for p in pools if p.replicas)),
        models=(Workload(name=model, slo=Slo(deadline_s=setting.deadline_s), latency=latency),),
        policy=policy,
        params=params,
        seed=setting.seed,
        origin="simulated: service times measured elsewhere, arrivals and sizes from laws",
    )


def attempt(setting: Setting, cpu: int, gpu: int, policy: str = policies.DEFAULT, **params: object) -> Summary:
    """Simulate one fleet under one policy."""
    return _run(setting, configured(setting, cpu, gpu, policy, params))


def _run(setting: Setting, head: ev.Configured, observe: simulate.Observe | None = None) -> Summary:
    draws = {(instance, setting.model): _draw(setting.model, instance) for instance in (CPU, GPU)}
    return simulate.run(head, traffic(setting), draws, policies.load, observe=observe)


def example(setting: Setting, cpu: int, gpu: int) -> ev.Dispatch | None:
    """A decision of the default policy: one in which the deadline overruled the price, else one by price alone."""
    overruled: list[ev.Dispatch] = []
    by_price: list[ev.Dispatch] = []

    def observe(_event: ev.Event, actions: Sequence[ev.Action]) -> None:
        for action in actions:
            if isinstance(action, ev.Dispatch):
                if action.why.binding == "deadline":
                    overruled.append(action)
                elif action.why.binding == "cost" and not any(option.busy for option in action.why.options):
                    by_price.append(action)

    _run(setting, configured(setting, cpu, gpu, policies.DEFAULT, {}), observe)
    found = overruled or by_price
    return found[len(found) // 2] if found else None


class Contest(Struct, frozen=True, kw_only=True):
    """Policies side by side on one fleet and one trace; `lines` are (label, what it came to), best first.

    `example` is one decision of the default policy, to be explained.
    """

    setting: Setting
    cpu: int
    gpu: int
    lines: tuple[tuple[str, Summary], ...]
    example: ev.Dispatch | None = None


def contest(setting: Setting, cpu: int, gpu: int) -> Contest:
    """Every policy on the same fleet and traffic; what can be tuned is the best of its grid on another seed's."""
    tuning = replace(setting, seed=setting.seed + 1)
    best = max(THRESHOLDS, key=lambda items: attempt(tuning, cpu, gpu, "threshold", items=items).attainment)
    merge = max((True, False), key=lambda merge: attempt(tuning, cpu, gpu, "kairos", merge=merge).attainment)
    lines = [
        (f"{policies.DEFAULT} (default)", attempt(setting, cpu, gpu)),
        ("earliest finish", attempt(setting, cpu, gpu, "earliest")),
        ("Kairos matching (tuned)", attempt(setting, cpu, gpu, "kairos", merge=merge)),
        ("static rule", attempt(setting, cpu, gpu, "static")),
        (f"size threshold at {best} (tuned)", attempt(setting, cpu, gpu, "threshold", items=best)),
        ("CPU pool only", attempt(setting, cpu, gpu, "pinned", pools=[CPU])),
        ("GPU pool only", attempt(setting, cpu, gpu, "pinned", pools=[GPU])),
    ]
    lines.sort(key=lambda line: -line[1].attainment)
    return Contest(setting=setting, cpu=cpu, gpu=gpu, lines=tuple(lines), example=example(setting, cpu, gpu))
