"""Policy parameters by simulation: chosen on the part of the log for fitting, judged on the part held out.

All of it is modelled: the recorded arrivals and lost replicas through the simulator, with service times drawn from
what the same part of the log recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from msgspec.structs import replace

from turnout import simulate
from turnout.core import events as ev
from turnout.core.account import Summary
from turnout.core.events import Action, Event
from turnout.core.latency import LatencyModel
from turnout.core.router import LoadPolicy
from turnout.core.uptime import Uptime
from turnout.fit.artefact import Change, Outcome, Trial, Tuning
from turnout.fit.recorded import Part
from turnout.fit.refit import realised

Latency = Mapping[tuple[str, str], LatencyModel]
Grid = Mapping[str, Sequence[Any]]
Simulate = Callable[..., Summary]
"""`simulate.run`."""

Ran = tuple[Summary, dict[int, str]]
"""A simulation's summary, and the pool that each request went to first."""

SEEDS = 3
"""Simulations of the held-out part; a recommendation has to hold in each."""

LEAST_ATTAINMENT = 0.0005
"""A smaller difference in attainment is none."""

LEAST_SAVING = 0.01
"""A smaller share of the cost per million requests met is none."""


class Tuner:
    """Runs parts of a log under other latency models and parameters."""

    def __init__(self, load_policy: LoadPolicy, simulated: Simulate) -> None:
        """`load_policy` finds the policies, `simulated` is `simulate.run`."""
        self._load_policy = load_policy
        self._simulated = simulated

    def tune(self, part: Part, latency: Latency, grid: Grid) -> Tuning:
        """The parameters of the grid, and those of the log, that do best on `part` with these latency models."""
        head = with_latency(part.configured, latency)
        choices = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())] if grid else []
        params = [head.params, *({**head.params, **choice} for choice in choices)]
        tried = [p for i, p in enumerate(params) if p not in params[:i]]
        summaries = [self._run(part, replace(head, params=p))[0] for p in tried] if len(tried) > 1 else []
        goal = max(w.slo.attainment for w in head.models)
        best = max(range(len(summaries)), key=lambda i: worth(summaries[i], goal), default=0)
        return Tuning(
            policy=head.policy,
            old=head.params,
            best=tried[best],
            trials=tuple(
                Trial(params=p, attainment=s.attainment, usd_per_million_met=s.usd_per_million_met)
                for p, s in zip(tried, summaries, strict=False)
            ),
        )

    def compare(self, part: Part, latency: Latency, best: dict[str, Any]) -> Change:
        """The held-out part as recorded, with the refitted models unless they do harm, and with `best` if it helps."""
        recorded = part.configured
        old = self._runs(part, recorded)
        refitted = self._runs(part, with_latency(recorded, latency)) if latency else old
        harmless = _attainment(refitted) >= _attainment(old) - LEAST_ATTAINMENT
        base = with_latency(recorded, latency) if harmless else recorded
        before = refitted if harmless else old
        tuned = self._runs(part, replace(base, params=best)) if best != recorded.params else before
        helps = all(improves(b, t) for (b, _), (t, _) in zip(before, tuned, strict=True))
        chosen = tuned if helps else before
        return Change(
            requests=len(part.arrivals),
            elsewhere=_moved(old[0][1], chosen[0][1]),
            seeds=SEEDS,
            as_recorded=_outcome(old),
            refitted=_outcome(refitted),
            tuned=_outcome(tuned),
            recommended=_outcome(chosen),
            models_do_harm=not harmless,
            params_help=helps,
        )

    def _runs(self, part: Part, head: ev.Configured) -> list[Ran]:
        """One simulation per seed."""
        return [self._run(part, replace(head, seed=head.seed + i)) for i in range(SEEDS)]

    def _run(self, part: Part, head: ev.Configured) -> Ran:
        """One simulation: its summary, and the pool that each request went to first."""
        truth = realised(part.configured, part.batches)
        draws = {key: simulate.from_model(model) for key, model in truth.items()}
        uptime, went = Uptime(), dict[int, str]()

        def observe(event: Event, actions: Iterable[Action]) -> None:
            uptime.follow(event)
            for action in actions:
                if isinstance(action, ev.Dispatch):
                    pool = uptime.pool_of(action.replica)
                    for piece in action.parts:
                        went.setdefault(piece.rid, pool)

        summary = self._simulated(head, part.arrivals, draws, self._load_policy, faults=part.faults, observe=observe)
        return summary, went


def with_latency(head: ev.Configured, latency: Latency) -> ev.Configured:
    """The head with these latency models in place of its own."""
    models = tuple(
        replace(w, latency={pool: latency.get((pool, w.name), model) for pool, model in w.latency.items()})
        for w in head.models
    )
    return replace(head, models=models)


def worth(summary: Summary, goal: float) -> tuple[float, float]:
    """What parameters are chosen by: attainment up to the goal, then the least dollars per request met."""
    cost = summary.usd_per_million_met
    return min(summary.attainment, goal), -cost if cost is not None else float("-inf")


def improves(old: Summary, new: Summary) -> bool:
    """Clearly more requests in time, or clearly cheaper with no fewer."""
    gain = new.attainment - old.attainment
    if gain >= LEAST_ATTAINMENT:
        return True
    before, after = old.usd_per_million_met, new.usd_per_million_met
    cheaper = before is not None and after is not None and after <= (1.0 - LEAST_SAVING) * before
    return cheaper and gain >= 0.0


def _moved(old: Mapping[int, str], new: Mapping[int, str]) -> int:
    """Requests whose first pool differs, "" for those that were refused."""
    return sum(old.get(rid, "") != new.get(rid, "") for rid in {*old, *new})


def _attainment(rows: Sequence[Ran]) -> float:
    return fmean(summary.attainment for summary, _ in rows)


def _outcome(rows: Sequence[Ran]) -> Outcome:
    costs = [s.usd_per_million_met for s, _ in rows if s.usd_per_million_met is not None]
    return Outcome(
        attainment=_attainment(rows),
        usd=fmean(s.bill_usd for s, _ in rows),
        usd_per_million_met=fmean(costs) if costs else None,
    )
