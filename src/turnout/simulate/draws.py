"""Realised service times: what a batch really takes in a simulation, which no policy sees before it is done.

A draw is a function of the batch's size, its key and the time. The key is a hash of the seed and of the request that
leads the batch, so that two policies on the same trace meet the same luck: their difference is theirs alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from turnout.core.latency import LatencyModel
from turnout.core.profile import Profile
from turnout.errors import ArtefactError

Draw = Callable[[int, int, float], float]
"""`draw(items, key, now_s)`: realised seconds of service of one batch of `items` that begins at `now_s`."""

_MASK = (1 << 64) - 1


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


def from_profile(profile: Profile) -> Draw:
    """Draw from the samples themselves; between two measured sizes, interpolate at the same quantile.

    The draw raises ArtefactError for a batch larger than any that was measured.
    """
    rows = sorted((s.items, sorted(s.service_s)) for s in profile.samples)
    sizes = [items for items, _ in rows]

    def draw(items: int, key_: int, _now_s: float) -> float:
        chance = level(key_)
        right = bisect_left(sizes, items)
        if right == len(sizes):
            msg = f"a batch of {items} is beyond the profile of {profile.model} on {profile.device} ({sizes[-1]})"
            raise ArtefactError(msg)
        high = _at(rows[right][1], chance)
        if sizes[right] == items or right == 0:
            return high
        low = _at(rows[right - 1][1], chance)
        return low + (high - low) * (items - sizes[right - 1]) / (sizes[right] - sizes[right - 1])

    return draw


def from_model(model: LatencyModel) -> Draw:
    """Draw the predicted mean times one of the residual ratios of its bucket."""

    def draw(items: int, key_: int, _now_s: float) -> float:
        return model.mean_s(items) * _at(model.bucket_ratios(items), level(key_))

    return draw


def _at(ordered: list[float] | tuple[float, ...], chance: float) -> float:
    return ordered[int(chance * len(ordered))]
