"""Part one of the demo: this machine. A duel on a real model and real files, then live traffic through the gateway.

A flood first measures what the gateway can do with every replica busy. Then bursty traffic comes at half of that; what
it will come to is predicted by simulation before it is sent; one replica is killed half-way; the log is replayed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec import Struct

from turnout import measure, policies, replay, simulate, store
from turnout.core import events as ev
from turnout.core.account import Summary
from turnout.core.profile import Profile
from turnout.demo import files, live, load
from turnout.errors import CheckFailedError
from turnout.measure.artefact import Duel, Entry

Progress = Callable[[str, float], None]

SIZES = (1, 2, 4, 8, 16, 32)
REQUEST_ITEMS = (1, 1, 1, 2, 2, 4, 8, 16)
"""Files per request, drawn evenly: mostly one, now and then a folder."""

FLOOD_S = 3.0
LOAD_SHARE = 0.5
BURST_CV = 2.0
DEADLINE_BATCHES = 8.0
"""The objective is this many times the measured time of the largest request, in whole 10 ms."""

START_S = 0.2
"""What a worker process takes to start on top of loading its model; for the prediction only."""

FILES = 256


class Traffic(Struct, frozen=True, kw_only=True):
    """One run from the client's side; latencies count from the intended start. `met` are answers by the deadline."""

    requests: int
    answered: int
    lost: int
    rejected: int
    met: int
    attainment: float
    latency_p50_s: float
    latency_p99_s: float
    items: int
    types: dict[str, int]
    rate_per_s: float
    capacity_items_per_s: float
    duration_s: float
    client_late_s: float


class Here(Struct, frozen=True, kw_only=True):
    """All of part one. `predicted` is modelled, before the run; the rest is measured here.

    `slowdown` is how much longer batches took in the flood, all replicas busy, than alone in the duel.
    """

    duel: Duel
    pool: str
    deadline_s: float
    traffic: Traffic
    predicted: Summary
    slowdown: float
    recorded: Summary
    killed: str
    receipt: dict[str, Any]
    replay: replay.Verification
    config_path: str
    log_path: str


def run(
    folder: Path, *, seconds: float, budget_s: float, now: datetime, environ: Mapping[str, str], progress: Progress
) -> Here:
    """Measure, serve, kill, replay; everything is written below `folder`.

    Raises:
        CheckFailedError: a request was lost, or the log did not replay to the identical actions.
    """
    inputs = files.sample(FILES, seed=1)
    duel = _duel(folder, inputs, budget_s, now=now, environ=environ, progress=progress)
    entry = _server(duel)
    deadline_s = _deadline_s(entry.profile)
    path = _write_config(folder, entry, deadline_s)
    progress("starting the gateway", 0.0)
    with live.Gateway(path, folder, environ) as gateway:
        flood = _flood(entry.profile, folder / "inputs.npy")
        gateway.send(flood, lambda done: progress("flooding the gateway to measure its capacity", done))
        flooded = replay.record(Path(gateway.log))
        capacity = sum(flood.items) / flooded.summary.duration_s
        rate = LOAD_SHARE * capacity / float(np.mean(REQUEST_ITEMS))
        plan = _plan(rate, seconds, deadline_s, folder / "inputs.npy")
        progress("predicting the traffic by simulation", 0.0)
        predicted = _predict(flooded, plan, entry.profile)
        outcome = gateway.send(plan, lambda done: progress(gateway.said, done), kill_half_way=True)
        receipt = gateway.receipt(max(i for i, items in enumerate(plan.items) if items > 1))
    log, killed = gateway.log, gateway.killed
    progress("replaying the log", 1.0)
    verification = replay.verify(Path(log), policies.load)
    recorded = replay.record(Path(log)).summary
    traffic = _traffic(plan, outcome, capacity)
    if traffic.lost or not verification.identical:
        said = f"{traffic.lost} requests lost; replay identical: {verification.identical}; the log is {log}"
        raise CheckFailedError(f"the demo found a fault in Turnout: {said}")
    return Here(
        duel=duel,
        pool=entry.label,
        deadline_s=deadline_s,
        traffic=traffic,
        predicted=predicted,
        slowdown=flooded.slowdown["cpu", "magika"],
        recorded=recorded,
        killed=killed,
        receipt=receipt,
        replay=verification,
        config_path=str(path),
        log_path=log,
    )


# ---- measure ---------------------------------------------------------------------------------------------------------


def _duel(
    folder: Path, inputs: np.ndarray, budget_s: float, *, now: datetime, environ: Mapping[str, str], progress: Progress
) -> Duel:
    """The duel of magika's model on real files."""
    buffer = io.BytesIO()
    np.savez(buffer, bytes=inputs)
    store.write_bytes(buffer.getvalue(), folder / "inputs.npz")
    buffer = io.BytesIO()
    np.save(buffer, inputs)
    store.write_bytes(buffer.getvalue(), folder / "inputs.npy")
    options = measure.Options(
        sizes=SIZES, budget_s=budget_s, threads=(1, _cores()), inputs_file=str(folder / "inputs.npz")
    )
    duel = measure.run(str(files.model_folder() / "model.onnx"), options, now=now, environ=environ, progress=progress)
    measure.save(duel, folder / "measure")
    return duel


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _server(duel: Duel) -> Entry:
    """The one-thread CPU variant with the most items per second whose outputs agree: one replica per core of it."""
    fit = [e for e in duel.entries if e.profile.device == "cpu" and e.threads == 1 and e.profile.routable]
    return max(fit, key=lambda entry: _items_per_s(entry.profile))


def _items_per_s(profile: Profile) -> float:
    """The best rate of one replica over the batch sizes measured."""
    return max(s.items / median(s.service_s) for s in profile.samples)


def _deadline_s(profile: Profile) -> float:
    largest = next(s for s in profile.samples if s.items >= max(REQUEST_ITEMS) or s.items == profile.max_items)
    return round(DEADLINE_BATCHES * median(largest.service_s) + 0.005, 2)


# ---- serve -----------------------------------------------------------------------------------------------------------


def _write_config(folder: Path, entry: Entry, deadline_s: float) -> Path:
    """A config that serves this variant on every core; `turnout serve` takes it as it is."""
    profile_path = folder / "serve-profile.json"
    store.save(entry.profile, profile_path)
    variant = entry.profile.variant.split()[0]
    text = f"""# Written by `turnout demo`; serve it again with: turnout serve {folder / "serve.toml"}
[gateway]
port = 0
log = "log"

[[models]]
name = "magika"
path = "{files.model_folder() / "model.onnx"}"
slo = {{ deadline_ms = {deadline_s * 1e3:.0f}, attainment = 0.99 }}

[[pools]]
name = "cpu"
device = "cpu"
models = ["magika"]
replicas = {_cores()}
threads = 1
options = {{ variant = "{variant}" }}
profile = {{ magika = "{profile_path.name}" }}
price = {{ usd_per_h = 0.0, billing = "sunk", source = "this machine, already paid" }}
"""
    path = folder / "serve.toml"
    store.write_bytes(text.encode(), path)
    return path


def _plan(rate: float, seconds: float, deadline_s: float, inputs: Path) -> load.Plan:
    """Bursty arrivals at `rate` requests per second."""
    rng = np.random.default_rng(7)
    shape = 1.0 / BURST_CV**2
    gaps_s = rng.gamma(shape, 1.0 / (shape * rate), max(int(rate * seconds), 20))
    return _requests(np.cumsum(gaps_s), deadline_s, inputs, rng)


def _flood(profile: Profile, inputs: Path) -> load.Plan:
    """More than the replicas can do, all at once: `FLOOD_S` seconds of work by the profile, with no hurry."""
    count = int(FLOOD_S * _cores() * _items_per_s(profile) / float(np.mean(REQUEST_ITEMS)))
    return _requests(np.zeros(count), 60.0, inputs, np.random.default_rng(8))


def _requests(at_s: np.ndarray, deadline_s: float, inputs: Path, rng: np.random.Generator) -> load.Plan:
    """Requests at these times (float [n]) for files drawn evenly."""
    return load.Plan(
        port=0,
        model="magika",
        inputs=str(inputs),
        input_name="bytes",
        output_name="target_label",
        deadline_s=deadline_s,
        at_s=tuple(map(float, at_s)),
        row=tuple(map(int, rng.integers(0, FILES, len(at_s)))),
        items=tuple(map(int, rng.choice(REQUEST_ITEMS, len(at_s)))),
    )


def _predict(flooded: replay.Recording, plan: load.Plan, profile: Profile) -> Summary:
    """The same arrivals, and the same loss of a replica, through the same router on a virtual clock.

    Service times are the profile's, slower by what the flood has shown for busy neighbours.
    """
    slowdown = flooded.slowdown["cpu", "magika"]
    quiet = simulate.from_profile(profile)
    arrivals = [
        ev.Arrived(at_s=at_s, rid=i, model="magika", items=items, deadline_s=at_s + plan.deadline_s)
        for i, (at_s, items) in enumerate(zip(plan.at_s, plan.items, strict=True))
    ]
    down_s = plan.at_s[-1] / 2
    up_s = down_s + START_S + (profile.cold.load_s + profile.cold.first_run_s if profile.cold else 0.0)
    faults: list[ev.Event] = [
        ev.ReplicaDown(at_s=down_s, replica="cpu-0", why="killed"),
        ev.ReplicaStarting(at_s=down_s, replica="cpu-0", pool="cpu", ready_s=up_s),
        ev.ReplicaUp(at_s=up_s, replica="cpu-0", pool="cpu"),
    ]
    draws = {("cpu", "magika"): lambda items, key, now_s: quiet(items, key, now_s) * slowdown}
    return simulate.run(flooded.configured, arrivals, draws, policies.load, faults=faults)


def _traffic(plan: load.Plan, outcome: load.Result, capacity: float) -> Traffic:
    """Count the client's side."""
    good = sorted(s for s, status in zip(outcome.latency_s, outcome.status, strict=True) if status == 200)
    met = sum(s <= plan.deadline_s for s in good)
    names = files.labels()
    types = sorted(outcome.classes.items(), key=lambda pair: -pair[1])
    return Traffic(
        requests=len(plan.at_s),
        answered=sum(map(bool, outcome.status)),
        lost=outcome.status.count(0),
        rejected=sum(status not in {0, 200} for status in outcome.status),
        met=met,
        attainment=met / len(plan.at_s),
        latency_p50_s=good[len(good) // 2] if good else 0.0,
        latency_p99_s=good[min(int(len(good) * 0.99), len(good) - 1)] if good else 0.0,
        items=sum(plan.items),
        types={names[index]: count for index, count in types[:8]},
        rate_per_s=len(plan.at_s) / plan.at_s[-1],
        capacity_items_per_s=capacity,
        duration_s=plan.at_s[-1],
        client_late_s=outcome.late_start_s,
    )
