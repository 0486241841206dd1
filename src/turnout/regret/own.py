"""What they run: the machines, their service times and their prices, from a config, published tables, or the log.

All three come out as one `Own`, so that nothing after this knows which it was. Nothing is simulated here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path

from msgspec.structs import replace

from turnout import config, simulate, store
from turnout.core import events as ev
from turnout.core import latency
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, Limits, PoolSpec
from turnout.core.profile import Profile, ProfileTable
from turnout.core.workload import Slo, Workload
from turnout.errors import ConfigError
from turnout.regret import fitted
from turnout.simulate import Draw
from turnout.traces.access import AccessLog

Latency = dict[tuple[str, str], latency.LatencyModel]
"""A latency model by (pool, model)."""

MAX_WAITING = 1_000_000
"""Of a simulated router: what queues in the log must be able to queue in the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`deadline_s` overrides every model's own where it is not None, `attainment` likewise."""

    deadline_s: float | None = None
    attainment: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What flags say of the machines, by pool: replicas, dollars per hour of one, and a pattern of its backends."""

    counts: Mapping[str, int]
    prices: Mapping[str, float]
    patterns: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What they run. `head` has fleet and models; the models are named as the log names them, in its order.

    `draws` are realised times by (pool, model). `max_parts` is how many batches a request may be split over. `pool_of`
    gives the pool of each of the log's backends, None where it is not known of all. `as_recorded` is that `head` has
    the very policy that was run. `fits` are the latency models that were fitted to the log, by pool; `service_times`
    says where the service times come from.
    """

    head: ev.Configured
    draws: Mapping[tuple[str, str], Draw]
    max_parts: int
    pool_of: tuple[str, ...] | None
    service_times: str
    as_recorded: bool = False
    fits: Mapping[str, fitted.Fit] | None = None
    notes: tuple[str, ...] = ()

    @property
    def pools(self) -> tuple[PoolSpec, ...]:
        """The pools of the fleet."""
        return self.head.fleet.pools

    @property
    def latencies(self) -> Latency:
        """The latency models by (pool, model)."""
        return {(pool, w.name): model for w in self.head.models for pool, model in w.latency.items()}

    @property
    def attainment(self) -> float:
        """The share that has to be in time: the strictest of all models."""
        return max(w.slo.attainment for w in self.head.models)


def from_config(path: Path, log: AccessLog, objective: Objective, backends: Mapping[str, str]) -> Own:
    """The pools and models of a `turnout serve` config; service times from its profiles or latency lines.

    Raises:
        ConfigError: the config is wrong, a profile cannot be used, or the log has a model that it does not.
    """
    chosen = config.load(path, {})
    resolved = config.resolve(chosen, lambda file: store.load(file, Profile), lambda _path: "")
    known = {w.name: w for w in resolved.workloads}
    if len(known) == 1 and len(log.models) == 1:
        (only,) = known.values()
        known = {log.models[0]: only}
    absent = [name for name in log.models if name not in known]
    if absent:
        raise ConfigError(
            f"the log has the models {', '.join(absent)}, which are not among [[models]] of {path}: {', '.join(known)}"
        )
    used = [known[name] for name in log.models]
    latencies = {(pool, name): model for name in log.models for pool, model in known[name].latency.items()}
    renamed = {w.name: name for name, w in zip(log.models, used, strict=True)}
    pools = [
        replace(pool, models=tuple(renamed[name] for name in pool.models if name in renamed))
        for pool in resolved.fleet.pools
    ]
    return Own(
        head=_head(
            [pool for pool in pools if pool.models],
            latencies,
            [_slo(w.slo, objective) for w in used],
            [w.mergeable for w in used],
            log.models,
        ),
        draws={key: simulate.from_model(model) for key, model in latencies.items()},
        max_parts=max(m.max_parts for m in chosen.models),
        pool_of=pools_of(log, [pool.name for pool in pools], backends),
        service_times=f"profiles and latency lines of {path.name}",
    )


def from_published(model: str, said: Said, log: AccessLog, objective: Objective) -> Own:
    """So many of the instances in the published tables that ship with the package; items beyond the tables do not fit.

    Raises:
        ConfigError: no such model or instance, no price for it, or no deadline.
    """
    table = store.load(Path(str(files("turnout").joinpath("data/kairos.json"))), ProfileTable).profiles
    of_model = {p.device_key: p for p in table if p.model == model}
    if not of_model:
        raise ConfigError(f"--published {model}: the tables have {', '.join(sorted({p.model for p in table}))}")
    deadline = _needed_slo(objective)
    pools = []
    for name, count in said.counts.items():
        if name not in of_model:
            raise ConfigError(f"--fleet {name}={count}: the tables of {model} have {', '.join(sorted(of_model))}")
        if name not in said.prices:
            raise ConfigError(f"--fleet {name}={count} has no price: add --price {name}=DOLLARS_PER_HOUR")
        profile = of_model[name]
        spec = _pool(name, log.models, device=profile.device, replicas=count, most=profile.max_items)
        pools.append(_priced(spec, said.prices[name]))
    if not pools:
        raise ConfigError(f"--published needs --fleet INSTANCE=N,…; the tables of {model} have {', '.join(of_model)}")
    draws = {(pool.name, name): simulate.from_profile(of_model[pool.name]) for pool in pools for name in log.models}
    latencies = {(p.name, name): latency.fit(of_model[p.name]) for p in pools for name in log.models}
    slos, mergeable = [deadline] * len(log.models), [True] * len(log.models)
    source = next(iter(of_model.values())).provenance
    return Own(
        head=_head(pools, latencies, slos, mergeable, log.models),
        draws=draws,
        max_parts=1,
        pool_of=pools_of(log, list(said.counts), said.patterns),
        service_times=f"published: {model}, {source.source}",
        notes=("the service times are published ones of other machines, not of those that wrote this log",),
    )


def from_log(said: Said, log: AccessLog, objective: Objective) -> Own:
    """The backends that the log names, with latency models fitted to it; only prices come from elsewhere.

    The pool that is fastest on the largest requests is taken for the accelerator, which is what size thresholds ask.

    Raises:
        ConfigError: no deadline, no backends in the log, some that no `prices` name covers, or too few rows to fit.
    """
    slo, prices, patterns = _needed_slo(objective), said.prices, said.patterns
    if not log.backends:
        raise ConfigError(
            f"{log.source} does not say which backend served a request, so nothing can be fitted to it: name the "
            "column with --map backend=COLUMN, or describe what you run with --fleet FLEET.toml"
        )
    pool_of = pools_of(log, list(prices), patterns)
    if pool_of is None:
        homeless = [b for b in log.backends if _pool_of(b, list(prices), patterns) is None]
        raise ConfigError(
            f"{len(homeless)} backends of the log belong to no pool: {', '.join(homeless[:5])}; price each with "
            "--price NAME=DOLLARS_PER_HOUR, or gather several in a pool with --backend NAME=PATTERN, such as "
            "gpu=10.0.1.*"
        )
    idle = [name for name in prices if name not in pool_of]
    if idle:
        raise ConfigError(
            f"--price {idle[0]}: no backend of the log belongs to it; there are {', '.join(log.backends)}"
        )
    fits = fitted.fit_pools(log, pool_of)
    largest = int(log.items.max())
    fastest = min(prices, key=lambda name: sum(fits[name].models[m].mean_s(largest) for m in log.models))
    pools = []
    for name, price in prices.items():
        replicas = said.counts.get(name, pool_of.count(name))
        device = "cuda" if name == fastest and len(prices) > 1 else "cpu"
        spec = _pool(name, log.models, device=device, replicas=replicas, most=largest)
        pools.append(_priced(spec, price))
    latencies = {(name, model): fits[name].models[model] for name in prices for model in log.models}
    slos, mergeable = [slo] * len(log.models), [False] * len(log.models)
    beyond = [f"{name} ({fits[name].largest})" for name in prices if fits[name].largest < largest]
    notes = (
        [f"{fastest} is taken for the accelerator: it is fastest on the largest requests"] if len(prices) > 1 else []
    )
    if beyond:
        notes.append(f"sizes beyond the largest that a pool was seen to serve are extrapolated: {', '.join(beyond)}")
    return Own(
        head=_head(pools, latencies, slos, mergeable, log.models),
        draws={key: simulate.from_model(model) for key, model in latencies.items()},
        max_parts=1,
        pool_of=pool_of,
        service_times=f"fitted to {log.source}: {next(iter(fits.values())).basis}",
        fits=fits,
        notes=tuple(notes),
    )


def pools_of(log: AccessLog, pools: Sequence[str], patterns: Mapping[str, str]) -> tuple[str, ...] | None:
    """The pool of each backend of the log; None if the log names none, or one that belongs to no pool."""
    found = [_pool_of(backend, pools, patterns) for backend in log.backends]
    return tuple(name for name in found if name is not None) if found and None not in found else None


def _pool_of(backend: str, pools: Sequence[str], patterns: Mapping[str, str]) -> str | None:
    """A backend belongs to the pool of its name, or of which it is a numbered replica, or whose pattern it fits."""
    for pool in pools:
        if pool in patterns:
            if fnmatchcase(backend, patterns[pool]):
                return pool
        elif backend == pool or re.fullmatch(re.escape(pool) + r"-[0-9]+", backend):
            return pool
    return None


def _needed_slo(objective: Objective) -> Slo:
    if objective.deadline_s is None:
        raise ConfigError("nothing says by when a request has to be answered: add --slo-ms MILLISECONDS")
    return _slo(Slo(deadline_s=objective.deadline_s), objective)


def _slo(slo: Slo, objective: Objective) -> Slo:
    return Slo(
        deadline_s=slo.deadline_s if objective.deadline_s is None else objective.deadline_s,
        attainment=slo.attainment if objective.attainment is None else objective.attainment,
    )


def _pool(name: str, models: tuple[str, ...], *, device: str, replicas: int, most: int) -> PoolSpec:
    free = Price(usd_per_s=0.0)
    return PoolSpec(name=name, device=device, models=models, replicas=replicas, max_items=most, price=free)


def _priced(pool: PoolSpec, usd_per_h: float) -> PoolSpec:
    return replace(pool, price=Price(usd_per_s=usd_per_h / 3600.0, source="--price"))


def _head(
    pools: Sequence[PoolSpec], latencies: Latency, slos: Sequence[Slo], mergeable: Sequence[bool], names: Sequence[str]
) -> ev.Configured:
    """A segment's head without a policy, which every run puts in."""
    models = [
        Workload(
            name=name,
            slo=slo,
            latency={pool.name: latencies[pool.name, name] for pool in pools if (pool.name, name) in latencies},
            mergeable=merge,
        )
        for name, slo, merge in zip(names, slos, mergeable, strict=True)
    ]
    return ev.Configured(
        at_s=0.0,
        fleet=Fleet(pools=tuple(pools)),
        models=tuple(models),
        policy="",
        limits=Limits(max_waiting=MAX_WAITING),
        origin="simulated: arrivals and sizes from an access log",
    )
