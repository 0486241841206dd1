"""Seconds on a pool to dollars: what one more batch costs, and what the whole bill is.

List price enters a decision only where using the machine changes the bill. On machines already paid for, one more
second costs what else the machine would have earned in it (`outside_value_usd_per_s`), which is mostly nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct


class Price(Struct, frozen=True, kw_only=True):
    """How a replica of a pool is paid for.

    `billing`: "sunk" (already paid: the bill does not depend on use), "elastic" (by the second that a replica is up,
    at least `min_billed_s` per start), "per_use" (by the second that it is busy). `source` and `date` (ISO 8601) say
    where `usd_per_s` comes from.
    """

    usd_per_s: float
    billing: Literal["sunk", "elastic", "per_use"] = "sunk"
    min_billed_s: float = 0.0
    outside_value_usd_per_s: float = 0.0
    source: str = ""
    date: str = ""

    def marginal_usd(self, busy_s: float) -> float:
        """Dollars that `busy_s` more seconds of one replica add, all told; the price of a choice."""
        rate = self.outside_value_usd_per_s
        if self.billing != "sunk":
            rate += self.usd_per_s
        return rate * busy_s

    def list_usd(self, busy_s: float) -> float:
        """Dollars that `busy_s` seconds of one replica are at list price, however it is billed."""
        return self.usd_per_s * busy_s


class Usage(Struct, frozen=True, kw_only=True):
    """What a pool was used for over some horizon: seconds that each replica was up, and busy seconds of all."""

    up_s: tuple[float, ...]
    busy_s: float


def bill_usd(price: Price, usage: Usage) -> float:
    """The pool's bill for `usage`: by the up-time of whole replicas, or by use. Sunk machines bill their up-time too.

    A sunk machine's bill is the same under every policy; it is in here because effective cost includes idle time.
    """
    if price.billing == "per_use":
        return price.usd_per_s * usage.busy_s
    minimum_s = price.min_billed_s if price.billing == "elastic" else 0.0
    return price.usd_per_s * sum(max(up_s, minimum_s) for up_s in usage.up_s)


def effective_usd_per_million(bills_usd: Sequence[float], slo_met: int) -> float:
    """Effective cost: all bills over the requests that met their objective, per million of them.

    Infinite when none did. Source: DESIGN, "effective cost" = (hardware + network + idle) / units that met the SLO.
    """
    return sum(bills_usd) / slo_met * 1e6 if slo_met else float("inf")
