"""The one call shape of every policy: `decide(view, state, rng) -> (choices, state)`.

A policy is a pure function: it reads the view, asks its pools for predictions, draws randomness from `rng` only, and
returns choices with its next state. It changes nothing. The router validates each choice, so a wrong one costs time
and never a request. `state` is JSON-like (None, numbers, strings, lists, dicts with string keys), since it travels in
the snapshot; a fresh router passes None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from numpy.random import Generator

from turnout.core.cost import Price
from turnout.core.events import Part, Why
from turnout.core.fleet import Link, PoolSpec
from turnout.core.latency import Calibration
from turnout.core.standing import Standing
from turnout.core.workload import Workload


class Waiting(Struct, frozen=True, gc=False, kw_only=True):
    """Items `start`… of one request that no replica has yet: what a policy decides about.

    `ranges_left` is how many more pieces the request may still be cut into. `barred` are pools on which these items
    failed before. `alone` items may be what made a shared batch fail, and share none again.
    """

    rid: int
    start: int
    items: int
    model: str
    arrived_s: float
    deadline_s: float
    nbytes: int = 0
    priority: int = 0
    value_usd: float = 0.0
    ranges_left: int = 0
    attempts: int = 0
    barred: tuple[str, ...] = ()
    alone: bool = False

    @property
    def part(self) -> Part:
        """All of these items."""
        return Part(self.rid, self.start, self.items)


class ReplicaView(Struct, frozen=True, gc=False, kw_only=True):
    """One replica that is up. `free_s` is when it is through with what it has, by prediction (it may be past)."""

    replica: str
    pool: str
    free_s: float
    slots_left: int


class InFlight(Struct, frozen=True, kw_only=True):
    """A batch that was dispatched and is not back. Times are on the log's clock; `deadline_s` is its earliest."""

    batch: int
    replica: str
    pool: str
    model: str
    parts: tuple[Part, ...]
    items: int
    dispatched_s: float
    finish_s: float
    p99_finish_s: float
    deadline_s: float
    hedge: bool = False


class PoolView:
    """A pool as a policy sees it: its spec, and predictions corrected by everything measured so far."""

    __slots__ = ("_calibrations", "_linked", "spec")

    def __init__(self, spec: PoolSpec, calibrations: dict[str, Calibration]) -> None:
        """`calibrations` maps each model that the pool serves to its live predictor."""
        self.spec = spec
        self._calibrations = calibrations
        self._linked = spec.link != Link()

    @property
    def price(self) -> Price:
        """How the pool is paid for."""
        return self.spec.price

    def serves(self, model: str) -> bool:
        """Whether work of `model` may go to this pool at all."""
        return model in self._calibrations

    def mean_s(self, model: str, items: int, nbytes: int = 0) -> float:
        """Predicted mean seconds of service and transfer of a batch."""
        service_s = self._calibrations[model].mean_s(items)
        return service_s + self.spec.link.transfer_s(nbytes) if self._linked else service_s

    def p99_s(self, model: str, items: int, nbytes: int = 0) -> float:
        """Predicted seconds of service and transfer that 99 % of such batches keep."""
        service_s = self._calibrations[model].p99_s(items)
        return service_s + self.spec.link.transfer_s(nbytes) if self._linked else service_s

    def most_items(self, model: str, within_s: float) -> int:
        """The most items of a batch of `model`, without bytes, whose mean and p99 are on average within that.

        At most `max_items`; 0 if one is too many.
        """
        service_s = within_s - self.spec.link.transfer_s(0) if self._linked else within_s
        return self._calibrations[model].most_items(service_s, self.spec.max_items)

    def marginal_usd(self, busy_s: float, nbytes: int = 0) -> float:
        """What one more batch costs here: see `cost`."""
        return self.spec.price.marginal_usd(busy_s) + nbytes * self.spec.link.usd_per_byte


class View(Struct, frozen=True, kw_only=True):
    """Everything a policy may know at one tick.

    `waiting` is in order of deadline, earliest first. `replicas` are those that are up, in the fleet's order.
    `standings` say of each model what its traffic was lately and how many misses it can afford; not to be changed.
    `hedges_left` is how many hedges the budget allows now.
    """

    now_s: float
    waiting: Sequence[Waiting]
    replicas: Sequence[ReplicaView]
    pools: Mapping[str, PoolView]
    workloads: Mapping[str, Workload]
    standings: Mapping[str, Standing]
    in_flight: Sequence[InFlight]
    hedges_left: float


class Run(Struct, frozen=True, kw_only=True):
    """Run these parts as one batch on a replica with a free slot. A hedge repeats parts in flight elsewhere."""

    parts: tuple[Part, ...]
    replica: str
    hedge: bool = False
    why: Why = Why()


class Bind(Struct, frozen=True, kw_only=True):
    """Queue these parts, as one batch, on a replica: it runs as soon as a slot is free, and is not decided again."""

    parts: tuple[Part, ...]
    replica: str
    why: Why = Why()


class Hold(Struct, frozen=True, kw_only=True):
    """Leave these requests waiting on purpose, and decide again at `until_s` at the latest."""

    rids: tuple[int, ...]
    until_s: float


class Drop(Struct, frozen=True, kw_only=True):
    """Reject a request now."""

    rid: int
    reason: str = "shed"


Choice = Run | Bind | Hold | Drop


class Policy(Protocol):
    """A pure function from what waits and what is free to choices; work that no choice names waits on."""

    def __call__(self, view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        """Decide one tick. Must not keep or change any of its arguments."""
