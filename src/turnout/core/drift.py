"""A drift alarm: has what is observed moved away from what was expected, for longer than chance would have it?

The two-sided test of Page and Hinkley on logarithms of ratios, in units of their own usual size, so that it is quick
where times hardly vary and patient where they do. It counts observations and knows no clock. What is expected, and what
is to be done about an alarm, is the caller's.
"""

from __future__ import annotations

from msgspec import Struct

SLACK = 0.625
"""A change of less than this many usual deviations is not looked for."""

ALARM = 15.0
"""Deviations that have to come together. Where logarithms are normal and rightly expected, chance does it about once in
exp(4 / pi · SLACK · ALARM) = 150,000 observations (Siegmund, Sequential Analysis, 1985, first order)."""

CLIP = 3.0
"""Deviations that one observation adds at most, so that an alarm takes at least seven: an outlier is no drift."""

WEIGHT = 1.0 / 128.0
"""Of one observation in the usual deviation."""

MIN_DEVIATION = 0.02
"""Of a logarithm: 2 % either way is never a drift, however steady the times are."""


class Drift(Struct, kw_only=True):
    """The state of the test; part of the router's snapshot.

    `deviation` is the usual distance of an observation from what was expected of it; `up` and `down` are what has come
    together in either direction, and `up_for` and `down_for` over how many observations.
    Source: Page, "Continuous inspection schemes", Biometrika 41 (1954); Hinkley, Biometrika 58 (1971).
    """

    deviation: float = MIN_DEVIATION
    up: float = 0.0
    down: float = 0.0
    up_for: int = 0
    down_for: int = 0

    def observe(self, off: float) -> int:
        """Take one observation: how far its logarithm is from what was expected, `clipped`.

        Returns 0, or on an alarm how many observations the change has lasted; the test begins anew after that.
        """
        deviation = self.deviation
        size = off if off >= 0.0 else -off
        changed = deviation + WEIGHT * (size - deviation)
        self.deviation = max(MIN_DEVIATION, changed)
        slack, limit = SLACK * deviation, ALARM * deviation
        up, down = self.up + off - slack, self.down - off - slack
        if up > 0.0:
            self.up = up
            self.up_for += 1
        elif self.up_for:
            self.up, self.up_for = 0.0, 0
        if down > 0.0:
            self.down = down
            self.down_for += 1
        elif self.down_for:
            self.down, self.down_for = 0.0, 0
        if up < limit and down < limit:
            return 0
        lasted = self.up_for if up > down else self.down_for
        self.up = self.down = 0.0
        self.up_for = self.down_for = 0
        return lasted

    def clipped(self, off: float) -> float:
        """`off` within what one observation may add."""
        limit = CLIP * self.deviation
        return limit if off > limit else max(off, -limit)
