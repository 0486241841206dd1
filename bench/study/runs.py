"""One simulated run, the highest rate that keeps the objective, and many such tasks on a few processes.

A task's result is kept in a file as soon as it is there, so that a study that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import baselines
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from study import setting
from study.setting import FIXED, Regime
from turnout import simulate
from turnout.core.account import Summary
from turnout.demo.elsewhere import CPU, GPU
from turnout.simulate.arrivals import arrivals

MISS = 0.01
"""Share of requests that may be missed."""

STEP = 0.04
"""First relative step of the search for a rate, until it is bracketed."""

PRECISION = 0.008
"""Relative width to which a rate is narrowed down."""

Result = TypeVar("Result")


class Run(Struct, frozen=True, kw_only=True):
    """One policy on one fleet (CPU and GPU replicas) under one model's traffic.

    Service takes `slow` times as long as published, which policies are told, and has log-normal noise of `sigma`, which
    they are not.
    """

    model: str
    policy: str
    regime: Regime
    deadline_s: float
    rate_per_s: float
    count: int
    seed: int
    params: dict[str, Any] = {}
    fleet: tuple[int, int] = FIXED
    cv: float = 1.0
    slow: float = 1.0
    sigma: float = 0.0


def simulated(run: Run, *, max_missed: int | None = None, observe: simulate.Observe | None = None) -> Summary:
    """Carry out a run, or as much of it as it takes to miss more than `max_missed`."""
    trace = setting.traffic(run.model, run.count, run.seed, run.cv).at_rate(run.rate_per_s)
    cpu, gpu = run.fleet
    pools = [setting.pool(CPU, [run.model], cpu), setting.pool(GPU, [run.model], gpu)]
    told = {i: setting.latency(run.model, i, run.slow) for i in (CPU, GPU)}
    model = setting.workload(run.model, run.regime, run.deadline_s, told)
    return simulate.run(
        setting.configured(pools, [model], run.policy, run.params, run.seed),
        arrivals(trace, {run.model: run.deadline_s}, run.regime.parts),
        {(i, run.model): setting.draw(run.model, i, run.slow, run.sigma) for i in (CPU, GPU)},
        baselines.load,
        observe=observe,
        max_missed=max_missed,
    )


def met(run: Run) -> bool:
    """Whether the run keeps the objective."""
    summary = simulated(run, max_missed=int(MISS * run.count))
    return summary.met >= (1.0 - MISS) * run.count


def highest_rate(run: Run, precision: float = PRECISION, step: float = STEP) -> float:
    """The highest rate at which the run keeps the objective, searched from its own rate; a tried rate, or 0.

    The search brackets in growing steps and then halves. Attainment is not monotone in the rate to the last request,
    so it finds a crossing, the same way for every policy.
    """
    good, bad = 0.0, 0.0
    rate = run.rate_per_s
    floor = 1e-3 * run.rate_per_s
    while not good or not bad:
        if met(replace(run, rate_per_s=rate)):
            good, rate = rate, rate * (1.0 + step)
        else:
            bad, rate = rate, rate * (1.0 - min(step, 0.5))
            if rate < floor:
                return 0.0
        step *= 1.5
    while bad > good * (1.0 + precision):
        middle = (good * bad) ** 0.5
        if met(replace(run, rate_per_s=middle)):
            good = middle
        else:
            bad = middle
    return good


# ---- many tasks ------------------------------------------------------------------------------------------------------


class Kept(Struct, frozen=True, kw_only=True):
    """A line of the file of results."""

    key: str
    result: Any


class Workers:
    """Processes for tasks, and the file in which their results are kept (none: nothing is kept)."""

    def __init__(self, jobs: int, kept: Path | None = None) -> None:
        """`jobs` processes at once."""
        self._jobs = jobs
        self._path = kept
        self._known: dict[str, Any] = {}
        if kept is not None and kept.exists():
            *lines, cut_off = kept.read_bytes().split(b"\n")
            if cut_off:  # by the end of the process that wrote it
                kept.write_bytes(b"".join(line + b"\n" for line in lines))
            self._known = {k.key: k.result for k in (msgspec.json.decode(line, type=Kept) for line in lines)}

    def map(self, function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], say: str = "") -> list[Result]:
        """`function(*task)` for each task, in their order; results are JSON-like."""
        found: list[Any] = [None] * len(tasks)
        keys = [_key(function, task) for task in tasks]
        left = []
        for i, key in enumerate(keys):
            if key in self._known:
                found[i] = self._known[key]
            else:
                left.append(i)
        with ProcessPoolExecutor(self._jobs, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(function, *tasks[i]): i for i in left}
            for done, future in enumerate(as_completed(futures), start=1):
                i = futures[future]
                found[i] = msgspec.to_builtins(future.result())
                self._keep(keys[i], found[i])
                if say:
                    print(f"{say}: {len(tasks) - len(left) + done} of {len(tasks)}", flush=True)
        return found

    def _keep(self, key: str, result: Any) -> None:
        self._known[key] = result
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(Kept(key=key, result=result)) + b"\n")


def _key(function: Callable[..., Any], task: tuple[Any, ...]) -> str:
    text = msgspec.json.encode([function.__module__, function.__qualname__, task])
    return hashlib.sha256(text).hexdigest()[:24]


def interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and the two-sided 95 % interval of Student's t of paired seeds; of one value, itself."""
    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return {"mean": mean, "low": mean, "high": mean}
    deviation = (sum((v - mean) ** 2 for v in values) / (n - 1)) ** 0.5
    half = STUDENT_95[min(n - 2, len(STUDENT_95) - 1)] * deviation / n**0.5
    return {"mean": mean, "low": mean - half, "high": mean + half}


STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Quantiles of Student's t at 97.5 % for 1 to 9 degrees of freedom."""


def ordered(result: Mapping[str, float]) -> list[tuple[str, float]]:
    """Largest first."""
    return sorted(result.items(), key=lambda pair: -pair[1])
