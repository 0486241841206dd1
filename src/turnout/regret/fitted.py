"""Latency models from an access log alone: what each backend takes for a request, by its size.

From the column of service seconds where the log has one; else from the latency of requests that had their backend to
themselves, since all others have a queue in them. The first half of those rows is fitted to, the second says the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log as ln
from math import log2

import numpy as np
from msgspec.structs import replace

from turnout.core import latency
from turnout.core.latency import LatencyModel, bucket
from turnout.core.profile import Profile, Provenance, Samples
from turnout.errors import ConfigError
from turnout.traces.access import AccessLog
from turnout.traces.access.log import NONE, Bools, Floats, Ints

LEAST_ROWS = 30
"""Of one model on one pool; with fewer, a fit says nothing."""

BINS_PER_OCTAVE = 4
"""Sizes are gathered in bins of 19 % for the shape of the curve; its spread is taken from the rows themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One pool: its latency model per model served, fitted to `rows` rows with requests of up to `largest` items.

    `error` is the mean of |ln(taken / predicted)| over rows that it has not seen. `basis` says which seconds were used.
    """

    models: dict[str, LatencyModel]
    error: float
    rows: int
    largest: int
    basis: str


def fit_pools(log: AccessLog, pool_of: tuple[str, ...]) -> dict[str, Fit]:
    """A fit for every pool; `pool_of` gives the pool of each backend.

    Raises:
        ConfigError: a model has too few rows on a pool, or the log is too coarse to tell which requests were alone.
    """
    if log.service_s is not None:
        seconds, usable, basis = log.service_s, ~np.isnan(log.service_s), "its column of service seconds"
    else:
        if log.coarse:
            raise ConfigError(_coarse(log))
        seconds, usable = log.latency_s, alone(log)
        basis = "the latency of requests that had their backend to themselves"
    usable = usable & log.ok & (log.backend != NONE) & (np.nan_to_num(seconds) > 0.0)
    pools = np.array([*pool_of, ""])[log.backend]  # NONE, which is -1, picks the last
    fits = {}
    for name in dict.fromkeys(pool_of):
        models, errors, count = {}, list[float](), 0
        for index, model in enumerate(log.models):
            rows = usable & (pools == name) & (log.model == index)
            if rows.sum() < LEAST_ROWS:
                raise ConfigError(_too_few(log, name, model, int(rows.sum()), basis))
            models[model], error = _fit(log.items[rows], seconds[rows], f"{model} on {name}")
            errors.append(error)
            count += int(rows.sum())
        largest = int(log.items[usable & (pools == name)].max())
        fits[name] = Fit(models=models, error=float(np.mean(errors)), rows=count, largest=largest, basis=basis)
    return fits


def alone(log: AccessLog) -> Bools:
    """Which requests had their backend to themselves from arrival to answer; all of one backend's are in order."""
    found = np.zeros(len(log), dtype=np.bool_)
    end_s = log.at_s + np.nan_to_num(log.latency_s)
    for backend in range(len(log.backends)):
        rows = np.flatnonzero(log.backend == backend)
        if not len(rows):
            continue
        before_s = np.concatenate([[-np.inf], np.maximum.accumulate(end_s[rows])[:-1]])
        next_s = np.concatenate([log.at_s[rows][1:], [np.inf]])
        found[rows] = (log.at_s[rows] >= before_s) & (next_s >= end_s[rows])
    return found


def _coarse(log: AccessLog) -> str:
    return (
        f"the times in {log.source} are whole seconds, so that nobody can tell which requests had their backend to "
        "themselves: name a column of service seconds with --map service=COLUMN:ms, log finer times ($msec in nginx), "
        "or describe what you run with --fleet FLEET.toml"
    )


def _too_few(log: AccessLog, pool: str, model: str, rows: int, basis: str) -> str:
    what = f" of {model}" if len(log.models) > 1 else ""
    return (
        f"{log.source} has {rows} rows{what} on {pool} to fit to ({basis}), and it takes {LEAST_ROWS}: name a column "
        "of service seconds with --map service=COLUMN:ms, or describe what you run with --fleet FLEET.toml"
    )


def _fit(items: Ints, seconds: Floats, what: str) -> tuple[LatencyModel, float]:
    """The model of the first half of the rows, and its error on the second."""
    half = len(items) // 2
    shape = latency.fit(_binned(items[:half], seconds[:half], what))
    ratios: dict[int, list[float]] = {}
    for n, s in zip(items[:half].tolist(), seconds[:half].tolist(), strict=True):
        ratios.setdefault(bucket(n), []).append(s / shape.mean_s(n))
    model = replace(shape, ratios={b: _thin(sorted(r)) for b, r in ratios.items()})
    errors = [abs(ln(s / model.mean_s(n))) for n, s in zip(items[half:].tolist(), seconds[half:].tolist(), strict=True)]
    return model, float(np.mean(errors))


def _thin(ordered: list[float]) -> tuple[float, ...]:
    """At most `latency.KEEP` values, evenly spaced in rank and with both ends."""
    if len(ordered) <= latency.KEEP:
        return tuple(ordered)
    at = np.linspace(0, len(ordered) - 1, latency.KEEP).round().astype(int)
    return tuple(ordered[i] for i in at)


def _binned(items: Ints, seconds: Floats, what: str) -> Profile:
    """The rows as a profile whose sizes are the mean sizes of bins."""
    bins: dict[int, list[tuple[int, float]]] = {}
    for n, s in zip(items.tolist(), seconds.tolist(), strict=True):
        bins.setdefault(int(log2(n) * BINS_PER_OCTAVE), []).append((n, s))
    samples: dict[int, list[float]] = {}
    for rows in bins.values():
        samples.setdefault(round(sum(n for n, _ in rows) / len(rows)), []).extend(s for _, s in rows)
    return Profile(
        model=what,
        model_digest="",
        device="",
        device_key="",
        variant="",
        provenance=Provenance(kind="measured", source="an access log", date="", hardware=""),
        samples=tuple(Samples(items=n, service_s=tuple(s)) for n, s in sorted(samples.items())),
    )
