"""A config to the core's values: profiles are opened and checked, latency models fitted, units converted.

How to open a profile and how to digest a model are arguments, so that this package knows neither artefacts nor models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from turnout.config.schema import Config, ModelConfig, PoolConfig
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


def resolve(config: Config, load_profile: Callable[[Path], Profile], digest: Callable[[str], str]) -> Resolved:
    """Open the profiles and make the core's values.

    Raises:
        ConfigError: a profile is missing, unreadable, of another model or device, or failed its comparison with the
            reference; the message lists every fault.
    """
    faults: list[str] = []
    digests = {model.name: digest(model.path) if model.path else "" for model in config.models}
    models = {model.name: model for model in config.models}
    latencies: dict[str, dict[str, latency.LatencyModel]] = {name: {} for name in digests}
    pools = []
    for number, pool in enumerate(config.pools):
        profiles = {}
        for name in pool.models:
            if pool.latency is not None:
                latencies[name][pool.name] = latency.line(pool.latency.a_s, pool.latency.b_s_per_item)
                continue
            try:
                profiles[name] = _open_profile(pool, models[name], load_profile, digests[name])
            except ArtefactError as error:
                faults.append(f"pools[{number}].profile.{name}: {error}")
            else:
                latencies[name][pool.name] = latency.fit(profiles[name])
        pools.append(_pool_spec(pool, profiles))
    if faults:
        raise ConfigError(listed("the config cannot be served", faults))
    return Resolved(
        fleet=Fleet(pools=tuple(pools)),
        workloads=tuple(_workload(m, latencies[m.name], digests[m.name]) for m in config.models),
        limits=Limits(**config.limits.model_dump()),
    )


def _open_profile(
    pool: PoolConfig, model: ModelConfig, load_profile: Callable[[Path], Profile], digest: str
) -> Profile:
    """The profile of a model in a pool.

    Raises:
        ArtefactError: there is none, or it must not be used.
    """
    path = pool.profile.get(model.name)
    if path is None:
        raise ArtefactError(
            f"{pool.name} has no profile of {model.name} on {pool.device}; measure one "
            f"(turnout measure {model.path or model.name} --devices {pool.device}) and name its file here"
        )
    profile = load_profile(path)
    if profile.device != pool.device:
        raise ArtefactError(f"{path} is of device {profile.device}, and the pool is on {pool.device}")
    if not profile.routable:
        raise ArtefactError(f"{path} failed its comparison with the CPU's outputs, so nothing may be routed there")
    if digest and profile.model_digest and profile.model_digest != digest:
        raise ArtefactError(
            f"{path} was measured on other weights than those of {model.path} "
            f"({profile.model_digest} and {digest}): measure again"
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
