"""The router on a virtual clock: the same object that serves live traffic, driven by an event heap.

Realised service times come from a profile's samples (or a model's residuals); the policy sees predictions only.
Events of the same instant make one tick, as they do live. Everything is exact from a seed. What comes out is
modelled, however measured the profiles are, and is to be shown as such.

Beside the engine: `draws` (realised times), `arrivals` (a trace as events), `faults` (what breaks, and when), `idle`
(whether the objective can be met at all), and, for `turnout simulate`, `given`, `study`, `artefact`, `text`, `html`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf

from msgspec import Struct

from turnout.core import events as ev
from turnout.core.account import Account, Summary
from turnout.core.events import Action, Event
from turnout.core.router import LoadPolicy, Router
from turnout.simulate.draws import Draw, drift, from_model, from_profile, key, lognormal, two_state

__all__ = [
    "Draw", "Observe", "Simulation", "Slow", "drift", "from_model", "from_profile", "key", "lognormal", "run",
    "two_state",
]  # fmt: skip

Observe = Callable[[Event, Sequence[Action]], None]

Slow = Callable[[str, float], float]
"""`slow(replica, now_s)`: how many times as long as drawn a batch takes that begins on that replica then."""


class _Station(Struct):
    """A simulated replica: batches run one after the other."""

    pool: str
    free_s: float = 0.0


class Simulation:
    """One run. `run` may be called once."""

    def __init__(
        self,
        configured: ev.Configured,
        draws: Mapping[tuple[str, str], Draw],
        load_policy: LoadPolicy,
        *,
        slow: Slow | None = None,
    ) -> None:
        """`draws` gives the realised times by (pool, model); `slow` singles out replicas that take longer."""
        self._configured = configured
        self._draws = draws
        self._slow = slow
        self._router = Router(load_policy)
        self._seed = configured.seed
        self._heap: list[tuple[float, int, Event]] = []
        self._order = count()
        self._stations: dict[str, _Station] = {}
        self._lost: set[int] = set()
        self._on_replica: dict[int, str] = {}
        self._wake_s = inf

    def run(
        self,
        arrivals: Iterable[ev.Arrived],
        faults: Iterable[Event] = (),
        observe: Observe | None = None,
        max_missed: int | None = None,
    ) -> Summary:
        """Run all arrivals, which must be in order of time, to their answers; returns the count.

        `faults` are events of replicas (`ReplicaDown`, `ReplicaStarting`, `ReplicaUp`) at their times; one that is
        starting at the beginning is not up before. `observe` sees every event with the router's actions on it, in the
        order of a log. The run ends, and its summary is `stopped_early`, with the tick in which more than `max_missed`
        requests have been rejected or answered late: to ask whether an objective is met, that is all it takes.
        """
        account = Account()
        pending = iter(arrivals)
        for event in faults:
            self._push(event)

        def feed(event: Event) -> None:
            actions = self._router.handle(event)
            account.feed(event, actions)
            if observe is not None:
                observe(event, actions)
            for action in actions:
                self._act(action, event.at_s)

        feed(self._configured)
        self._start_replicas(feed)
        upcoming = next(pending, None)
        while True:
            now_s = min(
                upcoming.at_s if upcoming is not None else inf, self._heap[0][0] if self._heap else inf, self._wake_s
            )
            if now_s == inf:
                return account.summary()
            while self._heap and self._heap[0][0] <= now_s:
                event = heappop(self._heap)[2]
                if self._is_real(event):
                    feed(event)
            while upcoming is not None and upcoming.at_s <= now_s:
                feed(upcoming)
                upcoming = next(pending, None)
            if self._wake_s <= now_s:
                self._wake_s = inf
            feed(ev.Decide(at_s=now_s))
            if max_missed is not None and account.missed > max_missed:
                return account.summary(stopped_early=True)

    def _start_replicas(self, feed: Callable[[Event], None]) -> None:
        at_s = self._configured.at_s
        absent = {e.replica for t, _, e in self._heap if t <= at_s and isinstance(e, ev.ReplicaStarting)}
        for pool in self._configured.fleet.pools:
            for name in (f"{pool.name}-{i}" for i in range(pool.replicas)):
                if name in absent:
                    continue
                self._stations[name] = _Station(pool.name, at_s)
                feed(ev.ReplicaUp(at_s=at_s, replica=name, pool=pool.name))

    def _push(self, event: Event) -> None:
        heappush(self._heap, (event.at_s, next(self._order), event))

    def _is_real(self, event: Event) -> bool:
        """Follow the replicas that come and go; what a lost replica had in hand never finishes."""
        if isinstance(event, ev.ReplicaDown | ev.ReplicaStarting):  # what starts is not up, whatever it was
            self._stations.pop(event.replica, None)
            self._lost.update(b for b, replica in self._on_replica.items() if replica == event.replica)
        elif isinstance(event, ev.ReplicaUp):
            self._stations[event.replica] = _Station(event.pool, event.at_s)
        elif isinstance(event, ev.Finished | ev.Started):
            if isinstance(event, ev.Finished):
                self._on_replica.pop(event.batch, None)
            return event.batch not in self._lost
        return True

    def _act(self, action: Action, now_s: float) -> None:
        if isinstance(action, ev.Dispatch):
            station = self._stations[action.replica]
            start_s = max(now_s, station.free_s)
            first, items = action.parts[0], sum(p.items for p in action.parts)
            chance = key(self._seed, first.rid, first.start)
            service_s = self._draws[station.pool, action.model](items, chance, start_s)
            if self._slow is not None:
                service_s *= self._slow(action.replica, start_s)
            station.free_s = start_s + service_s
            self._on_replica[action.batch] = action.replica
            if start_s > now_s:
                self._push(ev.Started(at_s=start_s, batch=action.batch))
            self._push(ev.Finished(at_s=station.free_s, batch=action.batch, service_s=service_s))
        elif isinstance(action, ev.Wake):
            self._wake_s = action.at_s


def run(
    configured: ev.Configured,
    arrivals: Iterable[ev.Arrived],
    draws: Mapping[tuple[str, str], Draw],
    load_policy: LoadPolicy,
    *,
    faults: Iterable[Event] = (),
    observe: Observe | None = None,
    slow: Slow | None = None,
    max_missed: int | None = None,
) -> Summary:
    """Simulate one fleet under one policy; see `Simulation` and its `run`."""
    return Simulation(configured, draws, load_policy, slow=slow).run(arrivals, faults, observe, max_missed)
