"""Fleets and policies through the simulator: what each would have made of this traffic.

Everything runs in the product's own router. A run that is only asked whether it meets the objective ends as soon as it
cannot any more. What comes out is modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
from msgspec.structs import replace

from turnout import policies, simulate
from turnout.core import events as ev
from turnout.core.account import Summary
from turnout.core.events import Action, Event
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.policy import Choice, Policy, PoolView, View, Waiting
from turnout.policies.batching import finish, greedy
from turnout.regret.own import Own
from turnout.regret.traffic import Traffic
from turnout.traces.access.log import NONE, Bools

Params = Mapping[str, Any]

AS_RECORDED = "as recorded"
"""Name of the policy that sends each request to where the log says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run: its account, and which requests (n,) were in time. `stopped` is that it ended early, being too bad."""

    summary: Summary | None
    met: Bools
    stopped: bool = False

    @property
    def attainment(self) -> float:
        """The share in time; of a run that was stopped only its bound, 0."""
        return 0.0 if self.stopped else float(self.met.mean())


def run(
    own: Own,
    traffic: Traffic,
    counts: Sequence[int],
    policy: str,
    params: Params,
    *,
    most_missed: int | None = None,
) -> Outcome:
    """So many replicas of each pool under a policy; stopped once more than `most_missed` requests have missed."""
    head = _with_counts(replace(own.head, policy=policy, params=dict(params)), own.pools, counts)
    if not head.fleet.pools:
        return Outcome(summary=None, met=np.zeros(len(traffic), dtype=np.bool_), stopped=True)
    return _run(head, own.draws, traffic, policies.load, most_missed=most_missed)


def as_they_run(own: Own, traffic: Traffic, *, merged: bool, recorded: bool) -> Outcome:
    """Their fleet as they run it: everything is served, however late; whole requests, or `merged` ones.

    With `recorded` each goes to the machine that the log says, or to the pool if the log does not tell its machines
    apart; else to the earliest predicted finish. Requests that no backend ever saw are missed, and not run.
    """
    if own.as_recorded:
        return _run(own.head, own.draws, traffic, policies.load)
    models = tuple(replace(w, mergeable=merged, late="serve") for w in own.head.models)
    head = replace(own.head, models=models, policy=AS_RECORDED if recorded else "earliest")
    draws, pool_of = own.draws, own.pool_of or ()
    if recorded and by_machine(own):
        head, draws = _machines(head, own, traffic.log.backends)
        pool_of = traffic.log.backends
    seen = traffic.log.ok | (traffic.log.backend != NONE)
    return _run(head, draws, traffic, _loader(pool_of, traffic.log.backend.tolist()), chosen=seen)


def by_machine(own: Own) -> bool:
    """Whether every machine of every pool is a backend of its own in the log."""
    return own.pool_of is not None and all(own.pool_of.count(pool.name) == pool.replicas for pool in own.pools)


def _machines(
    head: ev.Configured, own: Own, backends: Sequence[str]
) -> tuple[ev.Configured, dict[tuple[str, str], simulate.Draw]]:
    """The fleet with every machine as a pool of its own, named as its backend is."""
    assert own.pool_of is not None
    kind = dict(zip(backends, own.pool_of, strict=True))
    specs = {pool.name: pool for pool in own.pools}
    pools = tuple(replace(specs[kind[name]], name=name, replicas=1) for name in backends)
    models = tuple(
        replace(w, latency={name: w.latency[kind[name]] for name in backends if kind[name] in w.latency})
        for w in head.models
    )
    draws = {
        (name, model): draw for name in backends for (pool, model), draw in own.draws.items() if pool == kind[name]
    }
    return replace(head, fleet=Fleet(pools=pools), models=models), draws


def _loader(place_of: Sequence[str], backend: Sequence[int]) -> Callable[[str, Params], Policy]:
    """Loads policies, and the one that does what the log did: `place_of` gives the pool of each backend."""

    def allow(waiting: Waiting, pool: PoolView) -> bool:
        where = backend[waiting.rid]
        return where == NONE or place_of[where] == pool.spec.name

    def decide(view: View, state: Any, rng: np.random.Generator) -> tuple[Sequence[Choice], Any]:
        return greedy(view, finish, allow), state

    def load(name: str, params: Params) -> Policy:
        return decide if name == AS_RECORDED else policies.load(name, params)

    return load


def _with_counts(head: ev.Configured, pools: Sequence[PoolSpec], counts: Sequence[int]) -> ev.Configured:
    """The head with so many replicas of each pool; those with none are gone, and models that none serves with them."""
    kept = tuple(replace(pool, replicas=k) for pool, k in zip(pools, counts, strict=True) if k)
    names = {pool.name for pool in kept}
    models = tuple(replace(w, latency={p: m for p, m in w.latency.items() if p in names}) for w in head.models)
    return replace(head, fleet=Fleet(pools=kept), models=models)


def _run(
    head: ev.Configured,
    draws: Mapping[tuple[str, str], simulate.Draw],
    traffic: Traffic,
    load_policy: Callable[[str, Params], Policy],
    *,
    chosen: Bools | None = None,
    most_missed: int | None = None,
) -> Outcome:
    """One simulation, with each request's fate."""
    due_s = (traffic.log.at_s + traffic.deadline_s).tolist()
    met = np.zeros(len(traffic), dtype=np.bool_)

    def observe(event: Event, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, ev.Reply) and event.at_s <= due_s[action.rid]:
                met[action.rid] = True

    head = replace(head, at_s=float(traffic.log.at_s[0]))
    summary = simulate.run(head, traffic.arrivals(chosen), draws, load_policy, observe=observe, max_missed=most_missed)
    if summary.stopped_early:
        return Outcome(summary=None, met=met, stopped=True)
    unmet = int((~met).sum())  # also those that the policy left waiting to the end
    return Outcome(summary=summary, met=met, stopped=most_missed is not None and unmet > most_missed)


# ---- which policies there are ----------------------------------------------------------------------------------------


def settings(pools: Sequence[PoolSpec]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every shipped policy with the parameters to try: its declared grid, and for `pinned` each pool alone."""
    for name in sorted(policies.POLICIES, key=lambda name: name != policies.DEFAULT):
        if name == "pinned":
            if len(pools) > 1:
                yield name, [{"pools": [pool.name]} for pool in pools]
            continue
        grid: Mapping[str, Sequence[Any]] = getattr(import_module(policies.POLICIES[name]), "GRID", {})
        yield name, [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
