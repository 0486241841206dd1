"""A latency model predicts the service time of a batch from a profile; a calibration corrects it live.

`fit` takes the line a + b·n unless cross-validation over batch sizes says that the monotone piecewise-linear curve is
clearly better. The tail is multiplicative: quantiles of actual / predicted, kept per log2 bucket of the batch size.
Nothing here knows of queues, deadlines or money.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from math import ceil, exp, log
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from turnout.core.drift import MIN_DEVIATION, Drift
from turnout.core.profile import Profile

KEEP = 128
"""Residual ratios kept per bucket of a profile."""

WINDOW = 299
"""Residuals remembered: of this many, the third largest is beyond one new draw in a hundred, exactly."""

ENOUGH = 99
"""Residuals from which on a bucket's own 99 % quantile is not above all of them."""

SEEDS = 99
"""Residuals of the profile that the common window starts with."""

GAIN = 0.1
"""Step of the adaptive tail: a batch beyond its p99 widens all tails by a tenth of the spread, 99 within undo that."""

MAX_REACH = 20.0
"""Beyond this a pool is not slow but broken."""

WIDEN = 0.25
"""How much a drift widens the tails, as a share of the spread; 250 batches within their p99 undo it."""

PRIOR = 4
"""Batches that the profile, or what was believed before a drift, weighs in a factor."""

MEMORY = 60
"""With `PRIOR`: the weight of one batch in its bucket's centre ends at 1 / 64."""

DOUBT = 12
"""What the batches seen before a drift count for in a bucket's centre after it."""

SETTLE = 60
"""Batches from the start, or from a drift, that move the common level; then it stays until the next drift."""

LAST = 8
"""Batches that a drift can take back."""

LEAST = 1e-12
"""Added to ratios, so that the logarithm of none can be taken."""

TIE = 1.0 + 1e-9
"""Times that are all the same are within their p99, in spite of rounding."""

MAX_SIZES = 4096
"""Batch sizes whose prediction is remembered."""

ISOTONIC_GAIN = 0.8
"""The curve replaces the line only if its cross-validated error is below this share of the line's."""


def bucket(items: int) -> int:
    """The log2 bucket of a batch size: 1 is in 0, 2-3 in 1, 4-7 in 2, and so on."""
    return items.bit_length() - 1


def rank(count: int, level: float) -> int:
    """The rank, from 1 on, of the `level` quantile among `count` sorted values: ceil((count + 1) · level), at most all.

    Source: split conformal prediction (Vovk et al., Algorithmic Learning in a Random World): the value of that rank
    covers at least the share `level` of new draws.
    """
    return min(max(ceil((count + 1) * level), 1), count)


def quantile(ordered: Sequence[float], level: float) -> float:
    """The `level` quantile of sorted values, of the rank that split conformal prediction gives it."""
    return ordered[rank(len(ordered), level) - 1]


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


def fit(profile: Profile, keep: int = KEEP) -> LatencyModel:
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


class Window(Struct, kw_only=True):
    """The last `WINDOW` residuals, in order of time and of size; `spread` is how far the target quantile is above 1."""

    recent: list[float] = []
    ordered: list[float] = []
    spread: float = 0.0

    def add(self, residual: float, ranks: Sequence[int]) -> None:
        """Remember one more, and forget the oldest beyond `WINDOW`; `ranks` is the quantile's rank by count."""
        recent, ordered = self.recent, self.ordered
        if len(recent) >= WINDOW:
            del ordered[bisect_left(ordered, recent.pop(0))]
        recent.append(residual)
        insort(ordered, residual)
        spread = ordered[ranks[len(ordered)] - 1] - 1.0
        self.spread = max(0.0, spread)

    def undo(self) -> None:
        """Forget the newest."""
        del self.ordered[bisect_left(self.ordered, self.recent.pop())]


class BucketState(Struct, kw_only=True):
    """One batch-size bucket: what its batches are, on average and usually, to the model's prediction times the level.

    `centre` is the mean ratio; `usual` is the mean logarithm without its outliers, for the drift alarm; `seen` is the
    weight that both carry, in batches; `window` are the bucket's residuals.
    """

    centre: float
    usual: float
    seen: int
    window: Window


class Seen(Struct, frozen=True, gc=False, array_like=True):
    """One batch, with what was believed before it: `factor` is seconds taken / seconds that the model predicts."""

    bucket: int
    factor: float
    level: float
    centre: float
    usual: float
    reach: float


class CalibrationState(Struct, kw_only=True):
    """What a calibration remembers; part of the router's snapshot."""

    level: float
    settled: int
    reach: float
    alarms: int
    drift: Drift
    common: Window
    last: list[Seen]
    buckets: dict[int, BucketState]


class Calibration:
    """One latency model, corrected by what its pool really takes.

    The mean is the model's times a `level`, common to all sizes, times the centre of the bucket. The p99 is the mean
    times 1 + reach · spread: the spread is that of the last `WINDOW` residuals (time taken / mean then predicted) of
    the bucket, or of all buckets that have too few of their own; the reach is common, grows with every batch beyond
    its p99 and shrinks with every one within, so that the p99 covers the target share over time, and no more, whatever
    the windows miss. Source: quantile tracking, the P in Angelopoulos, Candes and Tibshirani, "Conformal PID control
    for time series prediction", NeurIPS 2023, here in units of the spread, so that the step fits the tail.

    A drift alarm over all sizes (see `drift`) takes back what was learnt since the change began, moves the level by
    the median change, so that sizes that are rare follow at once, and widens all tails for a while.
    """

    __slots__ = ("_fitted", "_model", "_most", "_ranks", "_s", "_start", "_target")

    def __init__(self, model: LatencyModel, target: float = 0.99) -> None:
        """Start from `model`'s own residuals; `target` is the share of batches that `p99_s` has to cover."""
        self._model = model
        self._target = target
        self._ranks = tuple(rank(count, target) for count in range(WINDOW + 1))
        self._fitted: dict[int, float] = {}
        self._most: dict[tuple[float, int], int] = {}
        residuals = sorted(r for ratios in model.ratios.values() for r in _residuals(ratios)) or [1.0]
        logs = [log(r + LEAST) for r in residuals]
        self._start = fmean(logs)
        common = Window()
        for residual in _thin(residuals, SEEDS):
            common.add(residual, self._ranks)
        self._s = CalibrationState(
            level=1.0,
            settled=0,
            reach=1.0,
            alarms=0,
            drift=Drift(deviation=max(fmean(abs(x - self._start) for x in logs), MIN_DEVIATION)),
            common=common,
            last=[],
            buckets={},
        )

    @property
    def model(self) -> LatencyModel:
        """The fitted model underneath."""
        return self._model

    @property
    def alarms(self) -> int:
        """How many drifts there were so far."""
        return self._s.alarms

    def mean_s(self, items: int) -> float:
        """Mean seconds of service of a batch of `items`, as of now."""
        s = self._s
        state = s.buckets.get(items.bit_length() - 1) or self._open(items)
        return (self._fitted.get(items) or self._fit_s(items)) * s.level * state.centre

    def p99_s(self, items: int) -> float:
        """Seconds that cover the target share of batches of `items`, as of now."""
        s = self._s
        state = s.buckets.get(items.bit_length() - 1) or self._open(items)
        window = state.window if len(state.window.recent) >= ENOUGH else s.common
        mean_s = (self._fitted.get(items) or self._fit_s(items)) * s.level * state.centre
        return mean_s * (TIE + s.reach * window.spread)

    def most_items(self, within_s: float, most: int) -> int:
        """The most items, up to `most`, of a batch whose mean and p99 are on average within that; 0 if one is too many.

        By bisection, as both grow with the batch; remembered until the next observation.
        """
        known = self._most.get((within_s, most))
        if known is None:
            known = self._most[within_s, most] = self._bisect(within_s, most)
        return known

    def _bisect(self, within_s: float, most: int) -> int:
        s, fitted, twice_s = self._s, self._fitted, 2.0 * within_s

        def beyond(items: int) -> bool:
            state = s.buckets.get(items.bit_length() - 1) or self._open(items)
            window = state.window if len(state.window.recent) >= ENOUGH else s.common
            mean_s = (fitted.get(items) or self._fit_s(items)) * s.level * state.centre
            return mean_s + mean_s * (TIE + s.reach * window.spread) > twice_s

        return bisect_left(range(1, most), x=True, key=beyond) if beyond(most) else most

    def observe(self, items: int, service_s: float) -> None:
        """Learn from one batch that took `service_s`."""
        s = self._s
        self._most.clear()
        number = items.bit_length() - 1
        state = s.buckets.get(number) or self._open(items)
        fitted_s = self._fitted.get(items) or self._fit_s(items)
        factor = service_s / fitted_s if fitted_s > 0.0 else 1.0
        level, centre, reach, last = s.level, state.centre, s.reach, s.last
        last.append(Seen(number, factor, level, centre, state.usual, reach))
        if len(last) > LAST:
            del last[0]
        window = state.window if len(state.window.recent) >= ENOUGH else s.common
        if factor > level * centre * (TIE + reach * window.spread):
            s.reach = min(reach + GAIN * self._target, MAX_REACH)
        else:
            s.reach = max(reach - GAIN * (1.0 - self._target), 0.0)
        lasted = s.drift.observe(self._learn(state, factor))
        if lasted:
            self._follow(min(lasted, len(last)))

    def state(self) -> CalibrationState:
        """The live state, for a snapshot."""
        return self._s

    def restore(self, state: CalibrationState) -> None:
        """Go on from a snapshot."""
        self._s = state
        self._most.clear()

    def _fit_s(self, items: int) -> float:
        """The model's own prediction, remembered, since a size that came once comes again."""
        if len(self._fitted) >= MAX_SIZES:
            self._fitted.clear()
        fitted_s = self._fitted[items] = self._model.mean_s(items)
        return fitted_s

    def _open(self, items: int) -> BucketState:
        """Start a bucket: with the model's own prediction, and no residuals of its own."""
        state = self._s.buckets[bucket(items)] = BucketState(centre=1.0, usual=self._start, seen=0, window=Window())
        return state

    def _learn(self, state: BucketState, factor: float) -> float:
        """Move all that is known by one batch; returns how far its logarithm is from the usual, clipped."""
        s, centre, window, drift = self._s, state.centre, state.window, self._s.drift
        ratio = factor / s.level + LEAST
        residual = ratio / centre
        if len(window.recent) < ENOUGH:
            s.common.add(residual, self._ranks)
        window.add(residual, self._ranks)
        off = drift.clipped(log(ratio) - state.usual)
        if state.seen < MEMORY:
            state.seen += 1
        weight = 1.0 / (PRIOR + state.seen)
        state.centre = centre + weight * (ratio - centre)
        state.usual += weight * off
        if s.settled < SETTLE:
            s.settled += 1
            s.level *= exp(off / (PRIOR + s.settled))
        return off

    def _follow(self, lasted: int) -> None:
        """A drift began `lasted` batches ago: unlearn them, move the level, and learn them again."""
        s = self._s
        since = s.last[-lasted:]
        for seen in reversed(since):
            state = s.buckets[seen.bucket]
            state.window.undo()
            if len(state.window.recent) < ENOUGH:
                s.common.undo()
            state.centre, state.usual, s.level = seen.centre, seen.usual, seen.level
        s.level *= exp(median(log(x.factor / s.level + LEAST) - s.buckets[x.bucket].usual for x in since))
        s.reach = min(max(since[0].reach, 1.0 + WIDEN), MAX_REACH)
        s.settled = 0
        s.alarms += 1
        s.last.clear()
        for state in s.buckets.values():
            state.seen = min(state.seen, DOUBT)
        for seen in since:
            self._learn(s.buckets[seen.bucket], seen.factor)


def _residuals(ratios: Sequence[float]) -> list[float]:
    """The ratios over their mean; none of a bucket that took no time at all."""
    centre = fmean(ratios)
    return [ratio / centre for ratio in ratios] if centre > 0.0 else []
