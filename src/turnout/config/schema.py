"""What may stand in a config file: every key with its type, unit, default and bounds.

The docstring under each field is its documentation; docs/config.md is made from them. Pydantic is used here and
nowhere further in: `resolve` makes the core's values.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any, Literal, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Section(BaseModel):
    """Root of all sections: unknown keys are errors, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class GatewayConfig(Section):
    """`[gateway]`: the server itself."""

    host: str = "127.0.0.1"
    """Address to listen on; the default is reachable from this machine only."""
    port: int = Field(default=8080, ge=0, le=65535)
    """TCP port; 0 takes a free one."""
    log: Path | None = Path("log")
    """Folder of the event log; "" keeps none."""
    log_segment_bytes: int = Field(default=64 << 20, ge=4096)
    """Size in bytes at which a log segment is ended and the next one begun."""
    log_fsync: Literal["close", "tick"] = "close"
    """When the log is forced to disk: at the end of a segment, or after every tick (slow)."""
    max_body_bytes: int = Field(default=64 << 20, ge=1)
    """Largest request body in bytes, also after decompression; larger ones get 413."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds that a client may take to send a request body."""
    grace_s: float = Field(default=30.0, ge=0)
    """Seconds that a drain waits for requests under way before it rejects them."""
    drain_delay_s: float = Field(default=0.0, ge=0)
    """Seconds between turning unready and refusing requests, for load balancers to notice."""
    receipts: int = Field(default=10_000, ge=0)
    """How many decision receipts are kept in memory."""
    seed: int = Field(default=0, ge=0)
    """Seed of the policy's generator."""


class PolicyConfig(Section):
    """`[policy]`: how the router chooses."""

    name: str = "turnout"
    """Name of the policy; see `turnout.policies`."""
    params: dict[str, Any] = {}
    """The policy's own parameters."""


class LimitsConfig(Section):
    """`[limits]`: what the router never exceeds, whatever its policy asks."""

    max_waiting: int = Field(default=10_000, ge=1)
    """Requests that may queue; more are refused."""
    max_attempts: int = Field(default=3, ge=1)
    """Replicas that a batch is tried on."""
    hedge_share: float = Field(default=0.0, ge=0, le=1)
    """Share of all dispatches that may be hedges."""
    hedge_burst: float = Field(default=10.0, ge=0)
    """Hedges that may be saved up."""


class SloConfig(Section):
    """`slo` of a model: its latency objective."""

    deadline_ms: float = Field(gt=0)
    """Milliseconds within which a request is to be answered."""
    attainment: float = Field(default=0.99, gt=0, le=1)
    """Share of all requests that must be."""


class ModelConfig(Section):
    """`[[models]]`: what is served."""

    name: str = Field(pattern=NAME)
    """Name in the URL."""
    path: str = ""
    """The model: an ONNX file (relative to the config) or `module:function`; a simulated model has none."""
    slo: SloConfig
    """Latency objective."""
    mergeable: bool = True
    """Whether items of several requests may share a batch."""
    batch_axes: dict[str, int] = {}
    """Axis that counts items, of tensors where the model leaves it open; -1 if the whole batch shares the tensor."""
    late: Literal["reject", "serve"] = "reject"
    """What becomes of a request that cannot meet its deadline: refuse it at once, or run it all the same."""
    priority: int = Field(default=1, ge=0)
    """Priority of requests that name none; 0 is the highest."""
    max_parts: int = Field(default=1, ge=1)
    """Batches that one request may be split over."""
    weights: int = Field(default=0, ge=0)
    """Number of the model's parameters, for policies that go by it (`static`); 0 if nobody says."""


class PriceConfig(Section):
    """`price` of a pool: what one replica costs."""

    usd_per_h: float = Field(default=0.0, ge=0)
    """Dollars per hour of one replica, at list price."""
    billing: Literal["sunk", "elastic", "per_use"] = "sunk"
    """Paid already, by the hour that a replica is up, or by the second that it is busy."""
    min_billed_s: float = Field(default=0.0, ge=0)
    """Least seconds that are billed per start (elastic)."""
    outside_value_usd_per_h: float = Field(default=0.0, ge=0)
    """Dollars that an hour of one replica would earn elsewhere."""
    source: str = ""
    """Where the price comes from."""
    date: str = ""
    """When it was valid (ISO 8601)."""


class LinkConfig(Section):
    """`link` of a pool: the network between the gateway and it."""

    rtt_ms: float = Field(default=0.0, ge=0)
    """Round trip in milliseconds."""
    bytes_per_s: float | None = Field(default=None, gt=0)
    """Bandwidth in bytes per second; none if it never limits."""
    usd_per_gb: float = Field(default=0.0, ge=0)
    """Dollars per 10^9 bytes carried."""


class LineConfig(Section):
    """`latency` of a pool: the line a + b · items, where there is no profile."""

    a_s: float = Field(ge=0)
    """Seconds that every batch takes."""
    b_s_per_item: float = Field(ge=0)
    """Further seconds per item."""


class PoolConfig(Section):
    """`[[pools]]`: identical replicas on one device."""

    name: str = Field(pattern=NAME)
    """Name of the pool; its replicas are name-0, name-1, …"""
    device: str = "cpu"
    """Device kind: cpu, cuda, webgpu."""
    backend: str = "onnx"
    """What runs the models: onnx, torch, callable, simulated."""
    models: tuple[str, ...] = Field(min_length=1)
    """Names of the models that every replica loads."""
    replicas: int = Field(default=1, ge=1)
    """Number of replicas."""
    workers: Literal["process", "thread"] = "process"
    """A process per replica (a crash costs one batch), or a thread in the gateway (faster for small models)."""
    threads: int | None = Field(default=None, ge=1)
    """Computing threads of one replica; none lets the backend choose."""
    slots: int | None = Field(default=None, ge=1)
    """Batches on one replica at once; none is 1 on cpu and 2 elsewhere."""
    max_items: int | None = Field(default=None, ge=1)
    """Largest batch; none is the largest that every profile of the pool covers."""
    profile: dict[str, Path] = {}
    """Profile file of each model on this device (relative to the config)."""
    latency: LineConfig | None = None
    """In place of profiles: one line for every model; only for simulated pools."""
    options: dict[str, Any] = {}
    """Options of the backend."""
    price: PriceConfig = PriceConfig()
    """What a replica costs."""
    link: LinkConfig = LinkConfig()
    """The network to the pool."""
    start_s: float | None = Field(default=None, ge=0)
    """Cold start of a replica in seconds; none takes it from the profiles."""


class PoolsConfig(Section):
    """A file with pools alone."""

    pools: tuple[PoolConfig, ...] = Field(min_length=1)
    """What could be added to a fleet."""


class Config(Section):
    """A whole config file."""

    gateway: GatewayConfig = GatewayConfig()
    """The server."""
    policy: PolicyConfig = PolicyConfig()
    """How the router chooses."""
    limits: LimitsConfig = LimitsConfig()
    """What it never exceeds."""
    models: tuple[ModelConfig, ...] = Field(min_length=1)
    """What is served."""
    pools: tuple[PoolConfig, ...] = Field(min_length=1)
    """What it is served on, in the order that breaks ties."""

    @pydantic.model_validator(mode="after")
    def _names(self) -> Self:
        """Names are unique, and pools refer to models that there are."""
        models = [model.name for model in self.models]
        faults = [f"models: {name} is there twice" for name in _twice(models)]
        faults += [f"pools: {name} is there twice" for name in _twice([pool.name for pool in self.pools])]
        for number, pool in enumerate(self.pools):
            for key, names in (("models", pool.models), ("profile", tuple(pool.profile))):
                faults += [
                    f"pools[{number}].{key}: no model is called {name!r}{meant(name, models)}"
                    for name in names
                    if name not in models
                ]
        faults += self._sources()
        served = {name for pool in self.pools for name in pool.models}
        faults += [f"models: no pool serves {name}" for name in models if name not in served]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _sources(self) -> list[str]:
        """Only simulated pools do without a model file and a measured profile."""
        faults = []
        paths = {model.name: model.path for model in self.models}
        for number, pool in enumerate(self.pools):
            if pool.backend == "simulated":
                continue
            if pool.latency is not None:
                faults.append(f"pools[{number}].latency: only a simulated pool may do without a measured profile")
            faults += [
                f"pools[{number}].models: {name} has no path, and backend {pool.backend} needs one"
                for name in pool.models
                if not paths.get(name, "-")
            ]
        return faults


def meant(name: str, known: list[str]) -> str:
    """What was probably meant by an unknown `name`, else the list of what there is; to be put behind a message."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are: {', '.join(known)}" if known else ""


def _twice(names: list[str]) -> list[str]:
    """The names that occur more than once."""
    return sorted({name for name in names if names.count(name) > 1})
