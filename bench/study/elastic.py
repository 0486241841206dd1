"""Machines by the hour: each contender brings the cheapest fleet on which it keeps 99 %, and is billed for it.

A cell is a model, a deadline and a load. The deadline is a multiple of the time of the T4 for a query of the size that
99 % of queries do not exceed; the load a share of what the largest fleet of the grid could do at most (B2). Fleets are
chosen on the training trace, with a little room, and scored on others. All requests may share batches and be split.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from study import setting
from study.runs import MISS, Run, Workers, interval, simulated
from study.setting import MODELS, SHARED, TRAIN_SEED
from turnout.bounds.fluid import fluid
from turnout.demo.elsewhere import GPU

GPUS, CPUS = 5, 16
"""The grid: up to so many of each."""

MULTIPLES = (1.25, 1.5, 2.0, 3.0, 5.0)

CONTENDERS: dict[str, tuple[dict[str, Any], ...]] = {
    "turnout": ({}, {"share": 0.45}, {"share": 0.7}),
    "kairos": ({"share": 0.45}, {"share": 0.7}, {"merge": False}),
    "threshold": tuple({"items": items, "share": share} for items in (200, 400, 600) for share in (0.55, 0.45)),
    "cpu-only": ({}, {"share": 0.45}, {"share": 0.7}),
    "gpu-only": ({}, {"share": 0.45}, {"share": 0.7}),
}
"""Policy -> the parameters it may choose between, for every fleet."""

ROOM = 0.8
"""On the training trace so much of what may be missed is, so that the fleet also keeps the objective on others."""

TIED = 1e-3
"""Relative difference of dollars below which two are the same: that of a few late requests on the same fleet."""


class Plan(Struct, frozen=True, kw_only=True):
    """How large the study is."""

    models: tuple[str, ...] = MODELS
    multiples: tuple[float, ...] = MULTIPLES
    loads: tuple[float, ...] = (0.2,)
    train_count: int = 10_000
    count: int = 30_000
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)


class Cell(Struct, frozen=True, kw_only=True):
    """One traffic: what all contenders have to serve."""

    model: str
    multiple: float
    load: float
    deadline_s: float
    rate_per_s: float

    @property
    def name(self) -> str:
        """For tables and keys."""
        return f"{self.model}/{self.multiple:g}x/{self.load:g}"


class Bought(Struct, frozen=True, kw_only=True):
    """The cheapest fleet of a contender for a cell: CPU and GPU replicas; None where no fleet of the grid does it."""

    fleet: tuple[int, int] | None = None
    params: dict[str, Any] = {}


def cell(model: str, multiple: float, load: float, count: int) -> Cell:
    """The cell with its deadline and rate, from the laws and the published times alone."""
    trace = setting.traffic(model, count, TRAIN_SEED)
    p99_items = int(np.quantile(trace.items, 0.99))
    deadline_s = multiple * setting.latency(model, GPU).mean_s(p99_items)
    whole = setting.instance_of(model, trace, SHARED, (CPUS, GPUS), deadline_s=deadline_s, seed=TRAIN_SEED)
    most = fluid(whole.shared_s(), (CPUS, GPUS)).rate_per_s
    return Cell(model=model, multiple=multiple, load=load, deadline_s=deadline_s, rate_per_s=load * most)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def infeasible(where: Cell, plan: Plan) -> bool:
    """Whether more requests than may be missed are late even on an idle machine, split as far as they may be."""
    trace = setting.traffic(where.model, plan.train_count, TRAIN_SEED)
    pieces = -(-trace.items // SHARED.parts)
    quickest_s = np.minimum(*(setting.table(where.model, i).mean(axis=0)[pieces] for i in setting.POOLS))
    return bool((quickest_s > where.deadline_s).mean() > MISS)


def bought(where: Cell, policy: str, plan: Plan) -> Bought:
    """The cheapest fleet of the grid on which the policy keeps the objective on the training trace."""
    trace = setting.traffic(where.model, plan.train_count, TRAIN_SEED)
    whole = setting.instance_of(where.model, trace, SHARED, (1, 1), deadline_s=where.deadline_s, seed=TRAIN_SEED)
    work_s = whole.shared_s()
    best, best_usd = Bought(), float("inf")
    for gpu in range(0 if policy != "gpu-only" else 1, 1 if policy == "cpu-only" else GPUS + 1):
        cpus = [
            cpu
            for cpu in range(1 if policy == "gpu-only" else CPUS + 1)
            if cpu + gpu and setting.usd_per_h(cpu, gpu) < best_usd
        ]
        possible = [cpu for cpu in cpus if fluid(work_s, (cpu, gpu)).highest_rate(where.deadline_s) >= where.rate_per_s]
        found = _fewest(where, policy, possible, gpu, plan)
        if found.fleet is not None:
            best, best_usd = found, setting.usd_per_h(*found.fleet)
    return best


def _fewest(where: Cell, policy: str, cpus: list[int], gpu: int, plan: Plan) -> Bought:
    """The fewest CPU replicas of `cpus` beside so many GPU replicas, by halving: more of them never do worse."""
    best, low, high = Bought(), 0, len(cpus) - 1
    if cpus:  # none, or the most, is the usual answer
        best = _kept(where, policy, (cpus[-1], gpu), plan)
        if best.fleet is None:
            return best
        high -= 1
    while low <= high:
        middle = (low + high) // 2
        found = _kept(where, policy, (cpus[middle], gpu), plan)
        if found.fleet is None:
            low = middle + 1
        else:
            best, high = found, middle - 1
    return best


def _kept(where: Cell, policy: str, fleet: tuple[int, int], plan: Plan) -> Bought:
    """The fleet with the first parameters that keep the objective on it, or nothing."""
    allowed = int(ROOM * MISS * plan.train_count)
    for params in CONTENDERS[policy]:
        run = replace(_run(where, policy, fleet, params), count=plan.train_count, seed=TRAIN_SEED)
        if simulated(run, max_missed=allowed).met >= plan.train_count - allowed:
            return Bought(fleet=fleet, params=params)
    return Bought()


def scored(where: Cell, policy: str, own: Bought, plan: Plan) -> list[dict[str, float]]:
    """Attainment and dollars per million requests in time, on each seed's trace."""
    assert own.fleet is not None
    rows = []
    for seed in plan.seeds:
        summary = simulated(replace(_run(where, policy, own.fleet, own.params), count=plan.count, seed=seed))
        rows.append({"attainment": summary.attainment, "usd_per_million": summary.usd_per_million_met or float("inf")})
    return rows


def _run(where: Cell, policy: str, fleet: tuple[int, int], params: dict[str, Any]) -> Run:
    return Run(
        model=where.model,
        policy=policy,
        regime=SHARED,
        deadline_s=where.deadline_s,
        rate_per_s=where.rate_per_s,
        count=0,
        seed=0,
        params=params,
        fleet=fleet,
    )


# ---- the section -----------------------------------------------------------------------------------------------------


def section(plan: Plan, workers: Workers) -> dict[str, Any]:
    """The JSON of this section."""
    cells = [cell(m, k, load, plan.train_count) for load in plan.loads for m in plan.models for k in plan.multiples]
    closed = workers.map(infeasible, [(where, plan) for where in cells], "cells")
    open_cells = [where for where, shut in zip(cells, closed, strict=True) if not shut]
    pairs = [(where, policy) for where in open_cells for policy in CONTENDERS]
    found = workers.map(bought, [(*pair, plan) for pair in pairs], "fleets")
    owned = {
        (where.name, policy): msgspec.convert(row, Bought) for (where, policy), row in zip(pairs, found, strict=True)
    }
    tasks = [(w, p, owned[w.name, p], plan) for w, p in pairs if owned[w.name, p].fleet is not None]
    scores = {(w.name, p): rows for (w, p, *_), rows in zip(tasks, workers.map(scored, tasks, "scores"), strict=True)}
    rows: dict[str, dict[str, Any]] = {w.name: {"status": "infeasible"} for w in cells}
    for where in open_cells:
        rows[where.name] = _row(where, owned, scores)
    ratios = {name: row["ratio"]["mean"] for name, row in rows.items() if "ratio" in row}
    hybrid = {name: row["hybrid_saves"] for name, row in rows.items() if row.get("hybrid_saves", 0.0) > TIED}
    return {
        "worst_cell_vs_best": max(ratios.values(), default=None),
        "elastic": rows,
        "elastic_counts": _counts(rows),
        "hybrid_wins": {"cells": len(hybrid), "of": len(ratios), "saves": hybrid},
    }


def _counts(rows: dict[str, dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows.values():
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    return counts


def _row(
    where: Cell, owned: dict[tuple[str, str], Bought], scores: dict[tuple[str, str], list[dict[str, float]]]
) -> dict[str, Any]:
    """One cell: what each contender brought and paid, ours against the cheapest of the others, and its status.

    A contender that does not keep the objective on average over the scored traces is out of the cell.
    """
    contenders: dict[str, Any] = {}
    for policy in CONTENDERS:
        own, own_scores = owned[where.name, policy], scores.get((where.name, policy))
        if own_scores is None or own.fleet is None:
            contenders[policy] = {"fleet": None}
            continue
        attainment = interval([s["attainment"] for s in own_scores])
        contenders[policy] = {
            "fleet": list(own.fleet),
            "params": own.params,
            "attainment": attainment,
            "kept": attainment["mean"] >= 1.0 - MISS,
            "usd_per_million": interval([s["usd_per_million"] for s in own_scores]),
        }
    row: dict[str, Any] = {
        "deadline_s": where.deadline_s, "rate_per_s": where.rate_per_s, "contenders": contenders
    }  # fmt: skip
    kept = {p: c["usd_per_million"]["mean"] for p, c in contenders.items() if c.get("kept")}
    others = {p: usd for p, usd in kept.items() if p != "turnout"}
    if "turnout" not in kept:
        return {**row, "status": "lost" if others else "infeasible"}
    if not others:
        return {**row, "status": "won"}
    best = min(others, key=lambda p: others[p])
    ratio = interval(list(_ratios(scores[where.name, "turnout"], scores[where.name, best])))
    status = "lost" if ratio["mean"] > 1.0 + TIED else "won" if ratio["mean"] < 1.0 - TIED else "tied"
    homogeneous = min((kept[p] for p in ("cpu-only", "gpu-only") if p in kept), default=None)
    fleet = owned[where.name, "turnout"].fleet
    mixed = fleet is not None and min(fleet) > 0
    saves = 1.0 - kept["turnout"] / homogeneous if homogeneous and mixed else 0.0
    return {**row, "best_other": best, "ratio": ratio, "status": status, "hybrid_saves": saves}


def _ratios(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> Iterator[float]:
    for a, b in zip(ours, theirs, strict=True):
        yield a["usd_per_million"] / b["usd_per_million"]
