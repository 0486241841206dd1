"""The requests of each seed: from a trace, or from laws; scaled, cut, and given to the models of the fleet.

A trace is the same for every seed unless something in it has to be drawn: its sizes, its places within a second, or
which model a request is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose

import numpy as np

from turnout.core.trace import Trace
from turnout.errors import ConfigError
from turnout.traces import laws
from turnout.traces.laws import ArrivalLaw, SizeLaw

MOST_REQUESTS = 20_000_000
"""That are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`draw` gives the requests of a seed; `redrawn` is that they differ between seeds."""

    draw: Callable[[int], Trace]
    redrawn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is done to every trace: only the first `count` requests, at this mean rate; each None leaves it as it is.

    `mix` is the share of requests of each model, for a trace that does not name them; empty where one model is served.
    """

    rate_per_s: float | None = None
    count: int | None = None
    mix: Mapping[str, float]


def of_laws(arrivals: ArrivalLaw, sizes: SizeLaw, rate_per_s: float, count: int) -> Source:
    """So many requests from laws.

    Raises:
        ConfigError: more than can be simulated.
    """
    if count > MOST_REQUESTS:
        raise ConfigError(f"--count {count}: at most {MOST_REQUESTS} requests can be simulated")
    return Source(
        draw=lambda seed: laws.trace(arrivals, sizes, count=count, rate_per_s=rate_per_s, seed=seed), redrawn=True
    )


def for_models(source: Source, models: Sequence[str], wanted: Wanted) -> Source:
    """The same requests, cut, scaled, and of models that are served.

    Raises (when a trace is drawn):
        ConfigError: the trace has models that are not served, or there are several and nothing says which request is
            for which; or all requests came at once, so that they cannot be scaled.
    """

    def draw(seed: int) -> Trace:
        trace = source.draw(seed)
        if wanted.count is not None and wanted.count < len(trace):
            trace = trace.part(0, wanted.count)
        if wanted.rate_per_s is not None:
            if trace.rate_per_s <= 0.0:
                raise ConfigError(f"{trace.source}: all requests come at once, and cannot be scaled to a rate")
            if not isclose(trace.rate_per_s, wanted.rate_per_s):
                trace = trace.at_rate(wanted.rate_per_s)
        return _given_models(trace, models, wanted.mix, seed)

    return Source(draw=draw, redrawn=source.redrawn or bool(wanted.mix))


def _given_models(trace: Trace, models: Sequence[str], mix: Mapping[str, float], seed: int) -> Trace:
    """The trace with every request for a model that is served."""
    if all(name in models for name in trace.models):
        return trace
    if len(trace.models) > 1:
        absent = [name for name in trace.models if name not in models]
        raise ConfigError(f"the trace has requests of {', '.join(absent)}, and what is served is {', '.join(models)}")
    if not mix and len(models) > 1:
        raise ConfigError(
            f"the fleet serves {', '.join(models)}, and the trace does not say which request is for which: add "
            f"--mix {','.join(f'{name}=1' for name in models)} with the shares"
        )
    names = tuple(mix or models)
    absent = [name for name in names if name not in models]
    if absent:
        raise ConfigError(f"--mix: there is no model {absent[0]!r}; there are: {', '.join(models)}")
    shares = np.array([mix.get(name, 1.0) for name in names])
    rng = np.random.default_rng(seed).spawn(3)[2]  # the first two draw arrivals and sizes
    said = "" if len(names) == 1 else f", of {', '.join(f'{n} ({s / shares.sum():.0%})' for n, s in mix.items())}"
    return Trace(
        at_s=trace.at_s,
        items=trace.items,
        model=rng.choice(len(names), len(trace), p=shares / shares.sum()) if len(names) > 1 else trace.model,
        models=names,
        source=trace.source + said,
        deadline_s=trace.deadline_s,
    )
