"""Mixed traffic on one fleet, where a router can pay: several models and classes, bursts, faults, other uses of a GPU.

In each cell three models share one fleet, each with small requests that are due soon and large ones that are due late.
The load is the highest that the base fleet keeps under our policy on the training trace; the fleet is then the cheapest
of the grid that keeps it. Compared is requests in time per dollar, on other traces, with

- the best static partition of the same fleet: every split of the machines among classes, models, or both, the best one
  chosen on the training trace: the share in time up to the objective first, then requests in time per dollar;
- homogeneous fleets: of each kind the cheapest that keeps the load on the training trace, or the smallest of those with
  the most requests in time where none does.

All of them run our policy, so what differs is that machines are shared, and that there are two kinds of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import baselines
import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from study import setting
from study.runs import MISS, PRECISION, STEP, Workers, interval
from study.setting import SHARED, TRAIN_SEED, usd_per_h
from turnout import simulate
from turnout.core.account import Summary
from turnout.core.cost import Price
from turnout.core.events import Event, ReplicaDown, ReplicaStarting, ReplicaUp
from turnout.core.trace import Trace
from turnout.demo.elsewhere import CPU, DEADLINES_S, GPU, GPU_PRICE
from turnout.simulate.arrivals import arrivals
from turnout.traces import laws

TIGHT_SHARE = 0.5
"""Of the requests: the small ones, due by the published deadline of their model."""

TIGHT = laws.Uniform(low=1, high=60)
LOOSE = laws.Uniform(low=200, high=999)
LOOSE_TIMES = 4.0
"""The large ones have so many times as long."""

MAX_CPUS, MAX_GPUS = 24, 6

START_S = 600.0
"""A cold start of a GPU replica where that is what the cell is about."""

OUTSIDE_USD_PER_H = 0.526
OUTSIDE_LOAD = 0.6
"""Where a GPU's idle time earns something elsewhere: what an hour of it does, which is its list price, and the load as
a share of the highest, as at that no time of a GPU is idle."""

Fleet = tuple[int, int]


class Cell(Struct, frozen=True, kw_only=True):
    """One kind of traffic. `base` (CPU and GPU replicas) sets the load; `kind` is what befalls the fleet."""

    name: str
    models: tuple[str, ...]
    base: Fleet = (6, 2)
    cv: float = 1.0
    kind: str = ""
    count: int = 30_000


CELLS = (
    Cell(name="classes_and_models", models=("dien", "wnd", "mtwnd")),
    Cell(name="unlike_models", models=("rm2", "wnd", "ncf")),
    Cell(name="cv13", models=("dien", "wnd", "mtwnd"), cv=13.0),
    Cell(name="cold_start", models=("rm2", "dien", "mtwnd"), base=(3, 1), kind="cold", count=120_000),
    Cell(name="replica_lost", models=("dien", "wnd", "mtwnd"), kind="lost"),
    Cell(name="outside_value", models=("dien", "wnd", "mtwnd"), kind="idle_earns"),
)


class Plan(Struct, frozen=True, kw_only=True):
    """How large the study is; `scale` of each cell's requests are run."""

    cells: tuple[Cell, ...] = CELLS
    scale: float = 1.0
    train_scale: float = 0.4
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)


class Part(Struct, frozen=True, kw_only=True):
    """Some of a cell's traffic on some machines: all models if `models` is empty, both classes if `tight` is None."""

    fleet: Fleet
    models: tuple[str, ...] = ()
    tight: bool | None = None


class Score(Struct, frozen=True, kw_only=True):
    """What came of one part: requests, those in time, and dollars."""

    requests: int
    met: int
    usd: float


# ---- one run ---------------------------------------------------------------------------------------------------------


@cache
def traffic(cell: Cell, count: int, seed: int) -> Trace:
    """All of a cell's requests at a mean of 1 per second; models weigh as much as each other in work on a CPU."""
    rng = np.random.default_rng([seed, 7])
    law = laws.Poisson() if cell.cv == 1.0 else laws.Gamma(cv=cell.cv)
    mean_items = TIGHT_SHARE * 30 + (1.0 - TIGHT_SHARE) * 600
    weight = np.array([1.0 / setting.latency(m, CPU).mean_s(int(mean_items)) for m in cell.models])
    model = rng.choice(len(cell.models), count, p=weight / weight.sum())
    tight = rng.random(count) < TIGHT_SHARE
    due_s = np.array([DEADLINES_S[m] for m in cell.models])[model]
    return Trace(
        at_s=law.draw(count, 1.0, rng),
        items=np.where(tight, TIGHT.draw(count, rng), LOOSE.draw(count, rng)),
        model=model.astype(np.int64),
        models=cell.models,
        source="laws",
        deadline_s=np.where(tight, due_s, LOOSE_TIMES * due_s),
    )


def run(
    cell: Cell, part: Part, rate_per_s: float, scale: float, seed: int, *, max_missed: int | None = None
) -> Summary:
    """Our policy on a part of a cell's traffic; the rate is that of the whole."""
    trace = _chosen(traffic(cell, int(scale * cell.count), seed).at_rate(rate_per_s), cell, part)
    models = part.models or cell.models
    gpu_price = GPU_PRICE
    if cell.kind == "idle_earns":
        gpu_price = Price(usd_per_s=GPU_PRICE.usd_per_s, outside_value_usd_per_s=OUTSIDE_USD_PER_H / 3600.0)
    cpu, gpu = part.fleet
    pools = [setting.pool(CPU, models, cpu), setting.pool(GPU, models, gpu, gpu_price)]
    workloads = [setting.workload(m, SHARED, _due_s(m, part)) for m in models]
    span_s = cell.count * scale / rate_per_s
    return simulate.run(
        setting.configured(pools, workloads, "turnout", {}, seed),
        arrivals(trace, {m: DEADLINES_S[m] for m in models}, SHARED.parts),
        {(i, m): setting.draw(m, i) for i in (CPU, GPU) for m in models},
        baselines.load,
        faults=list(_faults(cell, part.fleet, span_s)),
        max_missed=max_missed,
    )


def _due_s(model: str, part: Part) -> float:
    return DEADLINES_S[model] * (LOOSE_TIMES if part.tight is False else 1.0)


def _chosen(trace: Trace, cell: Cell, part: Part) -> Trace:
    """The rows of a part."""
    rows = np.ones(len(trace), dtype=bool)
    if part.models:
        rows &= np.isin(trace.model, [cell.models.index(m) for m in part.models])
    if part.tight is not None:
        rows &= (trace.items <= TIGHT.high) == part.tight
    assert trace.deadline_s is not None
    return Trace(
        at_s=trace.at_s[rows],
        items=trace.items[rows],
        model=trace.model[rows],
        models=trace.models,
        source=trace.source,
        deadline_s=trace.deadline_s[rows],
    )


def _faults(cell: Cell, fleet: Fleet, span_s: float) -> Iterator[Event]:
    """What befalls the machines of a fleet in a run of so many seconds."""
    gpus = [f"{GPU}-{i}" for i in range(fleet[1])]
    if cell.kind == "cold":
        for name in gpus:
            yield ReplicaStarting(at_s=0.0, replica=name, pool=GPU, ready_s=START_S)
            yield ReplicaUp(at_s=START_S, replica=name, pool=GPU)
    if cell.kind == "lost" and gpus:
        yield ReplicaDown(at_s=0.5 * span_s, replica=gpus[0], why="lost")
    elif cell.kind == "lost" and fleet[0]:
        yield ReplicaDown(at_s=0.5 * span_s, replica=f"{CPU}-0", why="lost")


def score(cell: Cell, part: Part, rate_per_s: float, scale: float, seed: int) -> Score:
    """Dollars are the list price of the machines for the whole run, less what idle GPU seconds earn elsewhere."""
    if not sum(part.fleet):
        count = len(_chosen(traffic(cell, int(scale * cell.count), seed), cell, part))
        return Score(requests=count, met=0, usd=0.0)
    summary = run(cell, part, rate_per_s, scale, seed)
    span_s = cell.count * scale / rate_per_s
    usd = usd_per_h(*part.fleet) / 3600.0 * span_s
    if cell.kind == "idle_earns":
        busy_s = sum(p.busy_s for p in summary.pools if p.pool == GPU)
        usd -= OUTSIDE_USD_PER_H / 3600.0 * max(part.fleet[1] * span_s - busy_s, 0.0)
    return Score(requests=summary.requests, met=summary.met, usd=usd)


# ---- what is compared ------------------------------------------------------------------------------------------------


def load(cell: Cell, plan: Plan) -> float:
    """The highest rate, requests/s, that the base fleet keeps on the training trace."""
    good, bad = 0.0, 0.0
    rate, step = 0.5 / _least_s(cell), 4 * STEP
    while not good or not bad or bad > good * (1.0 + PRECISION):
        if _keeps(cell, cell.base, rate, plan):
            good = rate
        else:
            bad = rate
        rate = rate * (1.0 + step) if not bad else rate / (1.0 + step) if not good else (good * bad) ** 0.5
    return good


def _least_s(cell: Cell) -> float:
    """Seconds of the base fleet for a mean request, about."""
    mean_s = np.mean([setting.latency(m, CPU).mean_s(300) for m in cell.models])
    return float(mean_s) / (cell.base[0] + 3 * cell.base[1])


def _keeps(cell: Cell, fleet: Fleet, rate_per_s: float, plan: Plan) -> bool:
    count = int(plan.train_scale * cell.count)
    allowed = int(MISS * count)
    found = run(cell, Part(fleet=fleet), rate_per_s, plan.train_scale, TRAIN_SEED, max_missed=allowed)
    return found.met >= count - allowed


def cheapest(cell: Cell, rate_per_s: float, kinds: str, plan: Plan) -> Fleet | None:
    """The cheapest fleet that keeps the load: of both kinds, of "cpu" or of "gpu"; None if there is none."""
    grid = [
        (cpu, gpu)
        for cpu, gpu in product(range(MAX_CPUS + 1), range(MAX_GPUS + 1))
        if cpu + gpu and (kinds == "both" or (kinds == "cpu" and not gpu) or (kinds == "gpu" and not cpu))
    ]
    failed: list[Fleet] = []
    for fleet in sorted(grid, key=lambda f: usd_per_h(*f)):
        if any(fleet[0] <= f[0] and fleet[1] <= f[1] for f in failed):
            continue
        if _keeps(cell, fleet, rate_per_s, plan):
            return fleet
        failed.append(fleet)
    return None


def partitions(groups: int, fleet: Fleet) -> Iterator[tuple[Fleet, ...]]:
    """Every way to give whole machines of a fleet to so many groups."""
    for cpus in _splits(fleet[0], groups):
        for gpus in _splits(fleet[1], groups):
            yield tuple(zip(cpus, gpus, strict=True))


def _splits(total: int, groups: int) -> Iterator[tuple[int, ...]]:
    if groups == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _splits(total - first, groups - 1):
            yield (first, *rest)


def best_partition(fleet: Fleet, table: Mapping[Part, Score], parts: tuple[Part, ...]) -> list[Part]:
    """The best partition among `parts`, by the scores of the training trace."""
    options = (
        [replace(part, fleet=own) for part, own in zip(parts, machines, strict=True)]
        for machines in partitions(len(parts), fleet)
    )
    return max(options, key=lambda option: worth([table[part] for part in option]))


def worth(scores: list[Score]) -> tuple[float, float]:
    """Parts together: the share in time up to the objective comes first, then requests in time per dollar."""
    met = sum(s.met for s in scores)
    return min(met / sum(s.requests for s in scores), 1.0 - MISS), met / sum(s.usd for s in scores)


def groupings(cell: Cell) -> tuple[tuple[Part, ...], ...]:
    """Among whom a fleet may be parted: classes, models, or classes of models."""
    nobody = (0, 0)
    by_model = tuple(Part(fleet=nobody, models=(m,)) for m in cell.models)
    by_class = tuple(Part(fleet=nobody, tight=tight) for tight in (True, False))
    both = tuple(replace(part, tight=tight) for part in by_model for tight in (True, False))
    return by_class, by_model, both


# ---- the section -----------------------------------------------------------------------------------------------------


def section(plan: Plan, workers: Workers) -> dict[str, Any]:
    """The JSON of this section."""
    cells = {cell.name: _cell(cell, plan, workers) for cell in plan.cells}
    return {"mixed": {name: row["ratio"]["mean"] for name, row in cells.items()}, "mixed_cells": cells}


def _cell(cell: Cell, plan: Plan, workers: Workers) -> dict[str, Any]:
    rate = workers.map(load, [(cell, plan)], f"{cell.name}: load")[0]
    rate *= OUTSIDE_LOAD if cell.kind == "idle_earns" else 1.0
    kinds = ("both", "cpu", "gpu")
    bought = workers.map(cheapest, [(cell, rate, kind, plan) for kind in kinds], f"{cell.name}: fleets")
    ours, cpus, gpus = (tuple(f) if f else None for f in bought)
    fleet: Fleet = cell.base if cell.kind == "idle_earns" or ours is None else (ours[0], ours[1])
    rivals = {"partition": _partition(cell, fleet, rate, plan, workers)}
    for name, own, grid in (("cpu-only", cpus, [(n, 0) for n in range(1, MAX_CPUS + 1)]),
                            ("gpu-only", gpus, [(0, n) for n in range(1, MAX_GPUS + 1)])):  # fmt: skip
        rivals[name] = [Part(fleet=(own[0], own[1]) if own else _most_met(cell, grid, rate, plan, workers))]
    rivals["turnout"] = [Part(fleet=fleet)]
    tasks = [(cell, part, rate, plan.scale, seed) for parts in rivals.values() for seed in plan.seeds for part in parts]
    found = iter(workers.map(score, tasks, f"{cell.name}: scores"))
    per_usd: dict[str, list[float]] = {}
    attainment: dict[str, list[float]] = {}
    for name, parts in rivals.items():
        for _ in plan.seeds:
            scores = [msgspec.convert(next(found), Score) for _ in parts]
            per_usd.setdefault(name, []).append(sum(s.met for s in scores) / sum(s.usd for s in scores))
            attainment.setdefault(name, []).append(sum(s.met for s in scores) / sum(s.requests for s in scores))
    others = {name: interval(values) for name, values in per_usd.items() if name != "turnout"}
    best = max(others, key=lambda name: others[name]["mean"])
    against = {
        name: interval([a / b for a, b in zip(per_usd["turnout"], per_usd[name], strict=True)]) for name in others
    }
    return {
        "rate_per_s": rate,
        "fleets": {name: [list(p.fleet) for p in parts] for name, parts in rivals.items()},
        "parts": [{"models": list(p.models), "tight": p.tight, "fleet": list(p.fleet)} for p in rivals["partition"]],
        "attainment": {name: interval(values) for name, values in attainment.items()},
        "met_per_usd": {name: interval(values) for name, values in per_usd.items()},
        "against": against,
        "best_other": best,
        "ratio": against[best],
        "status": "won" if against[best]["low"] > 1.0 else "lost" if against[best]["high"] < 1.0 else "tied",
    }


def _partition(cell: Cell, fleet: Fleet, rate: float, plan: Plan, workers: Workers) -> list[Part]:
    """The best static partition, by every grouping."""
    parts = [
        replace(part, fleet=own)
        for grouping in groupings(cell)
        for part in grouping
        for own in product(range(fleet[0] + 1), range(fleet[1] + 1))
    ]
    tasks = [(cell, part, rate, plan.train_scale, TRAIN_SEED) for part in parts]
    rows = workers.map(score, tasks, f"{cell.name}: partitions")
    table = {part: msgspec.convert(row, Score) for part, row in zip(parts, rows, strict=True)}
    options = [best_partition(fleet, table, grouping) for grouping in groupings(cell)]
    return max(options, key=lambda option: worth([table[part] for part in option]))


def _most_met(cell: Cell, grid: list[Fleet], rate: float, plan: Plan, workers: Workers) -> Fleet:
    """Of fleets of which none keeps the load, the one with the most requests in time."""
    tasks = [(cell, Part(fleet=fleet), rate, plan.train_scale, TRAIN_SEED) for fleet in grid]
    rows = [msgspec.convert(r, Score) for r in workers.map(score, tasks, f"{cell.name}: homogeneous")]
    return max(zip(grid, rows, strict=True), key=lambda pair: (pair[1].met, -pair[1].usd))[0]
