"""A config to the core's values: profiles are opened and checked, latency models fitted, units converted.

How to open a profile and how to digest a model are arguments, so that this package knows neither artefacts nor models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from turnout.config.schema import Config, ModelConfig, PoolConfig, meant
from turnout.core import latency
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, Limits, Link, PoolSpec
from turnout.core.profile import Profile
from turnout.core.workload import Slo, Workload
from turnout.errors import ArtefactError, ConfigError

DEFAULT_MAX_ITEMS = 32
"""Of a pool whose latency is a line, which says nothing of a largest batch."""


class Resolved(Struct, frozen=True, kw_only=True):
    """A config as the core's values, ready to drive a router."""

    fleet: Fleet
    workloads: tuple[Workload, ...]
    limits: Limits


class Weights(Struct, frozen=True, kw_only=True):
    """Where a model is, "" if it is not known, and the digest of its weights, "" if there are none."""

    path: str
    digest: str


Addition = tuple[PoolSpec, dict[str, latency.LatencyModel]]
"""A pool with its latency model per model that it serves."""


def resolve(config: Config, load_profile: Callable[[Path], Profile], digest: Callable[[str], str]) -> Resolved:
    """Open the profiles and make the core's values.

    Raises:
        ConfigError: a profile is missing, unreadable, of another model or device, or failed its comparison with the
            reference; the message lists every fault.
    """
    models = {
        model.name: Weights(path=model.path, digest=digest(model.path) if model.path else "") for model in config.models
    }
    additions = resolve_pools(config.pools, load_profile, models)
    latencies = {name: {spec.name: row[name] for spec, row in additions if name in row} for name in models}
    return Resolved(
        fleet=Fleet(pools=tuple(spec for spec, _ in additions)),
        workloads=tuple(_workload(m, latencies[m.name], models[m.name].digest) for m in config.models),
        limits=Limits(**config.limits.model_dump()),
    )


def resolve_pools(
    pools: Sequence[PoolConfig], load_profile: Callable[[Path], Profile], models: Mapping[str, Weights]
) -> list[Addition]:
    """Pools without a config around them; `models` are those that there are.

    Raises:
        ConfigError: as in `resolve`, or a pool serves a model that there is not.
    """
    faults: list[str] = []
    additions: list[Addition] = []
    for number, pool in enumerate(pools):
        predictors: dict[str, latency.LatencyModel] = {}
        profiles = {}
        for name in pool.models:
            if name not in models:
                faults.append(f"pools[{number}].models: there is no model {name!r}{meant(name, list(models))}")
            elif pool.latency is not None:
                predictors[name] = latency.line(pool.latency.a_s, pool.latency.b_s_per_item)
            else:
                try:
                    profiles[name] = _open_profile(pool, name, models[name], load_profile)
                    predictors[name] = latency.fit(profiles[name])
                except ArtefactError as error:
                    faults.append(f"pools[{number}].profile.{name}: {error}")
        additions.append((_pool_spec(pool, profiles), predictors))
    if faults:
        raise ConfigError(listed("these pools cannot be served", faults))
    return additions


def _open_profile(pool: PoolConfig, model: str, weights: Weights, load_profile: Callable[[Path], Profile]) -> Profile:
    """The profile of a model in a pool.

    Raises:
        ArtefactError: there is none, or it must not be used.
    """
    path = pool.profile.get(model)
    if path is None:
        raise ArtefactError(
            f"{pool.name} has no profile of {model} on {pool.device}; measure one "
            f"(turnout measure {weights.path or model} --devices {pool.device}) and name its file here"
        )
    profile = load_profile(path)
    if profile.device != pool.device:
        raise ArtefactError(f"{path} is of device {profile.device}, and the pool is on {pool.device}")
    if not profile.routable:
        raise ArtefactError(f"{path} failed its comparison with the CPU's outputs, so nothing may be routed there")
    if weights.digest and profile.model_digest and profile.model_digest != weights.digest:
        raise ArtefactError(
            f"{path} was measured on other weights than those of {weights.path or model} "
            f"({profile.model_digest} and {weights.digest}): measure again"
        )
    if not profile.samples or not all(samples.service_s for samples in profile.samples):
        raise ArtefactError(f"{path} has a batch size without samples: measure again")
    if pool.max_items is not None and pool.max_items > profile.max_items:
        raise ArtefactError(f"{path} covers batches up to {profile.max_items}, and max_items is {pool.max_items}")
    return profile


def _workload(model: ModelConfig, latencies: dict[str, latency.LatencyModel], digest: str) -> Workload:
    """A model as the router sees it."""
    return Workload(
        name=model.name,
        slo=Slo(deadline_s=model.slo.deadline_ms / 1e3, attainment=model.slo.attainment),
        latency=latencies,
        mergeable=model.mergeable,
        late=model.late,
        weights=model.weights,
        digest=digest,
    )


def _pool_spec(pool: PoolConfig, profiles: Mapping[str, Profile]) -> PoolSpec:
    """A pool as the router sees it."""
    measured = min((profile.max_items for profile in profiles.values()), default=DEFAULT_MAX_ITEMS)
    colds = [profile.cold for profile in profiles.values() if profile.cold is not None]
    start_s = sum(cold.load_s + cold.first_run_s for cold in colds) if pool.start_s is None else pool.start_s
    price, link = pool.price, pool.link
    return PoolSpec(
        name=pool.name,
        device=pool.device,
        models=pool.models,
        replicas=pool.replicas,
        max_items=pool.max_items or measured,
        price=Price(
            usd_per_s=price.usd_per_h / 3600.0,
            billing=price.billing,
            min_billed_s=price.min_billed_s,
            outside_value_usd_per_s=price.outside_value_usd_per_h / 3600.0,
            source=price.source,
            date=price.date,
        ),
        device_key=next((profile.device_key for profile in profiles.values()), ""),
        slots=pool.slots or (1 if pool.device == "cpu" else 2),
        link=Link(rtt_s=link.rtt_ms / 1e3, bytes_per_s=link.bytes_per_s, usd_per_byte=link.usd_per_gb / 1e9),
        start_p50_s=start_s,
        start_p99_s=start_s,
    )


def listed(title: str, faults: list[str]) -> str:
    """A title and one line per fault."""
    return "\n".join([f"{title}:", *(f"  {fault}" for fault in faults)])
