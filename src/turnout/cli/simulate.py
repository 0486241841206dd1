"""`turnout simulate` on the command line: parse, call, print."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cyclopts import Parameter

from turnout.cli import flags
from turnout.cli.flags import Many, Switch
from turnout.cli.terminal import answer, progress
from turnout.errors import ConfigError

COUNT = 20_000
"""Requests that a law draws where nothing is said."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FleetFlags:
    """What serves, where there is no config; or in place of what it says."""

    model: str = ""
    """Model of the published tables in the package, such as rm2, in place of a config."""
    fleet: Many = ()
    """INSTANCE=REPLICAS,… of the published tables, such as g4dn.xlarge=2,r5n.large=9."""
    slo_ms: float | None = None
    """Milliseconds within which a request is to be answered."""
    attainment: float | None = None
    """Share of all requests that must be; 0.99."""
    price: Many = ()
    """POOL=DOLLARS_PER_HOUR of one replica."""
    max_parts: int | None = None
    """Batches that one request may be split over; 1."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrafficFlags:
    """What arrives: a trace, or laws."""

    trace: Path | None = None
    """A trace: Azure's LLM CSV, Mooncake's JSON lines, requests per second, or a log of turnout serve."""
    items: Literal["in", "out"] = "in"
    """Tokens of the trace that are taken for a request's items: context or generated."""
    window: str = ""
    """FROM-UNTIL, seconds of the trace, such as 3600-7200."""
    arrivals: str = ""
    """poisson, gamma:cv=13.2, diurnal:peak=2,period_s=3600 or counts:FILE of requests per second; poisson."""
    rate: float | None = None
    """Requests per second; a trace keeps its own, or is scaled to it."""
    count: int | None = None
    """Requests drawn from laws (20000), or the first ones of a trace."""
    sizes: str = ""
    """kairos, deeprecsys, fixed:32, uniform:1-64, normal:165,16, lognormal:5.1,0.2,100-200, choice:1=0.9,64=0.1."""
    mix: Many = ()
    """MODEL=SHARE,… of requests, where the config has several models and the trace does not name them."""


def simulate(
    config: Path | None = None,
    /,
    *,
    runs: FleetFlags = FleetFlags(),
    load: TrafficFlags = TrafficFlags(),
    policy: str = "",
    params: str = "",
    seeds: str = "0",
    tail: Many = (),
    fault: Many = (),
    extrapolate: Switch = False,
    max_missed: int | None = None,
    jobs: int = 1,
    out: Path | None = None,
    json: Switch = False,
) -> None:
    """Run traffic through the router on a virtual clock: what each policy makes of a fleet. Exact from the seeds.

    Args:
        config: The TOML file of turnout serve; or say --model and --fleet.
        runs: What serves.
        load: What arrives.
        policy: Comma-separated, such as turnout,kairos,earliest; the config's.
        params: Their parameters as TOML: 'items = 64' of one policy, 'threshold.items = 64' of several.
        seeds: Comma-separated; each is one run of each policy, with the same requests and luck for all.
        tail: lognormal=0.2 (noise) or two-state=4,30,2 (four times as slow for 2 s, every 30 s on average).
        fault: lost:gpu-0@30[,back=60], slow:gpu-0@30-60,factor=3, drift:gpu@30,factor=2 or cold:gpu-0,start_s=600.
        extrapolate: Let batches be larger than any that was measured; the result says how many were.
        max_missed: End a run once more requests than this have missed.
        jobs: Processes; the result is the same with any number.
        out: Folder for simulated.json and report.html.
        json: Print one JSON document.
    """
    from turnout.simulate import study
    from turnout.simulate.text import show

    given = _given(config, runs)
    options = _options(given, seeds, tail, fault, extrapolate=extrapolate, max_missed=max_missed, jobs=jobs)
    chosen = study.contenders(tuple(filter(None, policy.split(","))), flags.toml("--params", params), given)
    with progress() as told:
        found = study.study(given, _source(load, given), chosen, options, now=datetime.now(UTC), progress=told)
    answer(found, show, json=json, written=study.save(found, out) if out else [], width=160)


def _given(path: Path | None, runs: FleetFlags) -> Any:
    """Fleet, models and service times."""
    from turnout.simulate import given

    asked = flags.objective(runs.slo_ms, runs.attainment)
    if runs.max_parts is not None and runs.max_parts < 1:
        raise ConfigError(f"--max-parts {runs.max_parts} is not at least 1")
    prices = flags.prices(runs.price)
    if path is not None:
        if runs.model or runs.fleet:
            raise ConfigError("a config says what serves: leave out --model and --fleet")
        return given.from_config(path, os.environ, asked, prices, runs.max_parts)
    if not runs.model:
        raise ConfigError(
            "say what serves: a config of turnout serve, or --model rm2 --fleet g4dn.xlarge=2,r5n.large=9"
        )
    return given.from_published(runs.model, flags.counts("--fleet", runs.fleet), asked, prices, runs.max_parts)


def _source(load: TrafficFlags, given: Any) -> Any:
    """The requests of each seed."""
    from turnout.simulate import traffic
    from turnout.traces import files, laws

    if load.rate is not None and not 0.0 < load.rate < 1e9:
        raise ConfigError(f"--rate {load.rate:g} is not a number of requests per second")
    if load.count is not None and load.count < 1:
        raise ConfigError(f"--count {load.count} is not at least 1")
    sizes = laws.parse_sizes(load.sizes) if load.sizes else None
    mix = {name: flags.amount("--mix", text, "a share") for name, text in flags.pairs("--mix", load.mix)}
    if not all(mix.values()):
        raise ConfigError("--mix: a share of 0 is none: leave the model out")
    if load.trace is None:
        if load.window or load.rate is None or sizes is None:
            raise ConfigError("say what arrives: --trace FILE, or --rate REQUESTS_PER_SECOND and --sizes LAW")
        source = traffic.of_laws(files.arrival_law(load.arrivals or "poisson"), sizes, load.rate, load.count or COUNT)
        wanted = traffic.Wanted(mix=mix)
    else:
        if load.arrivals:
            raise ConfigError("--trace says when requests arrive: leave out --arrivals")
        source = _from_file(load, sizes)
        wanted = traffic.Wanted(rate_per_s=load.rate, count=load.count, mix=mix)
    return traffic.for_models(source, [w.name for w in given.head.models], wanted)


def _from_file(load: TrafficFlags, sizes: Any) -> Any:
    """A trace of whatever format."""
    from turnout import replay
    from turnout.simulate import traffic
    from turnout.traces import files

    path = load.trace
    assert path is not None
    told = files.detect(path)
    if told == "turnout":
        if sizes is not None or load.window:
            raise ConfigError("a log of turnout serve has its own sizes and times: leave out --sizes and --window")
        recorded = files.of_arrivals(replay.record(path).arrivals, f"{path.name}, a log of turnout serve")
        return traffic.Source(draw=lambda _seed: recorded, redrawn=False)
    window = _window(load.window)
    return traffic.Source(
        draw=lambda seed: files.read(path, items=load.items, sizes=sizes, window_s=window, seed=seed),
        redrawn=sizes is not None,
    )


def _options(
    given: Any,
    seeds: str,
    tail: Sequence[str],
    fault: Sequence[str],
    *,
    extrapolate: bool,
    max_missed: int | None,
    jobs: int,
) -> Any:
    from turnout.simulate import faults, tails
    from turnout.simulate.study import Options

    if not 1 <= jobs <= 256:
        raise ConfigError(f"--jobs {jobs} is not a number of processes")
    if not re.fullmatch("[0-9]{1,9}(,[0-9]{1,9})*", seeds):
        raise ConfigError(f"--seeds {seeds!r} is not a list of whole numbers such as 0,1,2")
    if max_missed is not None and max_missed < 0:
        raise ConfigError(f"--max-missed {max_missed} is negative")
    return Options(
        seeds=tuple(dict.fromkeys(int(part) for part in seeds.split(","))),
        tails=tuple(tails.parse(text) for text in tail),
        faults=tuple(faults.parse(text, given.head.fleet) for text in fault),
        extrapolate=extrapolate,
        max_missed=max_missed,
        jobs=jobs,
    )


def _window(text: str) -> tuple[float, float] | None:
    """FROM-UNTIL in seconds."""
    if not text:
        return None
    found = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ConfigError(f"--window {text!r} is not FROM-UNTIL in whole seconds, such as 3600-7200")
    return float(found[1]), float(found[2])
