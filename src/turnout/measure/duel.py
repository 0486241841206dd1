"""The interleaved loop: every contender on the same inputs, round by round, until the order is settled.

A round runs each contender once at one batch size, in an order drawn anew, so that whatever drifts (clock speed,
neighbours, heat) hits all alike and times can be compared in pairs. The next round goes to the open size that has had
least time, so that large batches do not starve small ones. It knows neither models nor devices: a contender is
something that runs a batch size and says how long it took. Its clock and generator are arguments.

Stopping: after looks at growing numbers of rounds a size is settled when the leader is told apart from every other
contender, or is the same within `TIE`. A pair is judged by the exact order-statistic interval of the median of its
log ratios, which needs no distribution and holds for ten rounds; the error is split over the looks (Bonferroni), since
looking often and stopping at the first success would otherwise find an order in pure noise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import comb, log
from statistics import median
from typing import Literal, Protocol

import numpy as np
from msgspec import Struct

from turnout.pools.base import Outcome

LOOKS = (10, 20, 40, 80, 160, 320)
"""Rounds after which a size may be called settled; the last is also the most that are run."""

ALPHA = 0.05
"""Chance of calling a wrong order at one batch size, over all looks and rivals together."""

TIE = 0.03
"""Contenders closer than this are the same for every decision taken here."""

ENOUGH = 30
"""Rounds wanted for the profile's tail where they are cheap, though the order be settled."""

CHEAP_SHARE = 0.25
"""A settled size goes on up to `ENOUGH` rounds while it has used less than this share of its part of the budget."""

Timings = dict[str, dict[int, list[Outcome]]]
Why = Literal["settled", "noisy", "budget", "alone"]


class Contender(Protocol):
    """One device and variant. `rival` is False for what is timed along but not ranked (the ends of the path)."""

    label: str
    rival: bool

    def run(self, items: int) -> Outcome:
        """Run one batch of `items` and say how long it took; `outputs` may be empty."""


class Closed(Struct, frozen=True, kw_only=True):
    """A batch size that is done, after how many rounds, and why."""

    items: int
    rounds: int
    why: Why


def fight(
    lanes: Mapping[int, Sequence[Contender]],
    *,
    budget_s: float,
    clock: Callable[[], float],
    rng: np.random.Generator,
    on_round: Callable[[int, float], None] = lambda _items, _used: None,
) -> tuple[Timings, tuple[Closed, ...]]:
    """Run all `lanes` (batch size -> contenders there) until settled, too noisy, or out of `budget_s`.

    Returns the timings by label and batch size, and why each size closed. `on_round` is told the batch size just run
    and the share of the budget that is used.
    """
    timings: Timings = {}
    closed: list[Closed] = []
    spent_s = {items: 0.0 for items, contenders in lanes.items() if contenders}
    rounds = dict.fromkeys(spent_s, 0)
    decided: set[int] = set()
    start_s = clock()
    while spent_s:
        items = min(spent_s, key=lambda size: (spent_s[size], size))
        began_s = clock()
        _round(lanes[items], items, rng, timings)
        now_s = clock()
        spent_s[items] += now_s - began_s
        rounds[items] += 1
        rivals = [c.label for c in lanes[items] if c.rival]
        used = (now_s - start_s) / budget_s
        look = rounds[items] in LOOKS or (used >= 1.0 and rounds[items] >= LOOKS[0])
        if look and settled({label: _seconds(timings, label, items) for label in rivals}):
            decided.add(items)
        cheap = spent_s[items] < CHEAP_SHARE * budget_s / len(lanes)
        why = _closing(rounds[items], decided=items in decided, alone=len(rivals) < 2, cheap=cheap, out=used >= 1.0)
        if why is not None:
            closed.append(Closed(items=items, rounds=rounds[items], why=why))
            del spent_s[items]
        on_round(items, used)
    return timings, tuple(sorted(closed, key=lambda c: c.items))


def _closing(rounds: int, *, decided: bool, alone: bool, cheap: bool, out: bool) -> Why | None:
    """Why a size closes after `rounds`, or None to go on; `out` says that the budget is used up."""
    if decided and (rounds >= ENOUGH or out or not cheap):
        return "alone" if alone else "settled"
    if rounds >= LOOKS[-1]:
        return "noisy"
    if out:
        return "noisy" if rounds >= LOOKS[0] else "budget"
    return None


def _seconds(timings: Timings, label: str, items: int) -> list[float]:
    """The service times of one contender at one batch size, in the order of the rounds."""
    return [outcome.service_s for outcome in timings[label][items]]


def _round(contenders: Sequence[Contender], items: int, rng: np.random.Generator, timings: Timings) -> None:
    """Run each contender once at `items`, in an order drawn anew."""
    for index in rng.permutation(len(contenders)):
        contender = contenders[index]
        outcome = contender.run(items)
        timings.setdefault(contender.label, {}).setdefault(items, []).append(outcome)


def settled(seconds: Mapping[str, Sequence[float]]) -> bool:
    """Whether the leader is told apart from, or the same as, every other; times are paired by round."""
    if len(seconds) < 2:
        return True
    leader = min(seconds, key=lambda label: median(seconds[label]))
    alpha = ALPHA / ((len(LOOKS) + 1) * (len(seconds) - 1))  # one more look when the time is out
    for label, theirs in seconds.items():
        if label == leader:
            continue
        ratios = [log(theirs_s / leader_s) for theirs_s, leader_s in zip(theirs, seconds[leader], strict=True)]
        low, high = median_interval(ratios, alpha)
        if not (low > 0.0 or high < 0.0 or max(-low, high) < TIE):
            return False
    return True


def median_interval(values: Sequence[float], alpha: float) -> tuple[float, float]:
    """Exact interval of the median by order statistics, at confidence 1 - `alpha` or better; infinite if too few.

    Source: the number of values below the median is binomial (n, 1/2), so the k-th from either end bound it with
    error 2 · P(B < k).
    """
    ordered, n = sorted(values), len(values)
    tail, k = 0.0, 0
    while k < n // 2 and 2.0 * (tail + comb(n, k) * 0.5**n) <= alpha:
        tail += comb(n, k) * 0.5**n
        k += 1
    if k == 0:
        return float("-inf"), float("inf")
    return ordered[k - 1], ordered[n - k]
