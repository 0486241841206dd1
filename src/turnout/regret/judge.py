"""The five lines of the answer, each on the second half of the requests: what is chosen is chosen on the first.

Theirs as measured; theirs as modelled; the best policy on their fleet; the best fleet; the bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np

from turnout import policies
from turnout.errors import ConfigError
from turnout.regret import floor, runs
from turnout.regret.artefact import HOPELESS, Calibration, Line, Series, Split, Tried
from turnout.regret.floor import Floor
from turnout.regret.own import Own
from turnout.regret.runs import Outcome, Params
from turnout.regret.search import Search
from turnout.regret.traffic import Traffic
from turnout.traces.access.log import Bools, Floats

CLOSE_ATTAINMENT = 0.02
CLOSE_LATENCY = 1.25
"""How far the model may be off in attainment, and by which factor in p50 and p99, and still be trusted."""

SPANS = 40
"""Of the attainment over time."""

MOST_REPLICAS = 64
"""Of one pool in a search, where the caller does not say."""

Told = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was found; see `artefact.Regret` for the fields of the same name."""

    calibration: Calibration
    theirs: Line
    same: Line
    best_policy: Line
    best_fleet: Line | None
    bound: Line
    tried: tuple[Tried, ...]
    series: tuple[Series, ...]
    hindsight: bool
    bound_is: str
    fleets_tried: int
    most: tuple[int, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """What every step needs. `miss` requests of `first` may be missed."""

    first: Traffic
    second: Traffic
    own: Own
    told: Told

    @property
    def theirs(self) -> tuple[int, ...]:
        return tuple(pool.replicas for pool in self.own.pools)

    @property
    def usd_per_h(self) -> tuple[float, ...]:
        return tuple(pool.price.usd_per_s * 3600.0 for pool in self.own.pools)

    def most_missed(self, traffic: Traffic) -> int:
        return int((1.0 - self.own.attainment) * len(traffic) + 1e-9)

    def line(self, label: str, counts: Sequence[int], policy: str, params: Params, outcome: Outcome) -> Line:
        """A modelled line of the second half."""
        account = outcome.summary
        usd_per_h = sum(k * usd for k, usd in zip(counts, self.usd_per_h, strict=True))
        return Line(
            label=label,
            origin="modelled",
            fleet={pool.name: k for pool, k in zip(self.own.pools, counts, strict=True)},
            policy=policy,
            params=dict(params),
            attainment=outcome.attainment,
            usd_per_h=usd_per_h,
            usd_per_million_met=self.per_million(usd_per_h, int(outcome.met.sum())),
            latency_p50_s=account.latency_p50_s if account else None,
            latency_p99_s=account.latency_p99_s if account else None,
            meets=len(outcome.met) - int(outcome.met.sum()) <= self.most_missed(self.second),
        )

    def per_million(self, usd_per_h: float, met: int) -> float | None:
        """Dollars of a fleet over the second half per million requests in time."""
        return usd_per_h * self.second.duration_s / 3600.0 / met * 1e6 if met else None


def judge(first: Traffic, second: Traffic, own: Own, most: Mapping[str, int], told: Told) -> Judged:
    """Choose on `first`, judge on `second`."""
    ask = _Ask(first=first, second=second, own=own, told=told)
    theirs = _theirs(ask)
    told("your fleet, as you run it", 0.02)
    calibration, same = _calibrate(ask, theirs)
    tried = _policies(ask)
    best = max(tried, key=lambda t: t.chosen_on or 0.0)
    outcome = runs.run(own, second, ask.theirs, best.policy, best.params)
    best_policy = ask.line("your fleet, best policy", ask.theirs, best.policy, best.params, outcome)
    merged = any(w.mergeable for w in own.head.models) or own.max_parts > 1
    cuts = [floor.floor(t, own.pools, _work(t, own, merged=merged), 1.0 - own.attainment) for t in (first, second)]
    limits = _limits(ask, most)
    found = _fleet(ask, best, cuts, limits)
    series = [_series("yours", "measured", second, second.met), _series("best policy", "modelled", second, outcome.met)]
    if found.outcome is not None:
        series.append(_series("best fleet", "modelled", second, found.outcome.met))
    return Judged(
        calibration=calibration,
        theirs=theirs,
        same=same,
        best_policy=best_policy,
        best_fleet=found.line,
        bound=_bound(ask, cuts[1]),
        tried=tried,
        series=tuple(series),
        hindsight=found.hindsight,
        bound_is=MERGED if merged else WHOLE,
        fleets_tried=found.attempts,
        most=limits,
        notes=found.notes,
    )


WHOLE = "B1: every request alone, no time lost between requests, the dearest that may be missed left out"
MERGED = (
    "B2: every item at the best rate of any batch in time, no time lost between batches, the dearest requests that may "
    "be missed left out"
)


def split(judged: Judged) -> Split:
    """What lies between the lines."""
    theirs, same, policy, fleet, bound = (
        None if line is None else line.usd_per_million_met
        for line in (judged.theirs, judged.same, judged.best_policy, judged.best_fleet, judged.bound)
    )
    best = judged.best_fleet
    return Split(
        model_error=_less(theirs, same),
        policy_regret=_less(same, policy),
        fleet_regret=_less(policy, fleet),
        gap=_less(fleet, bound),
        policy_attainment=(judged.best_policy.attainment or 0.0) - (judged.same.attainment or 0.0),
        fleet_usd_per_h=judged.theirs.usd_per_h - best.usd_per_h if best else None,
        gap_usd_per_h=best.usd_per_h - judged.bound.usd_per_h if best else None,
    )


def _less(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


# ---- theirs ----------------------------------------------------------------------------------------------------------


def _theirs(ask: _Ask) -> Line:
    """What the log saw."""
    second, met = ask.second, ask.second.met
    usd_per_h = sum(k * usd for k, usd in zip(ask.theirs, ask.usd_per_h, strict=True))
    return Line(
        label="yours, as measured",
        origin="measured",
        fleet={pool.name: pool.replicas for pool in ask.own.pools},
        policy=ask.own.head.policy or "yours",
        params=ask.own.head.params,
        attainment=float(met.mean()),
        usd_per_h=usd_per_h,
        usd_per_million_met=ask.per_million(usd_per_h, int(met.sum())),
        latency_p50_s=second.observed(0.5),
        latency_p99_s=second.observed(0.99),
        meets=int((~met).sum()) <= ask.most_missed(second),
    )


def _calibrate(ask: _Ask, theirs: Line) -> tuple[Calibration, Line]:
    """Theirs in the simulation, in the way that comes nearest to the first half of the log."""
    own = ask.own
    if own.as_recorded:
        ways = [(False, False, f"the recorded policy, {own.head.policy}")]
    else:
        places = [True] if own.pool_of is not None else [False]
        merging = [False, True] if any(w.mergeable for w in own.head.models) else [False]
        ways = [(merged, recorded, _words(merged, recorded, own)) for recorded in places for merged in merging]
    distances = [
        _distance(runs.as_they_run(own, ask.first, merged=merged, recorded=recorded), ask.first)
        for merged, recorded, _ in (ways if len(ways) > 1 else [])
    ]
    merged, recorded, how = ways[int(np.argmin(distances)) if distances else 0]
    outcome = runs.as_they_run(own, ask.second, merged=merged, recorded=recorded)
    same = ask.line("yours, as modelled", ask.theirs, theirs.policy, theirs.params, outcome)
    close = abs((same.attainment or 0.0) - (theirs.attainment or 0.0)) <= CLOSE_ATTAINMENT and all(
        abs(_log_ratio(ours, seen)) <= log(CLOSE_LATENCY)
        for ours, seen in (
            (same.latency_p50_s, theirs.latency_p50_s),
            (same.latency_p99_s, theirs.latency_p99_s),
        )
    )
    return (
        Calibration(
            how=how,
            observed_attainment=theirs.attainment or 0.0,
            modelled_attainment=same.attainment or 0.0,
            observed_p50_s=theirs.latency_p50_s,
            modelled_p50_s=same.latency_p50_s,
            observed_p99_s=theirs.latency_p99_s,
            modelled_p99_s=same.latency_p99_s,
            trusted=close,
        ),
        same,
    )


def _words(merged: bool, recorded: bool, own: Own) -> str:  # noqa: FBT001
    where = "the earliest finish"
    if recorded:
        where = "the machine that the log says" if runs.by_machine(own) else "the pool that the log says"
    return f"each request to {where}, {'merged in batches' if merged else 'one by one'}, however late"


def _distance(outcome: Outcome, traffic: Traffic) -> float:
    """How far a run is from the log in p50 and p99, in logarithms."""
    account = outcome.summary
    if account is None:
        return inf
    return abs(_log_ratio(account.latency_p50_s, traffic.observed(0.5))) + abs(
        _log_ratio(account.latency_p99_s, traffic.observed(0.99))
    )


def _log_ratio(a: float | None, b: float | None) -> float:
    if a is None or b is None:
        return 0.0 if a is b else inf
    return log(max(a, 1e-9) / max(b, 1e-9))


# ---- policies and fleets ---------------------------------------------------------------------------------------------


def _policies(ask: _Ask) -> tuple[Tried, ...]:
    """Every policy on their fleet, with the parameters that did best on the first half."""
    found = []
    choices = list(runs.settings(ask.own.pools))
    for number, (name, grid) in enumerate(choices):
        ask.told(f"policy {name}", 0.05 + 0.45 * number / len(choices))
        params, missed = grid[0], int(HOPELESS * len(ask.first)) + 1
        for tried in grid:
            outcome = runs.run(ask.own, ask.first, ask.theirs, name, tried, most_missed=missed - 1)
            if not outcome.stopped:
                params, missed = tried, int((~outcome.met).sum())
            if not missed:
                break
        most = int(HOPELESS * len(ask.second))
        judged = runs.run(ask.own, ask.second, ask.theirs, name, params, most_missed=most)
        found.append(
            Tried(
                policy=name,
                params=params,
                chosen_on=None if missed > HOPELESS * len(ask.first) else 1.0 - missed / len(ask.first),
                judged_on=None if judged.stopped else judged.attainment,
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A fleet with how it does on the second half."""

    line: Line | None
    outcome: Outcome | None
    hindsight: bool
    attempts: int
    notes: tuple[str, ...]


def _fleet(ask: _Ask, best: Tried, cuts: Sequence[Floor], limits: tuple[int, ...]) -> _Found:
    """The cheapest fleet by the first half; by both halves, if that one does not meet the objective on the second."""
    ways: list[tuple[str, Params]] = [(policies.DEFAULT, {})]
    if best.policy not in {policies.DEFAULT, "pinned"}:
        ways.insert(0, (best.policy, best.params))
    took: dict[tuple[int, ...], tuple[str, Params]] = {}

    def meets(counts: tuple[int, ...], *traffics: Traffic) -> bool:
        for policy, params in ways:
            if all(
                not runs.run(ask.own, t, counts, policy, params, most_missed=ask.most_missed(t)).stopped
                for t in traffics
            ):
                took[counts] = policy, params
                return True
        return False

    notes: list[str] = []
    attempts = 0
    for hindsight, traffics in ((False, (ask.first,)), (True, (ask.first, ask.second))):

        def tried(counts: tuple[int, ...], traffics: tuple[Traffic, ...] = traffics) -> bool:
            nonlocal attempts
            attempts += 1
            ask.told(f"fleet {'+'.join(map(str, counts))}", min(0.5 + attempts / 100, 0.98))
            return meets(counts, *traffics)

        search = Search(usd_per_h=ask.usd_per_h, most=limits, floor=cuts[0], meets=tried)
        counts = search.run(tuple(min(k, m) for k, m in zip(ask.theirs, limits, strict=True)))
        if not search.complete:
            notes.append(f"the search for a fleet was ended after {search.attempts} fleets; a cheaper one may exist")
        if counts is None:
            return _Found(line=None, outcome=None, hindsight=hindsight, attempts=attempts, notes=tuple(notes))
        policy, params = took[counts]
        outcome = runs.run(ask.own, ask.second, counts, policy, params)
        line = ask.line("best fleet", counts, policy, params, outcome)
        if line.meets or hindsight:
            return _Found(line=line, outcome=outcome, hindsight=hindsight, attempts=attempts, notes=tuple(notes))
    raise AssertionError  # the second round always returns


def _limits(ask: _Ask, most: Mapping[str, int]) -> tuple[int, ...]:
    """The most replicas of each pool."""
    names = [pool.name for pool in ask.own.pools]
    unknown = [name for name in most if name not in names]
    if unknown:
        raise ConfigError(f"--max-replicas {unknown[0]}: there is no such pool; there are {', '.join(names)}")
    work_s = _work(ask.first, ask.own, merged=False)
    horizon_s = max(ask.first.duration_s, 1e-9)
    return tuple(
        most.get(
            pool.name,
            max(2 * pool.replicas, min(1 + -(-3 * floor.alone_count(work_s, horizon_s, i) // 2), MOST_REPLICAS)),
        )
        for i, pool in enumerate(ask.own.pools)
    )


def _work(traffic: Traffic, own: Own, *, merged: bool) -> Floats:
    return floor.work(traffic, own.pools, own.latencies, merged=merged)


def _bound(ask: _Ask, cuts: Floor) -> Line:
    """The least that any fleet can cost on the second half."""
    usd_per_h = cuts.least_usd_per_h()
    return Line(
        label="bound",
        origin="bound",
        fleet={},
        policy="",
        params={},
        attainment=None,
        usd_per_h=usd_per_h,
        usd_per_million_met=ask.per_million(usd_per_h, len(ask.second)),
    )


def _series(label: str, origin: Any, traffic: Traffic, met: Bools) -> Series:
    """Attainment in equal spans of time."""
    at_s = traffic.log.at_s
    edges = np.linspace(at_s[0], at_s[-1], SPANS + 1)
    span = np.clip(np.searchsorted(edges, at_s, side="right") - 1, 0, SPANS - 1)
    total = np.bincount(span, minlength=SPANS)
    hits = np.bincount(span, weights=met, minlength=SPANS)
    return Series(
        label=label,
        origin=origin,
        at_s=tuple(((edges[1:] + edges[:-1]) / 2.0).tolist()),
        attainment=tuple(float(h / t) if t else None for h, t in zip(hits, total, strict=True)),
    )
