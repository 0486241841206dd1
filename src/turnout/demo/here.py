"""Part one of the demo: this machine. A duel on a real model and real files, then live traffic through the gateway.

The gateway and the client are processes of their own. What the traffic will come to is predicted by simulation before
the first request is sent, from the duel's profile; one replica is killed half-way; the log is replayed at the end.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from turnout import config, measure, policies, replay, simulate, store
from turnout.core import events as ev
from turnout.core.account import Summary
from turnout.core.profile import Profile
from turnout.demo import files, load
from turnout.errors import CheckFailedError
from turnout.measure.artefact import Duel, Entry
from turnout.pools.source import digest

Progress = Callable[[str, float], None]

SIZES = (1, 2, 4, 8, 16, 32)
REQUEST_ITEMS = (1, 1, 1, 2, 2, 4, 8, 16)
"""Files per request, drawn evenly: mostly one, now and then a folder."""

LOAD_SHARE = 0.5
BURST_CV = 2.0
DEADLINE_BATCHES = 8.0
"""The objective is this many times the measured time of the largest request, in whole 10 ms."""

START_S = 1.0
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
    """All of part one. `predicted` is modelled, before the run; the rest is measured here."""

    duel: Duel
    pool: str
    deadline_s: float
    traffic: Traffic
    predicted: Summary
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
    plan, capacity = _plan(entry.profile, seconds, folder / "inputs.npy")
    progress("predicting the traffic by simulation", 0.0)
    predicted = _predict(path, environ, plan, deadline_s, entry.profile)
    outcome, killed, receipt, log = _serve(path, folder, plan, environ, progress)
    progress("replaying the log", 1.0)
    verification = replay.verify(Path(log), policies.load)
    recorded = replay.record(Path(log)).summary
    traffic = _traffic(plan, outcome, deadline_s, capacity)
    if traffic.lost or not verification.identical:
        said = f"{traffic.lost} requests lost; replay identical: {verification.identical}; the log is {log}"
        raise CheckFailedError(f"the demo found a fault in Turnout: {said}")
    return Here(
        duel=duel,
        pool=entry.label,
        deadline_s=deadline_s,
        traffic=traffic,
        predicted=predicted,
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


def _plan(profile: Profile, seconds: float, inputs: Path) -> tuple[load.Plan, float]:
    """Bursty arrivals at half of the measured capacity, and that capacity in items per second."""
    capacity = _cores() * _items_per_s(profile)
    rate = LOAD_SHARE * capacity / float(np.mean(REQUEST_ITEMS))
    rng = np.random.default_rng(7)
    count = max(int(rate * seconds), 20)
    shape = 1.0 / BURST_CV**2
    at_s = np.cumsum(rng.gamma(shape, 1.0 / (shape * rate), count))
    plan = load.Plan(
        port=0,
        model="magika",
        inputs=str(inputs),
        input_name="bytes",
        output_name="target_label",
        at_s=tuple(map(float, at_s)),
        row=tuple(map(int, rng.integers(0, FILES, count))),
        items=tuple(map(int, rng.choice(REQUEST_ITEMS, count))),
    )
    return plan, capacity


def _predict(path: Path, environ: Mapping[str, str], plan: load.Plan, deadline_s: float, profile: Profile) -> Summary:
    """The same arrivals, and the same loss of a replica, through the same router on a virtual clock."""
    settings = config.load(path, environ)
    resolved = config.resolve(settings, lambda file: store.load(file, Profile), digest)
    configured = ev.Configured(
        at_s=0.0, fleet=resolved.fleet, models=resolved.workloads, policy=settings.policy.name, limits=resolved.limits
    )
    arrivals = [
        ev.Arrived(at_s=at_s, rid=i, model="magika", items=items, deadline_s=at_s + deadline_s)
        for i, (at_s, items) in enumerate(zip(plan.at_s, plan.items, strict=True))
    ]
    down_s = plan.at_s[-1] / 2
    up_s = down_s + START_S + (profile.cold.load_s + profile.cold.first_run_s if profile.cold else 0.0)
    faults: list[ev.Event] = [
        ev.ReplicaDown(at_s=down_s, replica="cpu-0", why="killed"),
        ev.ReplicaStarting(at_s=down_s, replica="cpu-0", pool="cpu", ready_s=up_s),
        ev.ReplicaUp(at_s=up_s, replica="cpu-0", pool="cpu"),
    ]
    draws = {("cpu", "magika"): simulate.from_profile(profile)}
    return simulate.run(configured, arrivals, draws, policies.load, faults=faults)


def _serve(
    path: Path, folder: Path, plan: load.Plan, environ: Mapping[str, str], progress: Progress
) -> tuple[load.Result, str, dict[str, Any], str]:
    """Start the gateway, send the plan, kill a replica half-way, fetch a receipt, drain."""
    progress("starting the gateway", 0.0)
    errors = (folder / "gateway.stderr").open("wb")
    with (
        errors,
        subprocess.Popen(  # noqa: S603  # this very program
            [sys.executable, "-m", "turnout", "serve", str(path)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=dict(environ),
            start_new_session=True,
        ) as gateway,
    ):
        try:
            assert gateway.stdout is not None
            line = gateway.stdout.readline()
            if not line:
                said = (folder / "gateway.stderr").read_text(errors="replace").strip()
                raise CheckFailedError(f"the gateway did not start: {said}")
            ready = msgspec.json.decode(line)
            outcome, killed = _drive(gateway.pid, msgspec.structs.replace(plan, port=ready["port"]), environ, progress)
            receipt = _receipt(ready["url"], plan)
        finally:
            gateway.send_signal(signal.SIGTERM)
            gateway.wait(timeout=60)
    return outcome, killed, receipt, ready["log"]


def _drive(
    gateway_pid: int, plan: load.Plan, environ: Mapping[str, str], progress: Progress
) -> tuple[load.Result, str]:
    """Run the client in its own process; kill one worker of the gateway when half of the plan is sent."""
    killed = ""
    with subprocess.Popen(
        [sys.executable, "-c", "from turnout.demo.load import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(environ),
        start_new_session=True,  # Ctrl-C is for the demo, which ends its processes itself
    ) as client:
        try:
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(msgspec.json.encode(plan))
            client.stdin.close()
            total = len(plan.at_s)
            for line in client.stdout:
                said = msgspec.json.decode(line)
                if "status" in said:
                    return msgspec.convert(said, load.Result, strict=False), killed
                dead = ", 1 replica killed" if killed else ""
                progress(f"serving: {said['sent']} sent, {said['answered']} answered{dead}", said["sent"] / total)
                if not killed and said["sent"] >= total / 2:
                    killed = _kill_worker(gateway_pid)
        finally:
            client.kill()
    raise CheckFailedError("the demo's client ended without a result; its own message is above")


def _kill_worker(gateway_pid: int) -> str:
    """SIGKILL one worker process of the gateway; says what was done."""
    for pid in _children(gateway_pid):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"turnout.pools.worker" in command:
            os.kill(pid, signal.SIGKILL)
            return f"worker process {pid} killed with SIGKILL half-way"
    return "no replica killed: worker processes cannot be found on this system"


def _children(pid: int) -> list[int]:
    """Processes started by `pid`, where the system has /proc."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def _receipt(url: str, plan: load.Plan) -> dict[str, Any]:
    """The receipt of a late request of several files, which is still in the gateway's memory."""
    number = max(i for i, items in enumerate(plan.items) if items > 1)
    with urllib.request.urlopen(f"{url}/v2/turnout/decisions/demo-{number}", timeout=10) as answer:  # noqa: S310
        receipt: dict[str, Any] = msgspec.json.decode(answer.read())
    return receipt


def _traffic(plan: load.Plan, outcome: load.Result, deadline_s: float, capacity: float) -> Traffic:
    """Count the client's side."""
    good = sorted(s for s, status in zip(outcome.latency_s, outcome.status, strict=True) if status == 200)
    met = sum(s <= deadline_s for s in good)
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
