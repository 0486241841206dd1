"""Realised service times: what a batch really takes in a simulation, which no policy sees before it is done.

A draw is a function of the batch's size, its key and the time. The key is a hash of the seed and of the request that
leads the batch, so that two policies on the same trace meet the same luck: their difference is theirs alone.

`from_profile` and `from_model` make a draw; `lognormal`, `two_state` and `drift` wrap one in what profiles have too
little of: noise, slow spells and change. What a wrapper needs by chance it takes from the same key, or from a seed of
its own, so that wrapped runs are as exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from math import exp, log
from statistics import NormalDist

from turnout.core.latency import LatencyModel
from turnout.core.profile import Profile
from turnout.errors import ArtefactError

Draw = Callable[[int, int, float], float]
"""`draw(items, key, now_s)`: realised seconds of service of one batch of `items` that begins at `now_s`."""

_MASK = (1 << 64) - 1

_NOISE, _SPELLS = 1, 2
"""Mixed into a key, so that a wrapper's luck is not that of what it wraps."""

_NORMAL = NormalDist()


def key(*numbers: int) -> int:
    """A 64-bit hash of whole numbers. Source: the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return mixed


def level(key_: int) -> float:
    """The key as a uniform draw from [0, 1)."""
    return (key_ >> 11) * 2.0**-53


def from_profile(profile: Profile, *, extrapolate: bool = False) -> Draw:
    """Draw from the samples themselves; between two measured sizes, interpolate at the same quantile.

    With `extrapolate` a batch beyond the largest measured size goes on at the last slope of each quantile; without,
    the draw raises ArtefactError for it.

    Raises:
        ArtefactError: to extrapolate takes two measured sizes, and there is one.
    """
    rows = sorted((s.items, sorted(s.service_s)) for s in profile.samples)
    sizes = [items for items, _ in rows]
    named = f"the profile of {profile.model} on {profile.device_key or profile.device}"
    if extrapolate and len(sizes) < 2:
        msg = f"{named} has one batch size, {sizes[0]}, and nothing to extrapolate from: measure a second one"
        raise ArtefactError(msg)

    def draw(items: int, key_: int, _now_s: float) -> float:
        chance = level(key_)
        right = bisect_left(sizes, items)
        if right == len(sizes):
            if not extrapolate:
                msg = f"a batch of {items} is beyond {named}, which was measured up to {sizes[-1]}"
                raise ArtefactError(msg)
            right -= 1
        high = _at(rows[right][1], chance)
        if sizes[right] == items or right == 0:
            return high
        low = _at(rows[right - 1][1], chance)
        if items > sizes[right]:
            low = min(low, high)  # samples that cross must not make a larger batch faster
        return low + (high - low) * (items - sizes[right - 1]) / (sizes[right] - sizes[right - 1])

    return draw


def from_model(model: LatencyModel) -> Draw:
    """Draw the predicted mean times one of the residual ratios of its bucket."""

    def draw(items: int, key_: int, _now_s: float) -> float:
        return model.mean_s(items) * _at(model.bucket_ratios(items), level(key_))

    return draw


def lognormal(draw: Draw, sigma: float) -> Draw:
    """`draw` times log-normal noise of mean 1, new for every batch; `sigma` is the deviation of its logarithm."""
    centre = -0.5 * sigma * sigma

    def noisy(items: int, key_: int, now_s: float) -> float:
        chance = level(key(key_, _NOISE)) + 2.0**-54  # in the middle of its step, so never 0
        return draw(items, key_, now_s) * exp(centre + sigma * _NORMAL.inv_cdf(chance))

    return noisy


def two_state(draw: Draw, factor: float, fast_s: float, slow_s: float, seed: int) -> Draw:
    """`draw`, `factor` times as slow in spells that come and go over time, for all batches alike.

    Fast and slow spells are exponential with means `fast_s` and `slow_s`, a Markov chain in continuous time that
    begins in equilibrium at second 0. It depends on `seed` alone: whoever asks meets the same spells.
    """
    begins_slow = level(key(seed, _SPELLS, 0)) < slow_s / (fast_s + slow_s)
    ends_s = [0.0]  # of the spells so far; the first, of no length, is only there to begin from

    def slow_at(now_s: float) -> bool:
        while ends_s[-1] <= now_s:
            number = len(ends_s)
            mean_s = slow_s if begins_slow == bool(number % 2) else fast_s
            ends_s.append(ends_s[-1] - mean_s * log(1.0 - level(key(seed, _SPELLS, number))))
        return begins_slow == bool(bisect_right(ends_s, now_s) % 2)

    def slowed(items: int, key_: int, now_s: float) -> float:
        service_s = draw(items, key_, now_s)
        return service_s * factor if slow_at(now_s) else service_s

    return slowed


def drift(draw: Draw, factor: float, from_s: float) -> Draw:
    """`draw`, `factor` times as slow from `from_s` on."""

    def drifted(items: int, key_: int, now_s: float) -> float:
        service_s = draw(items, key_, now_s)
        return service_s * factor if now_s >= from_s else service_s

    return drifted


def _at(ordered: list[float] | tuple[float, ...], chance: float) -> float:
    return ordered[int(chance * len(ordered))]
