"""What `turnout simulate` leaves behind: frozen values, stored by `store`, printed by `text` and `html`. No behaviour.

Everything in it is modelled; `service_times` says of each profile whether that was measured or published.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from turnout.core.account import Summary

QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)
"""Of latencies."""


class ServiceTimes(Struct, frozen=True, kw_only=True):
    """Where one model's times on one pool come from; `largest` is the largest batch measured, None of a line."""

    pool: str
    model: str
    kind: str
    source: str
    largest: int | None


class Pool(Struct, frozen=True, kw_only=True):
    """One pool of the fleet; dollars are of one replica."""

    name: str
    device: str
    replicas: int
    max_items: int
    usd_per_h: float


class Objective(Struct, frozen=True, kw_only=True):
    """What one model is asked: the share `attainment` within `deadline_s`; a request may be cut into `max_parts`."""

    model: str
    deadline_s: float
    attainment: float
    max_parts: int


class Traffic(Struct, frozen=True, kw_only=True):
    """The requests of the first seed. `source` is the file, or the laws; `redrawn` is that each seed has its own."""

    source: str
    requests: int
    duration_s: float
    rate_per_s: float
    mean_items: float
    largest_items: int
    redrawn: bool


class Mark(Struct, frozen=True, kw_only=True):
    """A fault in the timeline: seconds from which and until which it lasts (None: to the end), as flags have it."""

    from_s: float
    until_s: float | None
    text: str


class Timeline(Struct, frozen=True, kw_only=True):
    """The run in equal spans of `width_s` seconds, from second 0; each tuple has one value per span.

    `attainment` is of the requests that arrived in the span, None where none did. `waiting` is the most requests that
    waited for a replica at once. `utilisation` is, by pool, busy seconds of all its replicas / their number / width.
    """

    width_s: float
    arrivals_per_s: tuple[float, ...]
    attainment: tuple[float | None, ...]
    waiting: tuple[int, ...]
    utilisation: dict[str, tuple[float, ...]]


class Decile(Struct, frozen=True, kw_only=True):
    """A tenth of the requests by size, or less where one size is that of more than a tenth: sizes `low` to `high`."""

    low: int
    high: int
    requests: int
    rejects: int
    met: int


class Latencies(Struct, frozen=True, kw_only=True):
    """Seconds from arrival to answer at `QUANTILES`, of the requests whose last batch ran on `pool` ("": of all)."""

    pool: str
    requests: int
    seconds: tuple[float, ...]


class Run(Struct, frozen=True, kw_only=True):
    """One policy on one seed. `beyond_profile` batches were larger than any measured, their times extrapolated."""

    policy: str
    params: dict[str, Any]
    seed: int
    summary: Summary
    timeline: Timeline
    deciles: tuple[Decile, ...]
    latencies: tuple[Latencies, ...]
    beyond_profile: int


class Simulated(Struct, frozen=True, kw_only=True):
    """The whole answer. `runs` are in the order asked, all seeds of a policy together; `verdict` is it in sentences."""

    date: str
    version: str
    origin: str
    service_times: tuple[ServiceTimes, ...]
    traffic: Traffic
    pools: tuple[Pool, ...]
    objectives: tuple[Objective, ...]
    seeds: tuple[int, ...]
    tails: tuple[str, ...]
    faults: tuple[Mark, ...]
    runs: tuple[Run, ...]
    max_missed: int | None = None
    notes: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()
