"""What exists: pools of replicas, how they are linked, and how they are paid for."""

from __future__ import annotations

from msgspec import Struct

from turnout.core.cost import Price


class Link(Struct, frozen=True, kw_only=True):
    """The network between the router and a pool. The default is none: the profile has every copy in it already.

    `bytes_per_s` is None where the bandwidth never limits.
    """

    rtt_s: float = 0.0
    bytes_per_s: float | None = None
    usd_per_byte: float = 0.0

    def transfer_s(self, nbytes: int) -> float:
        """Seconds to carry `nbytes` there and back."""
        return self.rtt_s + (nbytes / self.bytes_per_s if self.bytes_per_s else 0.0)


class PoolSpec(Struct, frozen=True, kw_only=True):
    """Identical replicas on one device kind.

    `slots` is the number of batches a replica takes at once (1 on a local CPU; 2 on a GPU, so that a copy overlaps a
    computation). `max_items` bounds a batch. `start_p50_s` and `start_p99_s` are the cold start of a replica.
    `parity_ok=False` bars the pool: its outputs disagree with the reference, and nothing is ever routed to it.
    """

    name: str
    device: str
    models: tuple[str, ...]
    replicas: int
    max_items: int
    price: Price
    device_key: str = ""
    slots: int = 1
    memory_bytes: int = 0
    link: Link = Link()
    start_p50_s: float = 0.0
    start_p99_s: float = 0.0
    parity_ok: bool = True


class Fleet(Struct, frozen=True, kw_only=True):
    """All pools, in the order that breaks ties between them."""

    pools: tuple[PoolSpec, ...]


class Limits(Struct, frozen=True, kw_only=True):
    """What the router never exceeds, whatever its policy asks.

    `max_waiting` requests queue at most; a batch is tried on at most `max_attempts` replicas; hedges are at most the
    share `hedge_share` of all dispatches, with at most `hedge_burst` saved up.
    """

    max_waiting: int = 10_000
    max_attempts: int = 3
    hedge_share: float = 0.0
    hedge_burst: float = 10.0
