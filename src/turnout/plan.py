"""The cheapest whole-number fleet of two pools that meets an objective, found by trying fleets in a simulation.

It knows nothing of traffic or policies: the caller passes `attempt`, which simulates one fleet. More replicas of a
pool are taken to never meet less, so for each count of one pool the least count of the other is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from turnout.core.account import Summary

Kind = Literal["cpu-only", "gpu-only", "hybrid"]

Attempt = Callable[[int, int], Summary]
"""Simulates (cpu replicas, gpu replicas)."""


class Quote(Struct, frozen=True, kw_only=True):
    """The cheapest fleet of its kind that meets the objective, and what it came to in the simulation."""

    kind: Kind
    cpu: int
    gpu: int
    usd_per_h: float
    summary: Summary


class Offer(Struct, frozen=True, kw_only=True):
    """Two pools that can be rented: dollars per hour of a replica, and the most replicas of each."""

    cpu_usd_per_h: float
    gpu_usd_per_h: float
    cpu_max: int
    gpu_max: int

    def usd_per_h(self, cpu: int, gpu: int) -> float:
        """The hourly price of a fleet."""
        return cpu * self.cpu_usd_per_h + gpu * self.gpu_usd_per_h


def quotes(offer: Offer, attempt: Attempt, attainment: float) -> list[Quote]:
    """The cheapest fleet of each kind, cheapest first; a kind that cannot meet the objective is left out."""
    found: dict[Kind, Quote] = {}
    for gpu in range(offer.gpu_max + 1):
        kind: Kind = "cpu-only" if gpu == 0 else "hybrid"
        if gpu:
            _offer(found, "gpu-only", 0, gpu, offer, attempt(0, gpu), attainment)
        if kind in found and offer.usd_per_h(1, gpu) >= found[kind].usd_per_h:
            break
        low, high = 1, offer.cpu_max
        while low <= high:
            cpu = (low + high) // 2
            if _offer(found, kind, cpu, gpu, offer, attempt(cpu, gpu), attainment):
                high = cpu - 1
            else:
                low = cpu + 1
    return sorted(found.values(), key=lambda quote: quote.usd_per_h)


def _offer(
    found: dict[Kind, Quote], kind: Kind, cpu: int, gpu: int, offer: Offer, summary: Summary, attainment: float
) -> bool:
    """Note a fleet if it meets the objective for less than what is noted; returns whether it meets it."""
    if summary.attainment < attainment:
        return False
    usd_per_h = offer.usd_per_h(cpu, gpu)
    if kind not in found or usd_per_h < found[kind].usd_per_h:
        found[kind] = Quote(kind=kind, cpu=cpu, gpu=gpu, usd_per_h=usd_per_h, summary=summary)
    return True
