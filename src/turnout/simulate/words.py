"""A simulation in sentences, policies across seeds, and figures as a person reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turnout.simulate.artefact import Run, Simulated


class Line(Struct, frozen=True, kw_only=True):
    """One policy over all seeds. Means over seeds, but `worst` and `best`, which are the seeds' attainments."""

    name: str
    runs: tuple[Run, ...]
    attainment: float
    worst: float
    best: float
    stopped: bool
    p50_s: float | None
    p99_s: float | None
    usd_per_million_met: float | None
    usd_per_h: float
    rejects: float
    late: float
    utilisation: dict[str, float]
    coverage_p99: float | None


def lines(simulated: Simulated) -> list[Line]:
    """A line per policy, the one with most requests in time first; those that were stopped last."""
    groups: dict[str, list[Run]] = {}
    for run in simulated.runs:
        groups.setdefault(named(run.policy, run.params), []).append(run)
    return sorted((_line(name, runs) for name, runs in groups.items()), key=lambda x: (x.stopped, -x.attainment))


def _line(name: str, runs: Sequence[Run]) -> Line:
    rows = [run.summary for run in runs]
    shares = [row.attainment for row in rows]
    return Line(
        name=name,
        runs=tuple(runs),
        attainment=sum(shares) / len(shares),
        worst=min(shares),
        best=max(shares),
        stopped=any(row.stopped_early for row in rows),
        p50_s=_mean([row.latency_p50_s for row in rows]),
        p99_s=_mean([row.latency_p99_s for row in rows]),
        usd_per_million_met=_mean([row.usd_per_million_met for row in rows]),
        usd_per_h=sum(row.bill_usd / row.duration_s * 3600.0 if row.duration_s else 0.0 for row in rows) / len(rows),
        rejects=sum(sum(row.rejects.values()) / max(row.requests, 1) for row in rows) / len(rows),
        late=sum((row.replies - row.met) / max(row.requests, 1) for row in rows) / len(rows),
        utilisation={
            pool.pool: sum(row.pools[i].utilisation for row in rows) / len(rows) for i, pool in enumerate(rows[0].pools)
        },
        coverage_p99=_mean([row.coverage_p99 for row in rows]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """None if any is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def verdict(simulated: Simulated) -> tuple[str, ...]:
    """What it came to."""
    found = lines(simulated)
    best = found[0]
    asked = max(objective.attainment for objective in simulated.objectives)
    seeds = f" over {len(simulated.seeds)} seeds" if len(simulated.seeds) > 1 else ""
    part = ", as a part of the run that was stopped" if best.stopped else ""
    said = [
        f"{best.name} answers {share(best.attainment)} in time (modelled{seeds}); {share(asked)} asked{part}.",
    ]
    if len(found) > 1 and not found[1].stopped:
        said.append(_compared(best, found[1]))
    if best.rejects > 0.0:
        reasons: Counter[str] = Counter()
        for run in best.runs:
            reasons.update(run.summary.rejects)
        most, count = reasons.most_common(1)[0]
        said.append(f"It rejects {share(best.rejects)} of the requests, {count} of {reasons.total()} as {most!r}.")
    return tuple(said)


def _compared(best: Line, next_: Line) -> str:
    """The best against the next, seed by seed, since both had the same requests and the same luck."""
    of_seed = {run.seed: run.summary.attainment for run in next_.runs}
    gaps = [100.0 * (run.summary.attainment - of_seed[run.seed]) for run in best.runs]
    mean = sum(gaps) / len(gaps)
    spread = f" ({min(gaps):+.2f} to {max(gaps):+.2f} by seed)" if len(gaps) > 1 else ""
    if min(gaps) <= 0.0:
        return f"It is not ahead of {next_.name} on every seed: {mean:+.2f} points{spread}."
    return f"The next, {next_.name}, is {mean:.2f} points behind{spread}."


def named(policy: str, params: dict[str, Any]) -> str:
    """A policy with its parameters, as they stand in a config."""
    said = ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in params.items())
    return f"{policy} {said}" if said else policy


def share(value: float | None) -> str:
    """A share, with the digits that an objective of 0.999 needs."""
    return "-" if value is None else f"{100 * value:.2f} %"


def milliseconds(seconds: float | None) -> str:
    """A duration, or "-"."""
    return "-" if seconds is None else f"{1e3 * seconds:,.4g} ms"


def dollars(usd: float | None) -> str:
    """An amount, or "-"."""
    return "-" if usd is None else f"${usd:,.4g}" if abs(usd) < 1000 else f"${usd:,.0f}"
