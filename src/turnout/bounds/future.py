"""How many misses are still to come, given a backlog and all that is known to arrive: what the beam search steers by.

A relaxation by dynamic programming: all machines together are one that does the work of the fluid bound at its prices,
one second of makespan per second. Its backlog in seconds is all that is remembered. From the last request back, each is
either left out, or joins the backlog; it is late for certain if it waits much longer than `patience_s`, and the more
likely so the nearer the wait comes to that, since real machines finish in whole batches.
"""

from __future__ import annotations

import numpy as np

from turnout.bounds.ascent import Floats

LEVELS = 64
"""Steps of the backlog up to the deadline."""

SLOPE = 0.25
"""Share of the deadline over which waiting goes from harmless to late."""

BEYOND = 0.05
"""Misses for each step of backlog beyond the deadline, where one is as good as lost as the other."""

TIE = 0.001
"""Misses for each step of any backlog: of two that come to the same, the shorter one."""


class Future:
    """`misses(at, backlog_s)`: misses to be expected of the requests from place `at` on."""

    def __init__(self, next_s: Floats, worth_s: Floats, deadline_s: float, patience_s: float) -> None:
        """`next_s` (n + 1,) when each request or a later one first arrives, `worth_s` (n,) fluid seconds of each."""
        self._step_s = deadline_s / LEVELS
        levels_s = np.arange(LEVELS + 1) * self._step_s
        late = np.clip((levels_s - patience_s) / (SLOPE * deadline_s), 0.0, 1.0)
        rows = np.zeros((len(worth_s) + 1, LEVELS + 1))
        gaps_s = np.diff(next_s)
        for at in range(len(worth_s) - 1, -1, -1):
            left_out = 1.0 + self._read(rows[at + 1], levels_s - gaps_s[at])
            joined = levels_s + worth_s[at] - gaps_s[at]
            served = self._read(rows[at + 1], joined) + late
            served[joined > deadline_s] = np.inf
            least = np.minimum(left_out, served) if worth_s[at] > 0.0 else left_out
            rows[at] = np.maximum.accumulate(least)
        self._rows: list[list[float]] = rows.tolist()

    def _read(self, row: Floats, backlog_s: Floats) -> Floats:
        return np.interp(backlog_s, np.arange(LEVELS + 1) * self._step_s, row)

    def misses(self, at: int, backlog_s: float) -> float:
        """Misses to be expected from there on; not a bound."""
        row, place = self._rows[at], backlog_s / self._step_s
        below = int(place)
        if below >= LEVELS:
            return row[LEVELS] + (place - LEVELS) * BEYOND + TIE * place
        share = place - below
        return row[below] * (1.0 - share) + row[below + 1] * share + TIE * place
