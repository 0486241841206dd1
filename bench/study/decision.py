"""What a decision of our policy costs on this machine: the whole `Decide`, from who is refused to what is dispatched.

Small: 8 r5n.large and 8 g4dn.xlarge under 1,000 queries/s of the published sizes. The events of a simulated run go once
more through a fresh Router, which is timed at each `Decide`; a sample is its time over the requests it dispatched.
Large: 2 pools of 32 replicas with 1,000 requests waiting (`bench/router.py`); a sample is the time of one `Decide`.
Each decision is made several times over, in the same state, and its sample is the median, so that what else runs on the
machine for a moment is not in it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import baselines
import numpy as np
from msgspec import Struct
from router import Bench

from study import setting
from study.setting import POOLS, SHARED, SINGLE, Regime
from turnout import simulate
from turnout.core import events as ev
from turnout.core.events import Event
from turnout.core.router import Router
from turnout.demo.elsewhere import DEADLINES_S
from turnout.simulate.arrivals import arrivals

MODEL = "wnd"
SMALL = (8, 8)
RATE_PER_S = 1_000.0
LARGE_REPLICAS, LARGE_WAITING = 64, 1_000
AIM_US, AIM_LARGE_US = 50.0, 1_000.0


class Plan(Struct, frozen=True, kw_only=True):
    """How much is timed."""

    count: int = 20_000
    cycles: int = 3_000
    repeats: int = 7


def small_events(regime: Regime, count: int) -> list[Event]:
    """What the router of the small fleet is told in a simulated run."""
    trace = setting.traffic(MODEL, count, 1).at_rate(RATE_PER_S)
    seen: list[Event] = []
    simulate.run(
        setting.configured(
            [setting.pool(i, [MODEL], n) for i, n in zip(POOLS, SMALL, strict=True)],
            [setting.workload(MODEL, regime, DEADLINES_S[MODEL])],
            "turnout",
            {},
            1,
        ),
        arrivals(trace, {MODEL: DEADLINES_S[MODEL]}, regime.parts),
        {(i, MODEL): setting.draw(MODEL, i) for i in POOLS},
        baselines.load,
        observe=lambda event, _actions: seen.append(event),
    )
    return seen


def small_us(events: list[Event]) -> list[float]:
    """Microseconds of each decision over the requests it dispatched; those that dispatch none are left out."""
    router = Router(baselines.load)
    samples_us: list[float] = []
    for event in events:
        start_ns = perf_counter_ns()
        actions = router.handle(event)
        took_us = (perf_counter_ns() - start_ns) / 1e3
        if isinstance(event, ev.Decide):
            sent = len({part.rid for action in actions if isinstance(action, ev.Dispatch) for part in action.parts})
            if sent:
                samples_us.append(took_us / sent)
    return samples_us


def large_us(kind: str, cycles: int) -> list[float]:
    """Microseconds of each decision with a long queue."""
    bench = Bench(2, LARGE_REPLICAS // 2, LARGE_WAITING, kind)
    samples_us: list[float] = []
    sent = 1
    for _ in range(cycles):
        bench.before(sent)
        start_ns = perf_counter_ns()
        sent = bench.decide()
        samples_us.append((perf_counter_ns() - start_ns) / 1e3)
    return samples_us


def section(plan: Plan) -> dict[str, Any]:
    """The JSON of this section."""
    cells: dict[str, dict[str, float]] = {}
    for kind, regime in (("merged", SHARED), ("single", SINGLE)):
        events = small_events(regime, plan.count)
        cells[f"small/{kind}"] = _quantiles([_undisturbed(small_us, events) for _ in range(plan.repeats)])
        runs = [_undisturbed(large_us, kind, plan.cycles) for _ in range(plan.repeats)]
        cells[f"large/{kind}"] = _quantiles(runs)
    return {
        "decide_us_p99": cells["small/merged"]["p99"],
        "decide_us_p99_large": cells["large/merged"]["p99"],
        "decide_us": cells,
    }


def _undisturbed(timed: Callable[..., list[float]], *args: Any) -> list[float]:
    """One run, with nothing left to collect from before."""
    gc.collect()
    gc.freeze()
    return timed(*args)


def _quantiles(runs: list[list[float]]) -> dict[str, float]:
    """Of the median over runs of each decision, without the first tenth; and of all samples as they are."""
    samples = np.array(runs)[:, len(runs[0]) // 10 :]
    usual = np.median(samples, axis=0)
    return {
        "p50": float(np.quantile(usual, 0.5)),
        "p99": float(np.quantile(usual, 0.99)),
        "p99_of_all": float(np.quantile(samples, 0.99)),
    }
