"""The cheapest whole-number fleet that meets the objective, over any number of pools, found by trying fleets.

More replicas of a pool are taken to never meet less: for each fleet of the other pools, the least count of the cheapest
is found by bisection, between what the fluid bound asks for at least and what would be dearer than the best so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

from turnout.regret.floor import Floor

MOST_ATTEMPTS = 80
"""Fleets that are simulated."""

Meets = Callable[[tuple[int, ...]], bool]
"""Whether a fleet, as replicas by pool, meets the objective."""


@dataclass(kw_only=True)
class Search:
    """One search. `best` is the cheapest fleet found so far, or None; `attempts` is how many were tried."""

    usd_per_h: Sequence[float]
    most: Sequence[int]
    floor: Floor
    meets: Meets
    best: tuple[int, ...] | None = None
    attempts: int = 0
    known: dict[tuple[int, ...], bool] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every fleet that could be cheaper was tried."""
        return self.attempts < MOST_ATTEMPTS

    def cost(self, counts: Sequence[int]) -> float:
        """Dollars per hour."""
        return sum(k * usd for k, usd in zip(counts, self.usd_per_h, strict=True))

    def run(self, start: tuple[int, ...]) -> tuple[int, ...] | None:
        """The cheapest fleet that meets the objective; `start` is tried first, so that nothing dearer is."""
        self._try(start)
        free = min(range(len(self.most)), key=lambda i: (self.usd_per_h[i], -self.most[i]))
        others = [range(1) if i == free else range(most + 1) for i, most in enumerate(self.most)]
        for rest in sorted(product(*others), key=self.cost):
            self._bisect(rest, free)
        return self.best

    def _bisect(self, rest: tuple[int, ...], free: int) -> None:
        """Find the least count of pool `free` beside the others."""
        low, high = 0, self.most[free]
        while low <= high and not self.floor.allows(self._with(rest, free, low)):
            low += 1
        while high >= low and self.best is not None and self.cost(self._with(rest, free, high)) >= self.cost(self.best):
            high -= 1
        while low <= high:
            middle = (low + high) // 2
            if self._try(self._with(rest, free, middle)):
                high = middle - 1
            else:
                low = middle + 1

    @staticmethod
    def _with(rest: tuple[int, ...], free: int, count: int) -> tuple[int, ...]:
        return (*rest[:free], count, *rest[free + 1 :])

    def _try(self, counts: tuple[int, ...]) -> bool:
        """Whether a fleet meets the objective, by simulation or by what smaller and larger ones did."""
        for tried, met in self.known.items():
            pairs = list(zip(counts, tried, strict=True))
            if (met and all(k >= t for k, t in pairs)) or (not met and all(k <= t for k, t in pairs)):
                return met
        if not self.complete or not any(counts):
            return False
        self.attempts += 1
        met = self.known[counts] = self.meets(counts)
        if met and (self.best is None or self.cost(counts) < self.cost(self.best)):
            self.best = counts
        return met
