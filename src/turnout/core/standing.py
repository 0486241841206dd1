"""How a model stands: what its traffic looks like of late, and how many misses its objective still affords.

Kept by the router for its policy, from arrivals and answers alone. It decides nothing.
"""

from __future__ import annotations

from msgspec import Struct, field

RECENT = 512
"""Arrivals remembered at least; at most twice as many."""

MAX_CREDIT = 50.0
"""Misses that can be saved up, or owed: a quiet night buys no bad morning, and a bad hour is not paid for all day."""


class Standing(Struct, kw_only=True):
    """One model's recent arrivals and its account of misses.

    `recent_at_s` and `recent_items` run in parallel, oldest first. `max_parts` is into how many ranges the last of them
    may be cut. `credit` grows by the share that may be missed with
    every answer and falls by one with every miss; below 0 it is the deficit Z of drift-plus-penalty (Neely, Stochastic
    Network Optimization, 2010), with the sign turned.
    """

    attainment: float
    arrivals: int = 0
    max_parts: int = 1
    credit: float = 0.0
    recent_at_s: list[float] = field(default_factory=list)
    recent_items: list[int] = field(default_factory=list)

    def arrive(self, at_s: float, items: int, max_parts: int = 1) -> None:
        """A request came in, whatever becomes of it."""
        self.arrivals += 1
        self.max_parts = max_parts
        self.recent_at_s.append(at_s)
        self.recent_items.append(items)
        if len(self.recent_at_s) >= 2 * RECENT:
            del self.recent_at_s[:RECENT]
            del self.recent_items[:RECENT]

    def answer(self, *, met: bool) -> None:
        """A request is answered, in time or not."""
        earned = self.credit + (1.0 - self.attainment) - (not met)
        self.credit = min(max(earned, -MAX_CREDIT), MAX_CREDIT)
