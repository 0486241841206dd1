"""What policies are told turns out wrong: noise in predictions, service that slows down half-way, and heavy tails.

The fixed fleet at a moderate load, batches shared and requests split by all; our policy alone, since what is shown is
the learning that all policies share: whether 99 % of requests are in time again, how soon after the disturbance, and
whether 99 % of batches keep their predicted p99.
"""

from __future__ import annotations

from typing import Any

import baselines
import msgspec
import numpy as np
from msgspec import Struct

from study import setting
from study.runs import MISS, Run, Workers, highest_rate, interval
from study.setting import FIXED, MODELS, POOLS, SHARED, TRAIN_SEED
from turnout import simulate
from turnout.core.latency import LatencyModel, fit
from turnout.demo.elsewhere import DEADLINES_S, profile
from turnout.simulate import Draw, draws
from turnout.simulate.arrivals import arrivals
from turnout.simulate.watch import Watch

NOISE = 0.3
"""Predictions of each measured size are wrong by up to this share, each size by its own."""

DRIFT = 2.0
SIGMA = 0.3
FACTOR, FAST_S, SLOW_S = 2.0, 20.0, 1.0

HARD = {"drift": (DRIFT, 0.0), "two_state": (FACTOR, 0.0), "lognormal": (1.0, SIGMA)}
"""What the fleet of a cell has to carry at worst: times the published times, and noise. Its load is set by that."""

LOW_COVERAGE, HIGH_COVERAGE = 0.98, 0.995
BACK_S = 60.0

CELLS = ("none", "noise", "drift", "lognormal", "two_state")


class Plan(Struct, frozen=True, kw_only=True):
    """How large the study is.

    `load` is a share of the highest rate that our policy holds on the training trace with the disturbance from the
    beginning (for slow spells: if they never end), which is what the fleet can carry.
    """

    models: tuple[str, ...] = MODELS
    cells: tuple[str, ...] = CELLS
    load: float = 0.8
    span_s: float = 150.0
    most: int = 400_000
    train_count: int = 6_000
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)


class Outcome(Struct, frozen=True, kw_only=True):
    """One run. `back_s` is how long after the change requests begin to arrive of which 99 % are in time."""

    attainment: float
    attainment_after: float
    back_s: float | None
    coverage: float


def rate(model: str, slow: float, sigma: float, plan: Plan) -> float:
    """The rate of those of a model's cells whose fleet has to carry that, requests/s."""
    run = Run(
        model=model,
        policy="turnout",
        regime=SHARED,
        deadline_s=DEADLINES_S[model],
        rate_per_s=0.5 / setting.latency(model, POOLS[0]).mean_s(100) * sum(FIXED),
        count=plan.train_count,
        seed=TRAIN_SEED,
        slow=slow,
        sigma=sigma,
    )
    return plan.load * highest_rate(run, 0.02, 0.3)


def outcome(model: str, cell: str, rate_per_s: float, seed: int, plan: Plan) -> Outcome:
    """One run of one cell; the disturbance begins half-way, noise in predictions at the beginning."""
    count = min(int(plan.span_s * rate_per_s), plan.most)
    trace = setting.traffic(model, count, seed).at_rate(rate_per_s)
    span_s = float(trace.at_s[-1])
    change_s = 0.0 if cell in {"none", "noise"} else 0.5 * span_s
    told = {i: told_wrong(model, i, seed) if cell == "noise" else setting.latency(model, i) for i in POOLS}
    configured = setting.configured(
        [setting.pool(i, [model], n) for i, n in zip(POOLS, FIXED, strict=True)],
        [setting.workload(model, SHARED, DEADLINES_S[model], told)],
        "turnout",
        {},
        seed,
    )
    watch = Watch(configured.fleet, span_s, {})
    summary = simulate.run(
        configured,
        arrivals(trace, {model: DEADLINES_S[model]}, SHARED.parts),
        {(i, model): disturbed(setting.draw(model, i), cell, change_s, seed + n) for n, i in enumerate(POOLS)},
        baselines.load,
        observe=watch.observe,
    )
    line = watch.timeline()
    first = int(change_s / line.width_s)
    arrived = np.array(line.arrivals_per_s[first:])
    met = np.array([share or 0.0 for share in line.attainment[first:]]) * arrived
    return Outcome(
        attainment=summary.attainment,
        attainment_after=float(met.sum() / arrived.sum()),
        back_s=back_s(met, arrived, line.width_s),
        coverage=summary.coverage_p99 or 0.0,
    )


def back_s(met: np.ndarray, arrived: np.ndarray, width_s: float) -> float | None:
    """Seconds, in whole spans of `width_s`, after which 99 % of all later requests are in time; None if never.

    Both are counts by span, from the change on. At least a quarter of the spans has to be left, for 99 % to mean much.
    """
    later = np.cumsum(met[::-1])[::-1] / np.maximum(np.cumsum(arrived[::-1])[::-1], 1e-9)
    good = np.flatnonzero(later[: max(3 * len(later) // 4, 1)] >= 1.0 - MISS)
    return float(good[0] * width_s) if len(good) else None


def told_wrong(model: str, instance: str, seed: int) -> LatencyModel:
    """What policies are told: the profile with every measured size wrong by a share of its own, up to `NOISE`."""
    rng = np.random.default_rng([seed, POOLS.index(instance), MODELS.index(model)])
    right = profile(model, instance)
    return fit(setting.times(right, (1.0 + rng.uniform(-NOISE, NOISE, len(right.samples))).tolist()))


def disturbed(draw: Draw, cell: str, change_s: float, seed: int) -> Draw:
    """What happens: `draw` as it is before `change_s`, and in the way of the cell from then on."""
    after = {
        "drift": lambda: draws.drift(draw, DRIFT, 0.0),
        "lognormal": lambda: draws.lognormal(draw, SIGMA),
        "two_state": lambda: draws.two_state(draw, FACTOR, FAST_S, SLOW_S, seed),
    }.get(cell, lambda: draw)()
    return lambda items, key, now_s: (after if now_s >= change_s else draw)(items, key, now_s)


# ---- the section -----------------------------------------------------------------------------------------------------


def section(plan: Plan, workers: Workers) -> dict[str, Any]:
    """The JSON of this section; `coverage` is the mean over seeds by cell and model."""
    hard = {cell: HARD.get(cell, (1.0, 0.0)) for cell in plan.cells}
    pairs = [(m, *how) for m in plan.models for how in sorted(set(hard.values()))]
    held = dict(zip(pairs, workers.map(rate, [(*pair, plan) for pair in pairs], "robust: rates"), strict=True))
    tasks = [(m, c, held[(m, *hard[c])], seed, plan) for c in plan.cells for m in plan.models for seed in plan.seeds]
    found: dict[tuple[str, str], list[Outcome]] = {}
    for (model, cell, *_), row in zip(tasks, workers.map(outcome, tasks, "robust"), strict=True):
        found.setdefault((cell, model), []).append(msgspec.convert(row, Outcome))
    cells = {f"{cell}/{model}": _cell(rows) for (cell, model), rows in found.items()}
    coverage = {name: row["coverage"]["mean"] for name, row in cells.items()}
    return {
        "coverage": coverage,
        "robust_cells": cells,
        "robust_rates_per_s": {f"{c}/{m}": held[(m, *hard[c])] for c in hard for m in plan.models},
    }


def _cell(rows: list[Outcome]) -> dict[str, Any]:
    """Won if every seed is back in time, and the coverage of their mean is within its range."""
    coverage = interval([row.coverage for row in rows])
    times_s = [row.back_s for row in rows]
    back = all(t is not None and t <= BACK_S for t in times_s)
    return {
        "attainment": interval([row.attainment for row in rows]),
        "attainment_after": interval([row.attainment_after for row in rows]),
        "back_s": times_s,
        "coverage": coverage,
        "status": "won" if back and LOW_COVERAGE <= coverage["mean"] <= HIGH_COVERAGE else "lost",
    }
