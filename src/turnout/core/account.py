"""What a run came to: answers, latency, attainment, and dollars, counted from events and actions alone.

Fed with a live log, a replay or a simulation, so all three are counted by the same rules. A request counts as met
only if its answer left by its deadline: a reject, a loss and a late answer are misses alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from turnout.core import events as ev
from turnout.core.cost import Usage, bill_usd, effective_usd_per_million
from turnout.core.events import Action, Event
from turnout.core.fleet import PoolSpec
from turnout.core.histogram import Histogram
from turnout.core.uptime import Uptime


class PoolSummary(Struct, frozen=True, kw_only=True):
    """One pool over the run. `utilisation` is busy seconds / up seconds of its replicas."""

    pool: str
    batches: int
    items: int
    busy_s: float
    up_s: float
    utilisation: float
    bill_usd: float


class Summary(Struct, frozen=True, kw_only=True):
    """The whole run. Latencies are of answered requests, quantiles within 0.25 %; all shares are fractions.

    `coverage_p99` is the share of batches that took at most the p99 predicted for them when they were dispatched.
    `usd_per_million_met` is the effective cost: the bill of all pools, idle time included, per million requests that
    met their deadline. `stopped_early` is that the run was ended before all requests had arrived, so that shares are
    those of a part.
    """

    requests: int
    replies: int
    rejects: dict[str, int]
    met: int
    attainment: float
    duration_s: float
    latency_mean_s: float | None
    latency_p50_s: float | None
    latency_p99_s: float | None
    batches: int
    mean_batch_items: float
    retried_batches: int
    coverage_p99: float | None
    pools: tuple[PoolSummary, ...]
    bill_usd: float
    usd_per_million_met: float | None
    stopped_early: bool = False


class _Tally(Struct):
    """Running counts of one pool."""

    batches: int = 0
    items: int = 0
    busy_s: float = 0.0


class Account:
    """Counts a run as it happens; `summary` may be asked for at any moment."""

    def __init__(self) -> None:
        """Start at nothing."""
        self._pools: dict[str, PoolSpec] = {}
        self._first_s: float | None = None
        self._last_s = 0.0
        self._open: dict[int, ev.Arrived] = {}
        self._flying: dict[int, tuple[ev.Dispatch, str]] = {}
        self._uptime = Uptime()
        self._tallies: dict[str, _Tally] = {}
        self._latency_s = Histogram()
        self._rejects: Counter[str] = Counter()
        self._requests = self._met = self._covered = self._finished = self._retried = 0

    def feed(self, event: Event, actions: Iterable[Action]) -> None:
        """Count one event and what the router did on it."""
        self._last_s = event.at_s
        if isinstance(event, ev.Arrived):
            self._open[event.rid] = event
            self._requests += 1
            if self._first_s is None:
                self._first_s = event.at_s
        elif isinstance(event, ev.Finished):
            self._finish(event)
        elif isinstance(event, ev.Failed):
            self._retried += self._flying.pop(event.batch, None) is not None
        elif isinstance(event, ev.Configured | ev.ReplicaUp | ev.ReplicaDown | ev.ReplicaStarting):
            self._follow(event)
        for action in actions:
            self._act(action, event.at_s)

    def _follow(self, event: Event) -> None:
        """Pools and replicas come and go: a removed pool stays in the bill, what a lost replica had runs again."""
        if isinstance(event, ev.Configured):
            self._pools.update((spec.name, spec) for spec in event.fleet.pools)
        gone = self._uptime.follow(event)
        lost = [batch for batch, (dispatch, _) in self._flying.items() if dispatch.replica in gone]
        for batch in lost:
            del self._flying[batch]
        self._retried += len(lost)

    def _finish(self, event: ev.Finished) -> None:
        known = self._flying.pop(event.batch, None)
        if known is None:
            return
        dispatch, pool = known
        tally = self._tallies.setdefault(pool, _Tally())
        tally.batches += 1
        tally.items += sum(p.items for p in dispatch.parts)
        tally.busy_s += event.service_s + event.transfer_s
        self._finished += 1
        self._covered += event.service_s + event.transfer_s <= dispatch.p99_s

    def _act(self, action: Action, at_s: float) -> None:
        if isinstance(action, ev.Dispatch):
            self._flying[action.batch] = action, self._uptime.pool_of(action.replica)
        elif isinstance(action, ev.Reply):
            arrived = self._open.pop(action.rid, None)
            if arrived is not None:
                self._latency_s.add(at_s - arrived.at_s)
                self._met += at_s <= arrived.deadline_s
        elif isinstance(action, ev.Reject) and self._open.pop(action.rid, None) is not None:
            self._rejects[action.reason] += 1

    @property
    def missed(self) -> int:
        """Requests that were rejected, or answered too late, so far."""
        return self._latency_s.count + self._rejects.total() - self._met

    def summary(self, *, stopped_early: bool = False) -> Summary:
        """The counts so far; machines that are still up are billed until the last event."""
        pools = self._pool_summaries()
        total_usd = sum(p.bill_usd for p in pools)
        batches = sum(p.batches for p in pools)
        per_million = effective_usd_per_million([total_usd], self._met)
        return Summary(
            requests=self._requests,
            replies=self._latency_s.count,
            rejects=dict(self._rejects),
            met=self._met,
            attainment=self._met / self._requests if self._requests else 0.0,
            duration_s=self._last_s - (self._first_s or 0.0),
            latency_mean_s=self._latency_s.mean,
            latency_p50_s=self._latency_s.quantile(0.5),
            latency_p99_s=self._latency_s.quantile(0.99),
            batches=batches,
            mean_batch_items=sum(p.items for p in pools) / batches if batches else 0.0,
            retried_batches=self._retried,
            coverage_p99=self._covered / self._finished if self._finished else None,
            pools=pools,
            bill_usd=total_usd,
            usd_per_million_met=per_million if self._met else None,
            stopped_early=stopped_early,
        )

    def _pool_summaries(self) -> tuple[PoolSummary, ...]:
        rows = []
        for spec in self._pools.values():
            up_s = self._uptime.up_s(spec.name, self._last_s)
            tally = self._tallies.get(spec.name) or _Tally()
            rows.append(
                PoolSummary(
                    pool=spec.name,
                    batches=tally.batches,
                    items=tally.items,
                    busy_s=tally.busy_s,
                    up_s=sum(up_s),
                    utilisation=tally.busy_s / sum(up_s) if sum(up_s) > 0.0 else 0.0,
                    bill_usd=bill_usd(spec.price, Usage(up_s=up_s, busy_s=tally.busy_s)),
                )
            )
        return tuple(rows)
