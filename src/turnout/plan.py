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
    search = _Search(offer, attempt, attainment)
    for gpu in range(1, offer.gpu_max + 1):
        if search.meets("gpu-only", 0, gpu):
            break
    for gpu in range(offer.gpu_max + 1):
        kind: Kind = "cpu-only" if gpu == 0 else "hybrid"
        if kind in search.found and offer.usd_per_h(1, gpu) >= search.found[kind].usd_per_h:
            break
        low, high = 1, offer.cpu_max
        while low <= high:
            cpu = (low + high) // 2
            if search.meets(kind, cpu, gpu):
                high = cpu - 1
            else:
                low = cpu + 1
    return sorted(search.found.values(), key=lambda quote: quote.usd_per_h)


class _Search:
    """Tries fleets, and keeps the cheapest of each kind that meets the objective."""

    def __init__(self, offer: Offer, attempt: Attempt, attainment: float) -> None:
        self._offer = offer
        self._attempt = attempt
        self._attainment = attainment
        self.found: dict[Kind, Quote] = {}

    def meets(self, kind: Kind, cpu: int, gpu: int) -> bool:
        """Whether a fleet meets the objective."""
        summary = self._attempt(cpu, gpu)
        if summary.attainment < self._attainment:
            return False
        usd_per_h = self._offer.usd_per_h(cpu, gpu)
        if kind not in self.found or usd_per_h < self.found[kind].usd_per_h:
            self.found[kind] = Quote(kind=kind, cpu=cpu, gpu=gpu, usd_per_h=usd_per_h, summary=summary)
        return True
