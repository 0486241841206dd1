"""All that the router knows, as one object: who waits, what runs where, what is predicted, what is left of budgets.

It holds and predicts, and decides nothing. `snapshot` and `restore` carry it into the next log segment.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from math import ceil, inf
from typing import Any

import msgspec
from numpy.random import PCG64, Generator

from turnout.core import events as ev
from turnout.core.events import Part
from turnout.core.fleet import Limits
from turnout.core.latency import Calibration
from turnout.core.ledger import Ledger, Request
from turnout.core.policy import PoolView
from turnout.core.replicas import Batch, Replicas
from turnout.core.snapshot import Snapshot, restore_generator, save_generator
from turnout.core.standing import Standing
from turnout.core.waiting import NEVER, WaitingSet
from turnout.core.workload import Workload


class State:
    """The router's state; only the router changes it."""

    __slots__ = (
        "_largest",
        "batches",
        "calibrations",
        "closing_s",
        "hedges_left",
        "ledger",
        "limits",
        "next_batch",
        "policy_state",
        "pools",
        "replicas",
        "rng",
        "standings",
        "waiting",
        "wake_s",
        "workloads",
    )

    def __init__(self) -> None:
        """Start with no fleet and nothing to do."""
        self.limits = Limits()
        self.workloads: dict[str, Workload] = {}
        self.calibrations: dict[str, dict[str, Calibration]] = {}
        self.pools: dict[str, PoolView] = {}
        self.standings: dict[str, Standing] = {}
        self.ledger = Ledger()
        self.waiting = WaitingSet()
        self.replicas = Replicas()
        self.batches: dict[int, Batch] = {}
        self.next_batch = 1
        self.hedges_left = 0.0
        self.closing_s: float | None = None
        self.wake_s = NEVER
        self.policy_state: Any = None
        self.rng = Generator(PCG64(0))
        self._largest: dict[str, int] = {}

    def configure(self, config: ev.Configured) -> None:
        """Take over a fleet and its models; a calibration that is live stays, unless its latency model changed."""
        self.limits = config.limits
        self.workloads = {w.name: w for w in config.models}
        stood, self.standings = self.standings, {}
        for w in config.models:
            standing = self.standings[w.name] = stood.get(w.name) or Standing(attainment=w.slo.attainment)
            standing.attainment = w.slo.attainment
        live, self.calibrations = self.calibrations, {}
        for spec in config.fleet.pools:
            row = self.calibrations[spec.name] = {}
            for name in spec.models if spec.parity_ok else ():
                model = self.workloads[name].latency.get(spec.name) if name in self.workloads else None
                if model is not None:
                    known = live.get(spec.name, {}).get(name)
                    row[name] = known if known is not None and known.model == model else Calibration(model)
        self.pools = {p.name: PoolView(p, self.calibrations[p.name]) for p in config.fleet.pools}
        self.replicas.configure({p.name: p.slots for p in config.fleet.pools})
        self._largest = {
            name: max((p.spec.max_items for p in self.pools.values() if p.serves(name)), default=0)
            for name in self.workloads
        }

    # ---- predictions about a model -----------------------------------------------------------------------------------

    def present(self, model: str, barred: AbstractSet[str] = frozenset()) -> bool:
        """Whether a replica that serves `model`, in a pool not `barred`, is up or starting."""
        return any(
            name not in barred and view.serves(model) and self.replicas.count(name) for name, view in self.pools.items()
        )

    def largest(self, model: str) -> int:
        """The largest batch of `model` that any pool takes."""
        return self._largest[model]

    def fastest_s(self, model: str, items: int, max_parts: int) -> float:
        """Mean seconds of the fastest pool here for `items`, split as far as allowed; 0 if all are away."""
        best = inf
        for name, pool in self.pools.items():
            if pool.serves(model) and self.replicas.count(name):
                share = min(ceil(items / max(max_parts, 1)), pool.spec.max_items)
                best = min(best, pool.mean_s(model, share))
        return 0.0 if best == inf else best

    def retry_after_s(self, arrived: ev.Arrived, now_s: float) -> float:
        """Seconds until a replica should be free for, and through with, a request like `arrived`."""
        free = [
            r.through_s for r in self.replicas.by_name.values() if r.up and self.pools[r.pool].serves(arrived.model)
        ]
        wait_s = max(min(free, default=now_s) - now_s, 0.0)
        return wait_s + self.fastest_s(arrived.model, arrived.items, arrived.max_parts)

    def enqueue(self, request: Request, part: Part) -> None:
        """Let a part wait, with the latest start that could still meet its deadline on the fastest replica here."""
        arrived = request.arrived
        latest_s = NEVER
        if self.workloads[arrived.model].late == "reject":
            latest_s = arrived.deadline_s - self.fastest_s(arrived.model, part.items, arrived.max_parts)
        self.waiting.add(request.waiting(part), latest_s)

    def unbar(self) -> None:
        """Where no pool is left but those that failed it, waiting work may try them again rather than nobody."""
        for waiting in self.waiting.in_order():
            if waiting.barred and not self.present(waiting.model, frozenset(waiting.barred)):
                request = self.ledger.requests[waiting.rid]
                request.troubles[waiting.start].barred = ()
                latest_s = self.waiting.latest_start_s(waiting)
                self.waiting.remove(waiting.rid, waiting.start)
                self.waiting.add(request.waiting(waiting.part), latest_s)

    # ---- the snapshot ------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """All of this, JSON-like and independent of what happens next."""
        waiting = self.waiting.in_order()
        value = Snapshot(
            requests=list(self.ledger.requests.values()),
            waiting=list(waiting),
            latest_start_s=[None if s == NEVER else s for s in map(self.waiting.latest_start_s, waiting)],
            replicas=list(self.replicas.by_name.values()),
            reported_s=self.replicas.reported_s,
            batches=list(self.batches.values()),
            next_batch=self.next_batch,
            calibrations={
                pool: {model: c.state() for model, c in row.items()} for pool, row in self.calibrations.items()
            },
            standings=self.standings,
            hedges_left=self.hedges_left,
            closing_s=self.closing_s,
            wake_s=None if self.wake_s == NEVER else self.wake_s,
            policy_state=self.policy_state,
            rng=save_generator(self.rng),
        )
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
        return plain

    def restore(self, plain: dict[str, Any]) -> None:
        """Go on from a snapshot, after `configure` with the same fleet and models."""
        value = msgspec.convert(plain, Snapshot, strict=False)
        self.ledger.requests = {r.arrived.rid: r for r in value.requests}
        for waiting, latest_s in zip(value.waiting, value.latest_start_s, strict=True):
            self.waiting.add(waiting, NEVER if latest_s is None else latest_s)
        self.replicas.restore(value.replicas, value.reported_s)
        self.batches = {b.flight.batch: b for b in value.batches}
        self.next_batch = value.next_batch
        for pool, row in value.calibrations.items():
            for model, saved in row.items():
                self.calibrations[pool][model].restore(saved)
        self.standings.update(value.standings)
        self.hedges_left = value.hedges_left
        self.closing_s = value.closing_s
        self.wake_s = NEVER if value.wake_s is None else value.wake_s
        self.policy_state = value.policy_state
        restore_generator(self.rng, value.rng)
