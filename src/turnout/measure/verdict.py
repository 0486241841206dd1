"""From profiles to an answer: who is faster, who is cheaper, at which batch size, how sure, and what limits the gain.

Pure: no clock, no I/O; the bootstrap is seeded. It compares in pairs of the same round, since those saw the same
machine. A ratio is called only if its 95 % interval leaves out 1; a contender whose outputs disagree with the
reference is shown and never compared. The sentences are put together in `words`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, log
from statistics import median

import numpy as np

from turnout.measure import words
from turnout.measure.artefact import (
    Branching,
    Comparison,
    Criterion,
    Crossover,
    CrossoverState,
    Entry,
    Interval,
    PriceTag,
    Refusal,
    Row,
    Share,
    Stop,
    Verdict,
)
from turnout.measure.prices import usd_per_second

DRAWS = 1000
"""Bootstrap resamples."""

LEVELS = (0.025, 0.975)
"""Ends of every interval."""

FEW = 6
"""Rounds below which nothing is called: six of a kind are the fewest that a fair coin shows in under 5 %."""

Path = Mapping[str, Mapping[int, Sequence[float]]]


def judge(
    entries: Sequence[Entry],
    *,
    prices: Sequence[PriceTag],
    path: Path,
    branching: Branching | None,
    stops: Sequence[Stop],
    refusals: Sequence[Refusal],
    seed: int,
    random_inputs: bool = False,
) -> Verdict:
    """The verdict on `entries`, of which the first is the reference (CPU, float32).

    `random_inputs` says that nobody chose the inputs, so that agreement on them proves little.
    """
    rng = np.random.default_rng(seed)
    rates = {e.label: rate for e in entries if (rate := _rate(e, prices)) is not None}
    rows = _rows(entries, rates, rng)
    comparisons, crossovers = [], []
    for device in dict.fromkeys(e.profile.device for e in entries if e.profile.device != "cpu" and e.profile.routable):
        for criterion in ("seconds", "usd"):
            duels = _against(entries, device, criterion, rates, rng)
            comparisons += [comparison for comparison, _ in duels]
            name = device + (words.SOFTWARE if _emulated(entries, device) else "")
            crossovers.append(_crossover(name, criterion, duels, priced=_priced(entries, device, rates)))
    comparisons += _among_cpus(entries, rng)
    shares = _shares(entries, path, rng)
    return Verdict(
        headline=words.headline(entries, rows, crossovers),
        rows=rows,
        comparisons=tuple(comparisons),
        crossovers=tuple(crossovers),
        path=shares,
        bottleneck=words.bottleneck(entries, shares, branching),
        warnings=words.warnings(entries, prices, stops, refusals, random_inputs=random_inputs),
    )


def seconds_at(entry: Entry, items: int) -> tuple[float, ...]:
    """The entry's service times at a batch size, () if it was not run there."""
    return next((s.service_s for s in entry.profile.samples if s.items == items), ())


def bootstrap_medians(values: Sequence[float], rng: np.random.Generator) -> np.ndarray:
    """Medians of `DRAWS` resamples of `values` with replacement. Source: Efron, Annals of Statistics 7 (1979)."""
    array = np.asarray(values)
    medians: np.ndarray = np.median(array[rng.integers(0, len(array), (DRAWS, len(array)))], axis=1)
    return medians


def interval(values: Sequence[float], rng: np.random.Generator) -> Interval:
    """The median with its bootstrap interval; the whole range where the values are too few for one."""
    mid = float(median(values))
    if len(values) < FEW:
        return Interval(mid=mid, low=float(min(values)), high=float(max(values)))
    low, high = np.quantile(bootstrap_medians(values, rng), LEVELS)
    return Interval(mid=mid, low=float(low), high=float(high))


def log_ratios(rival: Sequence[float], incumbent: Sequence[float]) -> list[float]:
    """Log of rival / incumbent, round by round, as far as both were run."""
    return [log(r / i) for r, i in zip(rival, incumbent, strict=False)]


def compare(
    ratios: Sequence[float], rng: np.random.Generator, *, items: int, criterion: Criterion, incumbent: str, rival: str
) -> Comparison:
    """Call one pair at one batch size from its log ratios, or leave it uncalled."""
    logs = interval(ratios, rng)
    winner = ""
    if len(ratios) >= FEW and (logs.high < 0.0 or logs.low > 0.0):
        winner = rival if logs.high < 0.0 else incumbent
    ratio = Interval(mid=exp(logs.mid), low=exp(logs.low), high=exp(logs.high))
    return Comparison(items=items, criterion=criterion, incumbent=incumbent, rival=rival, ratio=ratio, winner=winner)


def crossing(sizes: Sequence[int], logs: np.ndarray) -> np.ndarray:
    """Batch size from which the rival stays ahead, for each column of `logs` (sizes x draws, positive: behind).

    Interpolated in log2 of the size; -inf where it is ahead at every size, +inf where it is behind at the largest.
    """
    x = np.log2(np.asarray(sizes, dtype=float))
    result = np.full(logs.shape[1], -inf)
    for draw in range(logs.shape[1]):
        behind = np.flatnonzero(logs[:, draw] >= 0.0)
        if not len(behind):
            continue
        last = int(behind[-1])
        if last == len(sizes) - 1:
            result[draw] = inf
            continue
        before, after = logs[last, draw], logs[last + 1, draw]
        result[draw] = 2.0 ** (x[last] + (x[last + 1] - x[last]) * before / (before - after))
    return result


def _rate(entry: Entry, prices: Sequence[PriceTag]) -> float | None:
    """Dollars per busy second of one contender, None without a price or on an emulated device."""
    if entry.profile.provenance.software_device:
        return None
    price = next((p for p in prices if p.device == entry.profile.device), None)
    return usd_per_second(price, entry.threads) if price else None


def _emulated(entries: Sequence[Entry], device: str) -> bool:
    """Whether the device is a software one."""
    return any(e.profile.provenance.software_device for e in entries if e.profile.device == device)


def _priced(entries: Sequence[Entry], device: str, rates: Mapping[str, float]) -> bool:
    """Whether both sides of a comparison in dollars have a price."""
    sides = [e.label in rates for e in entries if e.profile.device in {device, "cpu"}]
    return all(sides)


def _rows(entries: Sequence[Entry], rates: Mapping[str, float], rng: np.random.Generator) -> tuple[Row, ...]:
    """Median seconds, and dollars per million items where priced, of each contender at each size."""
    rows = []
    for entry in entries:
        for sample in entry.profile.samples:
            seconds, usd = interval(sample.service_s, rng), None
            if entry.label in rates:
                scale = rates[entry.label] / sample.items * 1e6
                usd = Interval(mid=seconds.mid * scale, low=seconds.low * scale, high=seconds.high * scale)
            rows.append(
                Row(
                    label=entry.label,
                    items=sample.items,
                    seconds=seconds,
                    usd_per_million=usd,
                    routable=entry.profile.routable,
                )
            )
    return tuple(rows)


def _best(entries: Sequence[Entry], device: str, items: int, weight: Mapping[str, float]) -> Entry | None:
    """The device's routable contender with the least weighted median at a size."""
    here = [e for e in entries if e.profile.device == device and e.profile.routable and seconds_at(e, items)]
    return min(here, key=lambda e: median(seconds_at(e, items)) * weight.get(e.label, 1.0), default=None)


def _against(
    entries: Sequence[Entry], device: str, criterion: Criterion, rates: Mapping[str, float], rng: np.random.Generator
) -> list[tuple[Comparison, np.ndarray | None]]:
    """The device's best against the CPU's best at every size, with the bootstrap medians of the log ratio.

    The medians are None where the rounds are too few to call anything.
    """
    if criterion == "usd" and not _priced(entries, device, rates):
        return []
    weight = rates if criterion == "usd" else {}
    duels: list[tuple[Comparison, np.ndarray | None]] = []
    for items in sorted({s.items for e in entries for s in e.profile.samples}):
        incumbent, rival = _best(entries, "cpu", items, weight), _best(entries, device, items, weight)
        if incumbent is None or rival is None:
            continue
        shift = log(weight.get(rival.label, 1.0) / weight.get(incumbent.label, 1.0))
        ratios = [r + shift for r in log_ratios(seconds_at(rival, items), seconds_at(incumbent, items))]
        comparison = compare(
            ratios, rng, items=items, criterion=criterion, incumbent=incumbent.label, rival=rival.label
        )
        duels.append((comparison, bootstrap_medians(ratios, rng) if len(ratios) >= FEW else None))
    return duels


def _crossover(
    device: str, criterion: Criterion, duels: Sequence[tuple[Comparison, np.ndarray | None]], *, priced: bool
) -> Crossover:
    """Where the device overtakes the CPU, from the comparisons at all sizes."""
    state: CrossoverState = "not_measured" if priced or criterion == "seconds" else "not_priced"
    mid = low = high = None
    called = [(comparison.items, medians) for comparison, medians in duels if medians is not None]
    if called:
        found = np.sort(crossing([items for items, _ in called], np.stack([medians for _, medians in called])))
        low, mid, high = (float(found[round(level * (len(found) - 1))]) for level in (LEVELS[0], 0.5, LEVELS[1]))
        state = _state(low, high)
    elif duels:
        state = "too_close"
    if state != "at" or low is None or mid is None or high is None:
        text = words.crossover(device, criterion, state, [c.items for c, _ in duels])
        return Crossover(device=device, criterion=criterion, state=state, text=text)
    smallest = float(called[0][0])
    low, mid = max(low, smallest), max(mid, smallest)
    text = words.crossover(device, criterion, state, [c.items for c, _ in duels], (mid, low, high))
    return Crossover(device=device, criterion=criterion, state=state, text=text, items=mid, low=low, high=high)


def _state(low: float, high: float) -> CrossoverState:
    """Read the interval of the crossing; an end beyond the measured sizes on one side only leaves it open."""
    if high == inf and low < inf:
        return "too_close"
    if low == inf:
        return "never"
    return "always" if high == -inf else "at"


def _among_cpus(entries: Sequence[Entry], rng: np.random.Generator) -> list[Comparison]:
    """Every routable CPU variant against the reference, at every size both were run."""
    reference, comparisons = entries[0], []
    for entry in entries[1:]:
        if entry.profile.device != "cpu" or not entry.profile.routable:
            continue
        for sample in entry.profile.samples:
            ratios = log_ratios(sample.service_s, seconds_at(reference, sample.items))
            if ratios:
                ends = {"incumbent": reference.label, "rival": entry.label}
                comparisons.append(compare(ratios, rng, items=sample.items, criterion="seconds", **ends))
    return comparisons


def _shares(entries: Sequence[Entry], path: Path, rng: np.random.Generator) -> tuple[Share, ...]:
    """The share of the fastest CPU variant in the whole request path, at each size where the path was timed."""
    shares = []
    sizes = sorted({items for ends in path.values() for items in ends})
    for items in sizes:
        best = _best(entries, "cpu", items, {})
        if best is None:
            continue
        model = np.asarray(seconds_at(best, items))
        pre, post = (np.asarray(path.get(end, {}).get(items) or np.zeros(len(model))) for end in ("pre", "post"))
        rounds = min(len(model), len(pre), len(post))
        model, pre, post = model[:rounds], pre[:rounds], post[:rounds]
        share = interval((model / (pre + model + post)).tolist(), rng)
        shares.append(
            Share(
                items=items,
                pre_s=float(np.median(pre)),
                model_s=float(np.median(model)),
                post_s=float(np.median(post)),
                model_share=share,
                most_gain=1.0 / (1.0 - share.mid) if share.mid < 1.0 else None,
            )
        )
    return tuple(shares)
