"""Latency models from recorded batches, and what they are worth on later batches that they have not seen.

A refit is a `Profile`, so that what is scored is what a config that names its file will predict with. Two ways are
tried, and the one that predicts the last quarter of the part for fitting better is taken:

- "log": the recorded times, by batch size; sizes that the log lacks come from the old model, scaled.
- "scaled": the old model times the typical ratio of taken to predicted, with the recorded spread: for thin logs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from math import log, sqrt
from statistics import fmean, median, stdev

from msgspec.structs import replace

from turnout.core import latency
from turnout.core.events import Configured
from turnout.core.fleet import PoolSpec
from turnout.core.latency import LatencyModel
from turnout.core.profile import Profile, Provenance, Samples
from turnout.core.workload import Workload
from turnout.fit.artefact import Prediction, Refit, Way
from turnout.fit.recorded import Batch, Batches, Run

LEAST_FITTING = 40
"""Batches of a (pool, model) that it takes to fit to."""

LEAST_HELD_OUT = 20
"""Batches that it takes to judge the fit."""

SURE = 2.0
"""Standard errors by which the new model's error must be below the old one's."""

LEAST_GAIN = 0.001
"""A smaller gain in mean error is not worth a change."""

PICK_SHARE = 0.75
"""Of the batches for fitting, the earlier share that the two ways are fitted to before the rest picks between them."""

MAX_SIZES = 40
"""Batch sizes of a refitted profile; more are grouped, each time moved to its group's size along the old model."""

STEP = 1.19
"""Ratio of the sizes of neighbouring groups: four to an octave."""

LEAST_IN_GROUP = 10
"""Batches in a group."""

MAX_SAMPLES = 256
"""Times kept per size, the latest."""

NO_TIME_S = 1e-9
"""Stands for a time of zero, whose logarithm has to be taken."""


Key = tuple[str, str]
"""(pool, model)."""


def refit_all(run: Run, provenance: Provenance) -> tuple[tuple[Refit, ...], dict[Key, Profile]]:
    """Every model in every pool that serves it, in the fleet's order, and the profiles of those that are better.

    `provenance` is what the profiles say of the log.
    """
    head = run.configured
    workloads = {workload.name: workload for workload in head.models}
    refits: list[Refit] = []
    profiles: dict[Key, Profile] = {}
    for spec in head.fleet.pools:
        for name in spec.models:
            if name in workloads and spec.name in workloads[name].latency:
                found, profile = _refit(run, spec, workloads[name], provenance)
                refits.append(found)
                if found.better and profile is not None:
                    profiles[spec.name, name] = profile
    return tuple(refits), profiles


def realised(configured: Configured, batches: Batches) -> dict[Key, LatencyModel]:
    """What batches took, as models that a simulation draws from; the head's own where the log has too few batches."""
    pools = {spec.name: spec for spec in configured.fleet.pools}
    found = {}
    for workload in configured.models:
        for pool, old in workload.latency.items():
            row = batches.get((pool, workload.name), ())
            enough = pool in pools and len(row) >= LEAST_HELD_OUT
            found[pool, workload.name] = _from_log(old, row, pools[pool].max_items) if enough else old
    return found


def _from_log(old: LatencyModel, batches: Sequence[Batch], max_items: int) -> LatencyModel:
    return latency.fit(_profile(_samples("log", old, batches, max_items)))


def _refit(run: Run, spec: PoolSpec, workload: Workload, provenance: Provenance) -> tuple[Refit, Profile | None]:
    """One model in one pool; no profile where there are too few batches."""
    key = spec.name, workload.name
    old = workload.latency[spec.name]
    fitting, held_out = run.fitting.batches.get(key, []), run.held_out.batches.get(key, [])
    found = Refit(pool=spec.name, model=workload.name, batches=len(fitting), held_out=len(held_out))
    if len(fitting) < LEAST_FITTING or len(held_out) < LEAST_HELD_OUT:
        why = f"too few batches: it takes {LEAST_FITTING} to fit to and {LEAST_HELD_OUT} to judge by"
        return replace(found, why=why), None
    way = _pick(old, fitting, spec.max_items)
    samples = _samples(way, old, fitting, spec.max_items)
    at = replace(provenance, hardware=f"{spec.device_key or spec.device}, as pool {spec.name} of the log")
    profile = _profile(samples, spec, workload, _of(at, way, samples, fitting))
    new = latency.fit(profile)
    gains = [o - n for o, n in zip(_errors(old, held_out), _errors(new, held_out), strict=True)]
    gain, gain_error = fmean(gains), stdev(gains) / sqrt(len(gains))
    better = gain > max(SURE * gain_error, LEAST_GAIN)
    done = replace(
        found,
        old=_prediction(old, held_out),
        new=_prediction(new, held_out),
        way=way,
        gain=gain,
        gain_error=gain_error,
        live_coverage_p99=fmean(b.total_s <= b.p99_s for b in held_out),
        better=better,
        why="" if better else "not surely better on the batches held out",
    )
    return done, profile


def _pick(old: LatencyModel, batches: Sequence[Batch], max_items: int) -> Way:
    """The way whose fit to the earlier batches predicts the later ones better; "log" if they are even."""
    cut = int(PICK_SHARE * len(batches))
    ways: tuple[Way, ...] = ("log", "scaled")
    scores = {}
    for way in ways:
        model = latency.fit(_profile(_samples(way, old, batches[:cut], max_items)))
        scores[way] = fmean(_errors(model, batches[cut:]))
    return min(ways, key=scores.__getitem__)


# ---- how good a model is ---------------------------------------------------------------------------------------------


def _errors(model: LatencyModel, batches: Sequence[Batch]) -> list[float]:
    """|ln(taken / predicted mean)| of each batch."""
    return [abs(log(max(b.service_s, NO_TIME_S) / max(model.mean_s(b.items), NO_TIME_S))) for b in batches]


def _prediction(model: LatencyModel, batches: Sequence[Batch]) -> Prediction:
    """The model, and how good it is on these batches."""
    predicted_s = sum(model.mean_s(b.items) for b in batches)
    return Prediction(
        error=fmean(_errors(model, batches)),
        bias=sum(b.service_s for b in batches) / max(predicted_s, NO_TIME_S) - 1.0,
        coverage_p99=fmean(b.service_s <= model.quantile_s(b.items, 0.99) * (1.0 + 1e-9) for b in batches),
        form=model.form,
        knot_items=model.knot_items,
        knot_s=model.knot_s,
    )


# ---- profiles --------------------------------------------------------------------------------------------------------


def _samples(way: Way, old: LatencyModel, batches: Sequence[Batch], max_items: int) -> tuple[Samples, ...]:
    """The times of a profile, by ascending size, the last of which is at least `max_items`."""
    low, high = _range(batches)
    largest = max(max_items, high)
    knots = sorted({min(max(int(n), 1), largest) for n in (*old.knot_items, largest)})
    ratios = [b.service_s / max(old.mean_s(b.items), NO_TIME_S) for b in batches[-MAX_SAMPLES:]]
    if way == "scaled":
        return tuple(_sample(n, [max(old.mean_s(n), NO_TIME_S) * r for r in ratios]) for n in knots)
    groups = dict(_groups(old, batches))
    groups.update((n, [old.mean_s(n) * median(ratios)]) for n in knots if not low <= n <= high)
    return tuple(_sample(n, groups[n]) for n in sorted(groups))


def _range(batches: Sequence[Batch]) -> tuple[int, int]:
    """The smallest and the largest batch."""
    return min(b.items for b in batches), max(b.items for b in batches)


def _groups(old: LatencyModel, batches: Sequence[Batch]) -> Iterator[tuple[int, list[float]]]:
    """Times by batch size, where there are many sizes, neighbours share the middle one, at the ends the last one."""
    sizes = sorted({b.items for b in batches})
    if len(sizes) > MAX_SIZES:
        sizes = _edges(sorted(b.items for b in batches))
    grouped: dict[int, list[Batch]] = {}
    for b in batches:  # in order of time, so that the latest are kept
        grouped.setdefault(sizes[bisect_left(sizes, b.items)], []).append(b)
    for edge, row in grouped.items():
        items = edge if edge in {sizes[0], sizes[-1]} else int(median(b.items for b in row))
        at_s = old.mean_s(items)
        yield (
            items,
            [
                b.service_s if b.items == items else b.service_s * at_s / max(old.mean_s(b.items), NO_TIME_S)
                for b in row
            ],
        )


def _edges(ordered: Sequence[int]) -> list[int]:
    """Upper ends of groups of sizes, `STEP` apart or further, with enough batches each; the smallest is by itself."""
    edges = [ordered[0]]
    count = 0
    for items in ordered[bisect_right(ordered, ordered[0]) :]:
        count += 1
        if count >= LEAST_IN_GROUP and items >= STEP * edges[-1]:
            edges.append(items)
            count = 0
    return edges if edges[-1] == ordered[-1] else [*edges, ordered[-1]]


def _sample(items: int, times_s: Sequence[float]) -> Samples:
    return Samples(items=items, service_s=tuple(max(t, NO_TIME_S) for t in times_s[-MAX_SAMPLES:]))


UNNAMED = Provenance(kind="modelled", source="", date="", hardware="")


def _profile(
    samples: tuple[Samples, ...],
    spec: PoolSpec | None = None,
    workload: Workload | None = None,
    provenance: Provenance = UNNAMED,
) -> Profile:
    return Profile(
        model=workload.name if workload else "",
        model_digest=workload.digest if workload else "",
        device=spec.device if spec else "",
        device_key=spec.device_key if spec else "",
        variant=f"pool {spec.name}, as served" if spec else "",
        provenance=provenance,
        samples=samples,
    )


def _of(provenance: Provenance, way: Way, samples: Sequence[Samples], batches: Sequence[Batch]) -> Provenance:
    """The provenance with how this profile came about; a time that no batch took makes it a modelled one."""
    low, high = _range(batches)
    filled = [str(s.items) for s in samples if not low <= s.items <= high]
    if way == "scaled":
        return replace(
            provenance, kind="modelled", source=f"{provenance.source}: the old model times the recorded ratios"
        )
    if filled:
        how = f"recorded times; sizes {', '.join(filled)} from the old model, scaled"
        return replace(provenance, kind="modelled", source=f"{provenance.source}: {how}")
    return replace(provenance, source=f"{provenance.source}: recorded times")
