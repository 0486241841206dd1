"""A latency model predicts the service time of a batch from a profile; a calibration corrects it live.

`fit` takes the line a + b·n unless cross-validation over batch sizes says that the monotone piecewise-linear curve is
clearly better. The tail is multiplicative: quantiles of actual / predicted, kept per log2 bucket of the batch size.
Nothing here knows of queues, deadlines or money.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from math import ceil, exp
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from turnout.core.profile import Profile

WINDOW = 128
"""Ratios remembered per bucket: enough that a 99 % quantile is not the maximum."""

SEEDS = 32
"""Ratios of the profile that a live window starts with: few enough that what is seen soon outweighs them."""

GAIN = 0.1
"""Step of the adaptive tail: a batch beyond its p99 stretches all tails by a tenth, 99 within them undo that."""

MAX_STRETCH = 20.0
"""Beyond this a pool is not slow but broken."""

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
    times: dict[int, list[float]] = {}
    for s in profile.samples:
        times.setdefault(s.items, []).extend(s.service_s)
    sizes = sorted(times)
    points = [(float(n), fmean(times[n])) for n in sizes]
    form, knots, error = _choose(points)
    shape = _shape(form, knots)
    pooled: dict[int, list[float]] = {}
    for n in sizes:
        predicted = shape.mean_s(n)
        pooled.setdefault(bucket(n), []).extend(t / predicted for t in times[n])
    ratios = {b: _thin(sorted(r), keep) for b, r in pooled.items()}
    return replace(shape, ratios=ratios, error=error, max_items=sizes[-1])


def _thin(ordered: list[float], keep: int) -> tuple[float, ...]:
    """At most `keep` of the sorted values, evenly spaced in rank and with both ends."""
    if len(ordered) <= keep:
        return tuple(ordered)
    step = (len(ordered) - 1) / (keep - 1)
    return tuple(ordered[round(i * step)] for i in range(keep))


Points = list[tuple[float, float]]


def _choose(points: Points) -> tuple[str, Points, float]:
    """The form with the smaller leave-one-size-out error, in favour of the line; and its mean error.

    Errors are compared by their median: next to a step of the hardware the curve is far off once, the line everywhere.
    """
    line_errors, curve_errors = _held_out_errors(points, _fit_line), _held_out_errors(points, _fit_isotonic)
    if curve_errors and median(curve_errors) < ISOTONIC_GAIN * median(line_errors):
        return "isotonic", _fit_isotonic(points), fmean(curve_errors)
    return "line", _fit_line(points), fmean(line_errors) if line_errors else 0.0


def _held_out_errors(points: Points, fitter: Callable[[Points], Points]) -> list[float]:
    """Relative error at each interior size when the form is fitted without it; none with under three sizes."""
    errors = []
    for i in range(1, len(points) - 1):
        knots = fitter(points[:i] + points[i + 1 :])
        x, y = points[i]
        errors.append(abs(_shape("", knots).mean_s(int(x)) - y) / y)
    return errors


def _shape(form: str, knots: Points) -> LatencyModel:
    """A model of the mean alone."""
    return LatencyModel(form=form, knot_items=tuple(x for x, _ in knots), knot_s=tuple(y for _, y in knots), ratios={})


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
    """One batch-size bucket: the last ratios actual / predicted, in order of time and of size, and their summary."""

    recent: list[float]
    ordered: list[float]
    centre: float
    tail: float


class CalibrationState(Struct, kw_only=True):
    """What a calibration remembers; part of the router's snapshot."""

    stretch: float
    buckets: dict[int, BucketState]


class Calibration:
    """One latency model, corrected by what its pool really takes.

    Per bucket, the last `WINDOW` ratios actual / predicted (at first those of the profile) give the centre and the
    tail. On top, all tails are stretched by one factor that grows with every batch that took longer than its p99 and
    shrinks with every one that did not, so that the predicted p99 covers 99 % over time even while the machine gets
    slower in ways no window has seen. Source: quantile tracking, the P in Angelopoulos, Candes and Tibshirani,
    "Conformal PID control for time series prediction", NeurIPS 2023, here on the logarithm of the ratio.
    """

    __slots__ = ("_buckets", "_miss_factor", "_model", "_pass_factor", "_stretch", "_target")

    def __init__(self, model: LatencyModel, target: float = 0.99) -> None:
        """Start from `model`'s own residuals; `target` is the share of batches that `p99_s` has to cover."""
        self._model = model
        self._target = target
        self._miss_factor = exp(GAIN * target)
        self._pass_factor = exp(-GAIN * (1.0 - target))
        self._stretch = 1.0
        self._buckets: dict[int, BucketState] = {}

    @property
    def model(self) -> LatencyModel:
        """The fitted model underneath."""
        return self._model

    def mean_s(self, items: int) -> float:
        """Mean seconds of service of a batch of `items`, as of now."""
        bucket_state = self._buckets.get(items.bit_length() - 1) or self._open(items)
        return self._model.mean_s(items) * bucket_state.centre

    def p99_s(self, items: int) -> float:
        """Seconds that cover the target share of batches of `items`, as of now."""
        bucket_state = self._buckets.get(items.bit_length() - 1) or self._open(items)
        return self._model.mean_s(items) * bucket_state.tail * self._stretch

    def observe(self, items: int, service_s: float) -> None:
        """Learn from one batch that took `service_s`."""
        state = self._buckets.get(items.bit_length() - 1) or self._open(items)
        predicted_s = self._model.mean_s(items)
        ratio = service_s / predicted_s if predicted_s > 0.0 else 1.0
        factor = self._miss_factor if ratio > state.tail * self._stretch else self._pass_factor
        self._stretch = min(max(self._stretch * factor, 1.0), MAX_STRETCH)
        if len(state.recent) >= WINDOW:
            oldest = state.recent.pop(0)
            del state.ordered[bisect_left(state.ordered, oldest)]
        state.recent.append(ratio)
        insort(state.ordered, ratio)
        self._summarise(state)

    def state(self) -> CalibrationState:
        """The live state, for a snapshot."""
        return CalibrationState(stretch=self._stretch, buckets=self._buckets)

    def restore(self, state: CalibrationState) -> None:
        """Go on from a snapshot."""
        self._stretch = state.stretch
        self._buckets = dict(state.buckets)

    def _open(self, items: int) -> BucketState:
        """Start a bucket from the profile's residuals nearest to it."""
        seed = _thin(list(self._model.bucket_ratios(items)), SEEDS)
        state = BucketState(recent=list(seed), ordered=list(seed), centre=1.0, tail=1.0)
        self._summarise(state)
        self._buckets[bucket(items)] = state
        return state

    def _summarise(self, state: BucketState) -> None:
        """Recompute the two factors that predictions use."""
        state.centre = sum(state.ordered) / len(state.ordered)
        state.tail = max(quantile(state.ordered, self._target), state.centre)
