"""A latency model predicts the service time of a batch from a profile; a calibration corrects it live.

`fit` takes the line a + b·n unless cross-validation over batch sizes says that the monotone piecewise-linear curve is
clearly better. The tail is multiplicative: quantiles of actual / predicted, kept per log2 bucket of the batch size.
Nothing here knows of queues, deadlines or money.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from math import ceil
from statistics import fmean

from msgspec import Struct

from turnout.core.profile import Profile

WINDOW = 128
"""Ratios remembered per bucket: enough that a 99 % quantile is not the maximum."""

GAIN = 0.005
"""Step of the adaptive conformal correction: how fast the tail follows a run of misses."""

ISOTONIC_GAIN = 0.8
"""The curve replaces the line only if its cross-validated error is below this share of the line's."""


def bucket(items: int) -> int:
    """The log2 bucket of a batch size: 1 is in 0, 2-3 in 1, 4-7 in 2, and so on."""
    return items.bit_length() - 1


def quantile(ordered: Sequence[float], level: float) -> float:
    """The `level` quantile of sorted values, with the finite-sample rank ceil((n + 1) · level) of split conformal.

    Source: Vovk et al., Algorithmic Learning in a Random World: the rank that covers at least `level` of new draws.
    """
    rank = ceil((len(ordered) + 1) * level)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


class LatencyModel(Struct, frozen=True, kw_only=True):
    """Predicts seconds of service for a batch; also the form in which a prediction travels in the log.

    `knot_items` ascends and `knot_s` does not descend; between knots the curve is linear, and beyond the last it goes
    on at the last slope. A line has two knots. `ratios[bucket]` are sorted samples of actual / predicted.
    `error` is the cross-validated mean relative error of `mean_s`, `form` is "line" or "isotonic".
    """

    form: str
    knot_items: tuple[float, ...]
    knot_s: tuple[float, ...]
    ratios: dict[int, tuple[float, ...]]
    error: float = 0.0
    max_items: int = 0

    def mean_s(self, items: int) -> float:
        """Mean seconds of service of a batch of `items`."""
        xs, ys = self.knot_items, self.knot_s
        if len(xs) == 1:
            return ys[0]
        right = min(max(bisect_right(xs, items), 1), len(xs) - 1)
        x0, y0 = xs[right - 1], ys[right - 1]
        return max(y0 + (items - x0) * (ys[right] - y0) / (xs[right] - x0), 0.0)

    def quantile_s(self, items: int, level: float) -> float:
        """Seconds within which the share `level` of batches of `items` is served."""
        return self.mean_s(items) * quantile(self.bucket_ratios(items), level)

    def bucket_ratios(self, items: int) -> tuple[float, ...]:
        """The ratios of the bucket nearest to that of `items`."""
        wanted = bucket(items)
        return self.ratios[min(self.ratios, key=lambda known: (abs(known - wanted), known))]


def constant(seconds: float) -> LatencyModel:
    """A model that predicts `seconds` for every batch: for tests, and for work whose time does not depend on size."""
    return LatencyModel(form="line", knot_items=(1.0,), knot_s=(seconds,), ratios={0: (1.0,)})


def line(a_s: float, b_s_per_item: float, spread: Sequence[float] = (1.0,)) -> LatencyModel:
    """The model a + b·n with the given samples of actual / predicted at every size."""
    return LatencyModel(
        form="line",
        knot_items=(0.0, 1.0),
        knot_s=(a_s, a_s + b_s_per_item),
        ratios={0: tuple(sorted(spread))},
    )


def fit(profile: Profile, keep: int = WINDOW) -> LatencyModel:
    """Fit a profile's warm service times; `keep` bounds the residual ratios kept per bucket.

    Raises:
        ValueError: the profile has no samples, or a size without any.
    """
    if not profile.samples or any(not s.service_s for s in profile.samples):
        msg = f"profile of {profile.model} on {profile.device} has a batch size without samples"
        raise ValueError(msg)
    means: dict[int, float] = {}
    for s in profile.samples:
        means[s.items] = fmean(s.service_s)
    sizes = sorted(means)
    points = [(float(n), means[n]) for n in sizes]
    form, knots, error = _choose(points)
    shape = LatencyModel(
        form=form,
        knot_items=tuple(x for x, _ in knots),
        knot_s=tuple(y for _, y in knots),
        ratios={},
    )
    pooled: dict[int, list[float]] = {}
    for s in profile.samples:
        predicted = shape.mean_s(s.items)
        pooled.setdefault(bucket(s.items), []).extend(t / predicted for t in s.service_s)
    return LatencyModel(
        form=form,
        knot_items=shape.knot_items,
        knot_s=shape.knot_s,
        ratios={b: _thin(sorted(r), keep) for b, r in pooled.items()},
        error=error,
        max_items=sizes[-1],
    )


def _thin(ordered: list[float], keep: int) -> tuple[float, ...]:
    """At most `keep` of the sorted values, evenly spaced in rank and with both ends."""
    if len(ordered) <= keep:
        return tuple(ordered)
    step = (len(ordered) - 1) / (keep - 1)
    return tuple(ordered[round(i * step)] for i in range(keep))


Points = list[tuple[float, float]]


def _choose(points: Points) -> tuple[str, Points, float]:
    """The form with the smaller leave-one-size-out error, in favour of the line."""
    line_knots, curve_knots = _fit_line(points), _fit_isotonic(points)
    line_error, curve_error = _held_out_error(points, _fit_line), _held_out_error(points, _fit_isotonic)
    if curve_error < ISOTONIC_GAIN * line_error:
        return "isotonic", curve_knots, curve_error
    return "line", line_knots, line_error


def _held_out_error(points: Points, fitter: object) -> float:
    """Mean relative error at each interior size when the curve is fitted without it (0 with under three sizes)."""
    assert callable(fitter)
    errors = []
    for i in range(1, len(points) - 1):
        knots = fitter(points[:i] + points[i + 1 :])
        model = LatencyModel(
            form="", knot_items=tuple(x for x, _ in knots), knot_s=tuple(y for _, y in knots), ratios={}
        )
        x, y = points[i]
        errors.append(abs(model.mean_s(int(x)) - y) / y)
    return fmean(errors) if errors else 0.0


def _fit_line(points: Points) -> Points:
    """Least squares of a + b·n weighted by 1/t², so that relative errors count alike; a, b >= 0."""
    if len(points) == 1:
        return points
    weights = [1.0 / (y * y) for _, y in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    var = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    cov = sum(w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True))
    slope = max(cov / var, 0.0)
    intercept = mean_y - slope * mean_x
    if intercept < 0.0:  # the best line through the origin, under the same weights
        intercept = 0.0
        slope = sum(w * x * y for w, (x, y) in zip(weights, points, strict=True)) / sum(
            w * x * x for w, (x, _) in zip(weights, points, strict=True)
        )
    return [(0.0, intercept), (points[-1][0], intercept + slope * points[-1][0])]


def _fit_isotonic(points: Points) -> Points:
    """Non-descending curve through the points by pool-adjacent-violators, weighted as the line is."""
    blocks: list[list[float]] = []  # weight, weighted mean, sizes in the block
    for _, y in points:
        blocks.append([1.0 / (y * y), y, 1.0])
        while len(blocks) > 1 and blocks[-2][1] > blocks[-1][1]:
            weight, mean, count = blocks.pop()
            last = blocks[-1]
            last[1] = (last[0] * last[1] + weight * mean) / (last[0] + weight)
            last[0] += weight
            last[2] += count
    levels = [mean for _, mean, count in blocks for _ in range(int(count))]
    return [(x, level) for (x, _), level in zip(points, levels, strict=True)]


class BucketState(Struct, kw_only=True):
    """What one calibration bucket remembers; part of the router's snapshot."""

    recent: list[float]
    ordered: list[float]
    miss_level: float
    centre: float
    tail: float


class Calibration:
    """One latency model, corrected by what its pool really takes.

    Per bucket: the last `WINDOW` ratios actual / predicted (at first those of the profile) give the centre and the
    tail; the level of the tail moves by adaptive conformal inference, so that the predicted p99 covers 99 % over time
    even while the distribution drifts. Source: Gibbs and Candès, NeurIPS 2021: level += gain · (target - miss).
    """

    __slots__ = ("_buckets", "_model", "_target")

    def __init__(self, model: LatencyModel, target: float = 0.99) -> None:
        """Start from `model`'s own residuals; `target` is the share of batches that `p99_s` has to cover."""
        self._model = model
        self._target = target
        self._buckets: dict[int, BucketState] = {}

    @property
    def model(self) -> LatencyModel:
        """The fitted model underneath."""
        return self._model

    def mean_s(self, items: int) -> float:
        """Mean seconds of service of a batch of `items`, as of now."""
        state = self._buckets.get(items.bit_length() - 1) or self._open(items)
        return self._model.mean_s(items) * state.centre

    def p99_s(self, items: int) -> float:
        """Seconds that cover the target share of batches of `items`, as of now."""
        state = self._buckets.get(items.bit_length() - 1) or self._open(items)
        return self._model.mean_s(items) * state.tail

    def observe(self, items: int, service_s: float) -> None:
        """Learn from one batch that took `service_s`."""
        state = self._buckets.get(items.bit_length() - 1) or self._open(items)
        predicted_s = self._model.mean_s(items)
        ratio = service_s / predicted_s if predicted_s > 0.0 else 1.0
        allowed = 1.0 - self._target
        missed = 1.0 if ratio > state.tail else 0.0
        state.miss_level = min(max(state.miss_level + GAIN * (allowed - missed), 1e-4), 0.5)
        if len(state.recent) >= WINDOW:
            oldest = state.recent.pop(0)
            del state.ordered[bisect_left(state.ordered, oldest)]
        state.recent.append(ratio)
        insort(state.ordered, ratio)
        self._refresh(state)

    def states(self) -> dict[int, BucketState]:
        """The live buckets, for a snapshot."""
        return self._buckets

    def restore(self, states: dict[int, BucketState]) -> None:
        """Go on from a snapshot's buckets."""
        self._buckets = dict(states)

    def _open(self, items: int) -> BucketState:
        """Start a bucket from the profile's residuals nearest to it."""
        seed = self._model.bucket_ratios(items)[-WINDOW:]
        state = BucketState(recent=list(seed), ordered=list(seed), miss_level=1.0 - self._target, centre=1.0, tail=1.0)
        self._refresh(state)
        self._buckets[bucket(items)] = state
        return state

    @staticmethod
    def _refresh(state: BucketState) -> None:
        """Recompute the two factors that predictions use."""
        state.centre = sum(state.ordered) / len(state.ordered)
        state.tail = max(quantile(state.ordered, 1.0 - state.miss_level), state.centre)
