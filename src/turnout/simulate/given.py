"""What is simulated: a fleet, its models and their service times, from a config or from the published tables.

Both come out as one `Given`, so that nothing after this knows which it was. A policy sees the fitted latency models;
realised times are drawn from the profiles' own samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from turnout import config, policies, store
from turnout.core import events as ev
from turnout.core import latency
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.profile import Profile, ProfileTable
from turnout.core.trace import Trace
from turnout.core.workload import Slo, Workload
from turnout.errors import ArtefactError, ConfigError
from turnout.simulate.artefact import Objective, Pool, ServiceTimes
from turnout.simulate.draws import Draw, from_model, from_profile
from turnout.simulate.faults import Fault, drifted
from turnout.simulate.tails import Tail, with_tails

Key = tuple[str, str]
"""(pool, model)."""

USD_PER_H = {"g4dn.xlarge": 0.526, "r5n.large": 0.149}
"""Of the published instances, on demand, as the publication has them (Kairos, HPDC 2023)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is simulated. `head` has fleet, models and limits; its policy is the one to run where none is asked for.

    `profiles` has the measured times by (pool, model); a pair that is not in it is a line of the config. `max_parts`
    and `priority` are those of each model's requests. It can be sent to another process.
    """

    head: ev.Configured
    profiles: Mapping[Key, Profile]
    max_parts: Mapping[str, int]
    priority: Mapping[str, int]

    @property
    def slo_s(self) -> dict[str, float]:
        """Deadlines by model."""
        return {w.name: w.slo.deadline_s for w in self.head.models}

    @property
    def largest(self) -> dict[Key, int]:
        """The largest batch that was measured, by (pool, model)."""
        return {pair: profile.max_items for pair, profile in self.profiles.items()}

    def draws(self, tails: Sequence[Tail], faults: Sequence[Fault], seed: int, *, extrapolate: bool) -> dict[Key, Draw]:
        """Realised times by (pool, model), with tails and drifts.

        Raises:
            ArtefactError: a profile of one batch size is to be extrapolated.
        """
        found = {}
        for number, pool in enumerate(self.head.fleet.pools):
            for workload in self.head.models:
                model = workload.latency.get(pool.name)
                if model is None:
                    continue
                profile = self.profiles.get((pool.name, workload.name))
                draw = from_profile(profile, extrapolate=extrapolate) if profile is not None else from_model(model)
                draw = with_tails(draw, tails, seed=seed, pool=number)
                found[pool.name, workload.name] = drifted(draw, pool.name, faults)
        return found


def from_config(
    path: Path, environ: Mapping[str, str], slo: Mapping[str, float], prices: Mapping[str, float], max_parts: int | None
) -> Given:
    """The fleet and models of a `turnout serve` config; `slo`, `prices` and `max_parts` go before what it says.

    Raises:
        ConfigError: the config is wrong, a profile cannot be used, or a price is of a pool that there is not.
    """
    chosen = config.load(path, environ)
    opened: dict[Path, Profile] = {}

    def load(file: Path) -> Profile:
        opened[file] = store.load(file, Profile)
        return opened[file]

    resolved = config.resolve(chosen, load, lambda _path: "")
    profiles = {
        (pool.name, model): opened[file]
        for pool in chosen.pools
        if pool.latency is None
        for model, file in pool.profile.items()
        if model in pool.models
    }
    head = ev.Configured(
        at_s=0.0,
        fleet=Fleet(pools=_priced(resolved.fleet.pools, prices)),
        models=tuple(replace(w, slo=_slo(w.slo, slo)) for w in resolved.workloads),
        policy=chosen.policy.name,
        params=dict(chosen.policy.params),
        limits=resolved.limits,
        origin=f"simulated: the fleet of {path.name}",
    )
    return Given(
        head=head,
        profiles=profiles,
        max_parts={m.name: max_parts or m.max_parts for m in chosen.models},
        priority={m.name: m.priority for m in chosen.models},
    )


def from_published(
    model: str, counts: Mapping[str, int], slo: Mapping[str, float], prices: Mapping[str, float], max_parts: int | None
) -> Given:
    """So many of the instances in the published tables that ship with the package, with one of their models.

    Raises:
        ConfigError: no such model or instance, no deadline, or no replica.
    """
    table = store.load(Path(str(files("turnout").joinpath("data/kairos.json"))), ProfileTable).profiles
    of_model = {p.device_key: p for p in table if p.model == model}
    if not of_model:
        raise ConfigError(f"--model {model!r}: the tables have {', '.join(sorted({p.model for p in table}))}")
    for name, count in counts.items():
        if name not in of_model:
            raise ConfigError(f"--fleet {name}={count}: the tables of {model} have {', '.join(sorted(of_model))}")
    if "deadline_s" not in slo:
        raise ConfigError("nothing says by when a request has to be answered: add --slo-ms MILLISECONDS")
    used = [name for name, count in counts.items() if count]
    if not used:
        raise ConfigError(f"--model needs --fleet INSTANCE=N,…; the tables of {model} have {', '.join(of_model)}")
    pools = [_instance(of_model[name], counts[name]) for name in used]
    workload = Workload(
        name=model,
        slo=_slo(Slo(deadline_s=slo["deadline_s"]), slo),
        latency={name: latency.fit(of_model[name]) for name in used},
    )
    head = ev.Configured(
        at_s=0.0,
        fleet=Fleet(pools=_priced(pools, prices)),
        models=(workload,),
        policy=policies.DEFAULT,
        origin="simulated: published service times",
    )
    profiles = {(name, model): of_model[name] for name in used}
    return Given(head=head, profiles=profiles, max_parts={model: max_parts or 1}, priority={model: 0})


def _instance(profile: Profile, replicas: int) -> PoolSpec:
    """So many of a published instance, at its published price."""
    source = profile.provenance
    price = Price(usd_per_s=USD_PER_H[profile.device_key] / 3600.0, source=source.source, date=source.date)
    return PoolSpec(
        name=profile.device_key,
        device=profile.device,
        models=(profile.model,),
        replicas=replicas,
        max_items=profile.max_items,
        price=price,
        device_key=profile.device_key,
    )


def _slo(slo: Slo, asked: Mapping[str, float]) -> Slo:
    """`asked` may have deadline_s and attainment."""
    return replace(slo, **asked)


def _priced(pools: Sequence[PoolSpec], usd_per_h: Mapping[str, float]) -> tuple[PoolSpec, ...]:
    """The pools with these prices of one replica, whatever they were."""
    names = [pool.name for pool in pools]
    for name in usd_per_h:
        if name not in names:
            raise ConfigError(f"--price {name}: there is no such pool; there are: {', '.join(names)}")
    return tuple(
        replace(p, price=replace(p.price, usd_per_s=usd_per_h[p.name] / 3600.0, source="--price", date=""))
        if p.name in usd_per_h
        else p
        for p in pools
    )


# ---- against the traffic ---------------------------------------------------------------------------------------------


def check_sizes(given: Given, trace: Trace) -> None:
    """Refuse a request of which even the smallest largest part is beyond all that was measured for its model.

    Raises:
        ArtefactError: there is one; it names the first, and what was measured.
    """
    for index, name in enumerate(trace.models):
        pools = [pool.name for w in given.head.models if w.name == name for pool in given.head.fleet.pools
                 if pool.name in w.latency]  # fmt: skip
        if any((pool, name) not in given.profiles for pool in pools):
            continue  # a line goes on for ever
        measured = {pool: given.profiles[pool, name].max_items for pool in pools}
        parts = given.max_parts[name]
        beyond = np.flatnonzero((trace.model == index) & (trace.items > parts * max(measured.values(), default=0)))
        if len(beyond):
            row = int(beyond[0])
            largest = ", ".join(f"{pool} up to {most}" for pool, most in measured.items())
            split = f", in up to {parts} parts" if parts > 1 else ""
            raise ArtefactError(
                f"{len(beyond)} of {len(trace)} requests are beyond the profiles of {name} ({largest}{split}); the "
                f"first is request {row + 1} of {trace.source}, with {trace.items[row]} items. Measure larger batches, "
                "or say --extrapolate to go on at the last slope, which the result then says"
            )


def extrapolated(given: Given, trace: Trace) -> Given:
    """The same, with pools that are limited by their profiles opened to the largest request of the trace."""
    pools = []
    for pool in given.head.fleet.pools:
        measured = [p.max_items for (name, _), p in given.profiles.items() if name == pool.name]
        largest = max((ceil(int(trace.items[trace.model == i].max()) / given.max_parts[name])
                       for i, name in enumerate(trace.models) if name in pool.models and (trace.model == i).any()),
                      default=0)  # fmt: skip
        limited = bool(measured) and pool.max_items >= min(measured)
        pools.append(replace(pool, max_items=max(pool.max_items, largest)) if limited else pool)
    head = replace(given.head, fleet=Fleet(pools=tuple(pools)))
    return Given(head=head, profiles=given.profiles, max_parts=given.max_parts, priority=given.priority)


# ---- for the result --------------------------------------------------------------------------------------------------


def service_times(given: Given) -> tuple[ServiceTimes, ...]:
    """Where each (pool, model)'s times come from."""
    rows = []
    for workload in given.head.models:
        for pool in workload.latency:
            profile = given.profiles.get((pool, workload.name))
            known: dict[str, Any] = {"kind": "modelled", "source": "a line in the config", "largest": None}
            if profile is not None:
                known = {
                    "kind": profile.provenance.kind,
                    "source": f"{profile.provenance.source}, {profile.provenance.hardware}, {profile.provenance.date}",
                    "largest": profile.max_items,
                }
            rows.append(ServiceTimes(pool=pool, model=workload.name, **known))
    return tuple(rows)


def pools(given: Given) -> tuple[Pool, ...]:
    """The fleet."""
    return tuple(
        Pool(
            name=pool.name,
            device=pool.device,
            replicas=pool.replicas,
            max_items=pool.max_items,
            usd_per_h=pool.price.usd_per_s * 3600.0,
        )
        for pool in given.head.fleet.pools
    )


def objectives(given: Given) -> tuple[Objective, ...]:
    """What is asked of each model."""
    return tuple(
        Objective(
            model=w.name,
            deadline_s=w.slo.deadline_s,
            attainment=w.slo.attainment,
            max_parts=given.max_parts[w.name],
        )
        for w in given.head.models
    )
