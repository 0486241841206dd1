"""The best clairvoyant schedule found: what is known to be possible on a trace, next to the bounds on what is not.

The beam search is run narrow for several patiences, and wide for the best of them; where requests run whole and alone,
its schedule is then repaired. Schedules that somebody else
found, such as the log of a policy, are taken in: so the result is never worse than any of them, nor than the exact
optimum where the instance is small enough for that. It is a yardstick, not a proof: a better schedule may exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnout.bounds.ascent import Floats
from turnout.bounds.beam import beam
from turnout.bounds.exact import exact
from turnout.bounds.fluid import MISS, allowed_misses
from turnout.bounds.repair import repair
from turnout.bounds.schedule import Batch, Instance, missed

PATIENCES = (0.5, 0.6, 0.65, 0.7, 0.75, 0.85, 1.0)
"""Shares of the deadline that requests are expected to be able to wait: which is best depends on the batches."""

LEANS = (1.0, 0.5, 0.0)
"""Orders of requests that are tried if their deadlines differ: by deadline, by arrival, and between."""

NARROW = 3
"""States kept where only the patience and the order are to be found."""

WIDTH = 20
"""States kept otherwise: more of them find better schedules, in proportionally more time."""

ROUNDS = 1.0
"""Rounds of `repair` for each request."""

EXACT_REQUESTS = 8
"""Requests up to which the optimum itself is computed, if they may not be split."""

PRECISION = 2e-3
"""Relative width to which the highest rate is narrowed down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A schedule that `schedule.missed` checked. `patience` and `lean` are the search's, 0 if none was."""

    misses: int
    schedule: tuple[Batch, ...]
    patience: float = 0.0
    lean: float = 0.0


def feasible(
    instance: Instance,
    *,
    width: int = WIDTH,
    rounds: float = ROUNDS,
    patiences: Sequence[float] = PATIENCES,
    known: Sequence[Sequence[Batch]] = (),
) -> Found:
    """The best schedule found, of the search and of those `known`.

    Raises:
        ValueError: a known schedule breaks the rules of the instance.
    """
    candidates = [_checked(instance, schedule) for schedule in known]
    if len(instance) <= EXACT_REQUESTS and instance.max_parts == 1:
        candidates.append(_checked(instance, exact(instance).schedule))
    leans = LEANS if len(set(instance.deadline_s.tolist())) > 1 else LEANS[:1]
    narrow = [_searched(instance, NARROW, patience, lean) for patience in patiences for lean in leans]
    best = min(narrow, key=_misses)
    candidates += [*narrow, _searched(instance, width, best.patience, best.lean)]
    found = min(candidates, key=_misses)
    if instance.merge or instance.max_parts > 1 or not found.misses:
        return found
    repaired = _checked(instance, repair(instance, found.schedule, int(rounds * len(instance))))
    return min(found, replace(repaired, patience=found.patience, lean=found.lean), key=_misses)


def _checked(instance: Instance, schedule: Sequence[Batch]) -> Found:
    return Found(misses=len(missed(instance, schedule)), schedule=tuple(schedule))


def _searched(instance: Instance, width: int, patience: float, lean: float) -> Found:
    return replace(_checked(instance, beam(instance, width, patience, lean)), patience=patience, lean=lean)


def _misses(found: Found) -> int:
    return found.misses


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The highest rate at which a schedule was found that keeps the objective, with its instance and batches."""

    rate_per_s: float
    instance: Instance
    found: Found


def highest_rate(
    instance: Instance,
    bound_per_s: float,
    *,
    miss: float = MISS,
    width: int = WIDTH,
    rounds: float = ROUNDS,
    seen: Callable[[float, int], None] | None = None,
) -> Rate:
    """The highest rate found: the instance's arrivals are scaled as `Trace.at_rate` does, deadlines stay.

    Searched by halving below `bound_per_s`, a rate that no schedule exceeds. A rate at which none was found is not
    proved to be impossible. `seen` is told each rate tried and its misses. The rate is 0 if none was found at all.
    """
    allowed = allowed_misses(len(instance), miss)
    patiences: Sequence[float] = PATIENCES

    def attempt(rate_per_s: float) -> Rate:
        nonlocal patiences
        scaled = replace(instance, at_s=_at_rate(instance.at_s, rate_per_s))
        found = feasible(scaled, width=width, rounds=rounds, patiences=patiences)
        patiences = _near(found.patience)
        if seen is not None:
            seen(rate_per_s, found.misses)
        return Rate(rate_per_s=rate_per_s, instance=scaled, found=found)

    high, best = bound_per_s, attempt(0.8 * bound_per_s)
    while best.found.misses > allowed:
        high, best = best.rate_per_s, attempt(0.7 * best.rate_per_s)
        if high < 1e-6 * bound_per_s:
            return replace(best, rate_per_s=0.0)
    while high > best.rate_per_s * (1.0 + PRECISION):
        tried = attempt((best.rate_per_s + high) / 2.0)
        if tried.found.misses > allowed:
            high = tried.rate_per_s
        else:
            best = tried
    return best


def _near(patience: float) -> Sequence[float]:
    """The patiences next to the best one: at the next rate it will be one of them."""
    if patience not in PATIENCES:
        return PATIENCES
    at = PATIENCES.index(patience)
    return PATIENCES[max(at - 1, 0) : at + 2]


def _at_rate(at_s: Floats, rate_per_s: float) -> Floats:
    span_s = float(at_s[-1] - at_s[0])
    factor = (len(at_s) - 1) / (span_s * rate_per_s) if span_s > 0.0 else 1.0
    return np.asarray((at_s - at_s[0]) * factor)
