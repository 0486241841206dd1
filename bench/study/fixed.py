"""A fleet that is paid for, 2 g4dn.xlarge and 9 r5n.large: the highest rate that keeps 99 % in time, by policy.

Three regimes: as published (single requests, late ones served), single requests with the admission of this Router, and
batches shared and requests split by all. Rates are given as shares of the bounds on the same realised trace.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from study import setting
from study.runs import PRECISION, Run, Workers, highest_rate, interval, simulated
from study.setting import FIXED, MODELS, SERVED_LATE, SHARED, SINGLE, Regime
from study.tuning import Tuned, tuned
from turnout.bounds.feasible import highest_rate as clairvoyant_rate
from turnout.bounds.fluid import fluid
from turnout.demo.elsewhere import DEADLINES_S
from turnout.simulate.watch import Watch

PUBLISHED_B1 = {"rm2": 120.0, "dien": 756.0, "wnd": 1532.0, "mtwnd": 1110.0, "ncf": 6578.0}
"""The fluid bound of the reference measurements, requests/s; all requests in time."""

PUBLISHED = {
    "fcfs": {"rm2": 0.66, "dien": 0.06, "wnd": 0.15, "mtwnd": 0.08, "ncf": 0.22},
    "threshold": {"rm2": 0.73, "dien": 0.65, "wnd": 0.80, "mtwnd": 0.70, "ncf": 0.74},
    "earliest": {"rm2": 0.88, "dien": 0.56, "wnd": 0.89, "mtwnd": 0.63, "ncf": 0.81},
    "cheapest": {"rm2": 0.87, "dien": 0.79, "wnd": 0.83, "mtwnd": 0.83, "ncf": 0.83},
    "kairos": {"rm2": 0.92, "dien": 0.83, "wnd": 0.89, "mtwnd": 0.85, "ncf": 0.88},
}
"""Shares of that bound in the reference measurements: n = 6,000, seed 1, another implementation."""

POLICIES = (
    "turnout", "kairos", "earliest", "threshold", "static", "cheapest", "batch-spill", "least-headroom", "queue-depth",
    "two-choices", "fcfs", "cpu-only", "gpu-only",
)  # fmt: skip
SINGLE_POLICIES = ("turnout", *PUBLISHED)

TUNING_COUNT = 6_000

FAR = 0.85
"""A policy whose rate on the training trace is below this share of ours is searched for with less precision."""

FAR_PRECISION = 0.02

NEAR_STEP = PRECISION
"""First step of a search that begins at the rate held on another trace."""

REPRODUCED_SEEDS = 2
"""Seeds of the reproduction, which has no verdict."""

WIDTH = 4
"""States that the search for a clairvoyant schedule keeps."""


class Plan(Struct, frozen=True, kw_only=True):
    """How large the study is. Without `tuning_count` policies keep their defaults."""

    models: tuple[str, ...] = MODELS
    policies: tuple[str, ...] = POLICIES
    single_policies: tuple[str, ...] = SINGLE_POLICIES
    count: int = 30_000
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    tuning_count: int = TUNING_COUNT
    clairvoyant: bool = True

    def contenders(self, regime: Regime) -> tuple[str, ...]:
        """Who runs in a regime."""
        return self.policies if regime.merge else self.single_policies


class Held(Struct, frozen=True, kw_only=True):
    """A tuned policy, and the highest rate that it held on each seed's trace."""

    params: dict[str, Any]
    rates_per_s: list[float]


Found = dict[tuple[str, str, str], Held]
"""By model, policy and regime."""


# ---- tasks (each runs in a process of its own) -----------------------------------------------------------------------


def chosen(model: str, policy: str, regime: Regime, plan: Plan) -> Tuned:
    """A policy's parameters, tuned on the training trace."""
    run = _run(model, policy, regime, 0.9 * PUBLISHED_B1[model])
    return tuned(run, plan.tuning_count) if plan.tuning_count else Tuned(params={}, rate_per_s=run.rate_per_s)


def rates(model: str, policy: str, regime: Regime, own: Tuned, plan: Plan) -> list[float]:
    """The highest rate that a tuned policy holds on each seed's trace."""
    run = replace(_run(model, policy, regime, own.rate_per_s), params=own.params, count=plan.count)
    held: list[float] = []
    for seed in plan.seeds if regime.refuse else plan.seeds[:REPRODUCED_SEEDS]:
        held.append(highest_rate(replace(run, seed=seed), own.precision, NEAR_STEP))
        run = replace(run, rate_per_s=held[-1] or run.rate_per_s)
    return held


def _run(model: str, policy: str, regime: Regime, rate_per_s: float) -> Run:
    return Run(
        model=model,
        policy=policy,
        regime=regime,
        deadline_s=DEADLINES_S[model],
        rate_per_s=rate_per_s,
        count=0,
        seed=0,
    )


def bounds(model: str, seed: int, plan: Plan) -> dict[str, float]:
    """The fluid bounds of one seed's trace, and the best schedule found for it, as rates."""
    trace, deadline_s = setting.traffic(model, plan.count, seed), DEADLINES_S[model]
    shared = setting.instance_of(model, trace, SHARED, FIXED, deadline_s=deadline_s, seed=seed)
    b2 = fluid(shared.shared_s(), FIXED).highest_rate(deadline_s)
    found = clairvoyant_rate(shared, b2, width=WIDTH).rate_per_s if plan.clairvoyant else 0.0
    return {"b1": fluid(shared.alone_s(), FIXED).highest_rate(deadline_s), "b2": b2, "clairvoyant": found}


def deciles(model: str, policy: str, found: Tuned, plan: Plan) -> list[dict[str, float]]:
    """Who is missed at the highest rate held, by size."""
    run = replace(
        _run(model, policy, SHARED, found.rate_per_s), count=plan.count, seed=plan.seeds[0], params=found.params
    )
    fleet = setting.configured(
        [setting.pool(i, [model], n) for i, n in zip(setting.POOLS, FIXED, strict=True)], [], "turnout", {}, 0
    ).fleet
    watch = Watch(fleet, plan.count / found.rate_per_s, {})
    simulated(run, observe=watch.observe)
    return [
        {
            "low_items": d.low,
            "high_items": d.high,
            "requests": d.requests,
            "rejected": d.rejects / d.requests,
            "late": (d.requests - d.rejects - d.met) / d.requests,
        }
        for d in watch.deciles()
    ]


# ---- the section -----------------------------------------------------------------------------------------------------


def section(plan: Plan, workers: Workers) -> dict[str, Any]:
    """The JSON of this section."""
    regimes = {"reproduction": SERVED_LATE, "single": SINGLE, "shared": SHARED}
    found = _found(plan, workers)
    bound_tasks = [(model, seed, plan) for model in plan.models for seed in plan.seeds]
    bound = dict(zip([task[:2] for task in bound_tasks], workers.map(bounds, bound_tasks, "bounds"), strict=True))

    def shares(model: str, policy: str, regime: Regime, which: str) -> dict[str, Any]:
        held = found[model, policy, regime.name].rates_per_s
        return interval([rate / bound[model, s][which] for rate, s in zip(held, plan.seeds, strict=True)])

    single = {m: {p: shares(m, p, regimes["single"], "b1") for p in plan.single_policies} for m in plan.models}
    shared = {m: {p: shares(m, p, regimes["shared"], "b2") for p in plan.policies} for m in plan.models}
    verdicts = {
        name: {m: _verdict(m, regime, found, plan) for m in plan.models}
        for name, regime in (("single", SINGLE), ("shared", SHARED))
    }
    by_size = _by_size(found, verdicts["shared"], plan, workers)
    return {
        "share_of_b1": {m: {p: x["mean"] for p, x in row.items()} for m, row in single.items()},
        "share_of_b1_interval": single,
        "share_of_b2": {m: {p: x["mean"] for p, x in row.items()} for m, row in shared.items()},
        "share_of_b2_interval": shared,
        "gap_closed": {m: _gap_closed(m, found, bound, plan) for m in plan.models},
        "clairvoyant_share_of_b2": {
            m: interval([bound[m, s]["clairvoyant"] / bound[m, s]["b2"] for s in plan.seeds]) for m in plan.models
        },
        "bounds_per_s": {m: {str(s): bound[m, s] for s in plan.seeds} for m in plan.models},
        "fixed_cells": verdicts,
        "reproduction": {m: _reproduced(m, found, plan) for m in plan.models},
        "misses_by_size": by_size,
        "tuned": {f"{m}/{p}/{r}": x.params for (m, p, r), x in found.items()},
        "rates_per_s": {f"{m}/{p}/{r}": x.rates_per_s for (m, p, r), x in found.items()},
    }


def _found(plan: Plan, workers: Workers) -> Found:
    """Every policy tuned, then its rates: with less precision where it is far behind ours."""
    cells = [
        (model, policy, regime)
        for regime in (SHARED, SINGLE, SERVED_LATE)
        for policy in plan.contenders(regime)
        for model in plan.models
        if regime is not SERVED_LATE or policy in PUBLISHED
    ]
    rows = workers.map(chosen, [(*cell, plan) for cell in cells], "tuned")
    best = {cell: msgspec.convert(row, Tuned) for cell, row in zip(cells, rows, strict=True)}
    tasks = []
    for (model, policy, regime), own in best.items():
        ours = best.get((model, "turnout", regime), own)
        precision = PRECISION if own.rate_per_s >= FAR * ours.rate_per_s else FAR_PRECISION
        tasks.append((model, policy, regime, replace(own, precision=precision), plan))
    return {
        (model, policy, regime.name): Held(params=own.params, rates_per_s=held)
        for (model, policy, regime, own, _), held in zip(tasks, workers.map(rates, tasks, "rates"), strict=True)
    }


def _verdict(model: str, regime: Regime, found: Found, plan: Plan) -> dict[str, Any]:
    """Ours against each other policy: the paired relative difference of rates, and whether it is won, lost or tied."""
    ours = found[model, "turnout", regime.name].rates_per_s
    rows: dict[str, dict[str, Any]] = {}
    for policy in plan.contenders(regime):
        if policy == "turnout":
            continue
        theirs = found[model, policy, regime.name].rates_per_s
        gain = interval([a / b - 1.0 if b else 1.0 for a, b in zip(ours, theirs, strict=True)])
        rows[policy] = {"gain": gain, "status": status(gain)}
    best = min(rows, key=lambda policy: float(rows[policy]["gain"]["mean"]))
    return {"best_baseline": best, "status": rows[best]["status"], "against": rows}


def status(gain: dict[str, float]) -> str:
    """Won or lost if the interval does not hold 0."""
    return "won" if gain["low"] > 0.0 else "lost" if gain["high"] < 0.0 else "tied"


def _gap_closed(model: str, found: Found, bound: dict[tuple[str, int], dict[str, float]], plan: Plan) -> dict[str, Any]:
    """How much of the distance from the best baseline to the best clairvoyant schedule found is ours, by seed."""
    if not plan.clairvoyant:
        return {}
    values = []
    for i, seed in enumerate(plan.seeds):
        best = max(found[model, p, SHARED.name].rates_per_s[i] for p in plan.policies if p != "turnout")
        ours = found[model, "turnout", SHARED.name].rates_per_s[i]
        values.append((ours - best) / (bound[model, seed]["clairvoyant"] - best))
    return interval(values)


def _reproduced(model: str, found: Found, plan: Plan) -> dict[str, Any]:
    """Baselines beside the reference: its shares of its bound, ours with late ones served, and with them refused."""
    return {
        policy: {
            "reference": PUBLISHED[policy][model],
            "served_late": _mean(found[model, policy, SERVED_LATE.name].rates_per_s) / PUBLISHED_B1[model],
            "refused": _mean(found[model, policy, SINGLE.name].rates_per_s) / PUBLISHED_B1[model],
        }
        for policy in plan.single_policies
        if policy in PUBLISHED
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _by_size(found: Found, verdicts: dict[str, Any], plan: Plan, workers: Workers) -> dict[str, dict[str, Any]]:
    """Misses by decile of size, of ours and of the best baseline, each at the highest rate that it holds."""
    tasks = []
    for model in plan.models:
        for policy in ("turnout", verdicts[model]["best_baseline"]):
            own = found[model, policy, SHARED.name]
            tasks.append((model, policy, Tuned(params=own.params, rate_per_s=own.rates_per_s[0]), plan))
    rows = workers.map(deciles, tasks, "deciles")
    by_size: dict[str, dict[str, Any]] = {model: {} for model in plan.models}
    for (model, policy, *_), row in zip(tasks, rows, strict=True):
        by_size[model][policy] = row
    return by_size
