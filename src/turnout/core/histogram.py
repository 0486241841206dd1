"""Quantiles of any number of values in little memory, each within a quarter of a percent of a value that was there.

Values are counted in bins that grow by a fixed factor, as in HdrHistogram (Tene) and DDSketch (Masson et al., VLDB
2019): some thousand bins reach from a microsecond to hours.
"""

from __future__ import annotations

from math import exp, floor, log

from turnout.core.latency import rank

GROWTH = log(1.005)
"""Logarithm of the factor from one bin to the next."""


class Histogram:
    """Counts of values that are not negative."""

    __slots__ = ("_bins", "_zeros", "count", "total")

    def __init__(self) -> None:
        """Start with none."""
        self.count = 0
        self.total = 0.0
        self._zeros = 0
        self._bins: dict[int, int] = {}

    def add(self, value: float) -> None:
        """Count one."""
        self.count += 1
        if value <= 0.0:
            self._zeros += 1
            return
        self.total += value
        number = floor(log(value) / GROWTH)
        self._bins[number] = self._bins.get(number, 0) + 1

    @property
    def mean(self) -> float | None:
        """Exact up to rounding; None of none."""
        return self.total / self.count if self.count else None

    def quantile(self, level: float) -> float | None:
        """The value of the rank that `latency.rank` gives the level: the middle of its bin; None of none."""
        if not self.count:
            return None
        left = rank(self.count, level) - self._zeros
        if left <= 0:
            return 0.0
        for number in sorted(self._bins):
            left -= self._bins[number]
            if left <= 0:
                break
        return exp((number + 0.5) * GROWTH)
