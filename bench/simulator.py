"""How fast the simulator is: a million requests over 11 replicas through the shipped Router and our policy.

Model `wnd` (the middle one of five by load) at 1,480 requests/s, nine tenths of what our policy holds on 2 g4dn.xlarge
and 9 r5n.large, batches shared and requests split. Arrivals are drawn in pieces, so that memory grows with the queue.

requests_per_s   of the long run, in a process of its own, everything included
driver_share     of a run's time, what is left when a fresh Router and Account are fed the same events from a list: the
                 event heap, draws of service times, and making of arrivals
ratio_vs_simpy   requests per second by our engine / by a SimPy program (a process per replica with a store, one for
                 arrivals) that calls the same Router, policy, Account and draws, and comes to the same summary
memory_mb        peak resident memory of runs of different lengths, each in a process of its own

The three are timed in turn, several times; medians are shown. Times are the process's own on one CPU.

    .venv/bin/python bench/simulator.py [--quick]
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, cast

import simpy
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for the processes that it starts

from study import setting
from study.setting import FIXED, POOLS, SHARED

from turnout import policies, simulate
from turnout.core import events as ev
from turnout.core.account import Account, Summary
from turnout.core.router import Router
from turnout.demo.elsewhere import DEADLINES_S
from turnout.simulate.arrivals import arrivals

MODEL = "wnd"
RATE_PER_S = 1_480.0
PIECE = 50_000
LAST = 2
"""Of events of the same instant in SimPy: after all that are urgent (0) or normal (1)."""

DRAWS = {(i, MODEL): setting.draw(MODEL, i) for i in POOLS}


def head() -> ev.Configured:
    """The fleet and the policy."""
    pools = [setting.pool(i, [MODEL], n) for i, n in zip(POOLS, FIXED, strict=True)]
    return setting.configured(pools, [setting.workload(MODEL, SHARED, DEADLINES_S[MODEL])], "turnout", {}, 1)


def stream(count: int) -> Iterator[ev.Arrived]:
    """So many requests, drawn a piece at a time."""
    begin_s = 0.0
    for begin in range(0, count, PIECE):
        trace = setting.traffic.__wrapped__(MODEL, min(PIECE, count - begin), begin + 1).at_rate(RATE_PER_S)
        at_s = 0.0
        for event in arrivals(trace, DEADLINES_S, SHARED.parts):
            at_s = begin_s + event.at_s
            yield replace(event, rid=begin + event.rid, at_s=at_s, deadline_s=begin_s + event.deadline_s)
        begin_s = at_s


def ours(count: int) -> Summary:
    """Our engine."""
    return simulate.run(head(), stream(count), DRAWS, policies.load)


# ---- the same from SimPy ---------------------------------------------------------------------------------------------


class Program:
    """A SimPy program around the Router: `run` may be called once."""

    def __init__(self) -> None:
        """Replicas with empty queues."""
        self._env = simpy.Environment()
        self._router, self._account = Router(policies.load), Account()
        self._queues: dict[str, simpy.Store] = {}
        self._ticks = False
        self._wake_s = float("inf")

    def run(self, requests: Iterable[ev.Arrived]) -> Summary:
        """All requests to their answers."""
        configured = head()
        self._feed(configured)
        for pool in configured.fleet.pools:
            for name in (f"{pool.name}-{i}" for i in range(pool.replicas)):
                self._queues[name] = simpy.Store(self._env)
                self._env.process(self._replica(pool.name, self._queues[name]))
                self._feed(ev.ReplicaUp(at_s=0.0, replica=name, pool=pool.name))
        self._env.process(self._arrivals(requests))
        self._env.run()
        return self._account.summary()

    def _feed(self, event: ev.Event) -> None:
        actions = self._router.handle(event)
        self._account.feed(event, actions)
        for action in actions:
            if isinstance(action, ev.Dispatch):
                self._queues[action.replica].put(action)
            elif isinstance(action, ev.Wake):
                self._wake_s = action.at_s
                self._at(action.at_s, self._woken)

    def _at(self, at_s: float, then: Callable[[simpy.Event], None], priority: int = simpy.events.NORMAL) -> None:
        event = self._env.event()
        event._ok, event._value = True, at_s  # noqa: SLF001  # as simpy's own Timeout does
        event.callbacks.append(then)
        self._env.schedule(event, simpy.events.EventPriority(priority), max(at_s - self._env.now, 0.0))

    def _tick(self, at_s: float) -> None:
        """Decide when everything of this instant has happened."""
        if not self._ticks:
            self._ticks = True
            self._at(at_s, self._decide, LAST)

    def _decide(self, event: simpy.Event) -> None:
        self._ticks = False
        at_s = cast("float", event.value)
        if self._wake_s <= at_s:
            self._wake_s = float("inf")
        self._feed(ev.Decide(at_s=at_s))

    def _woken(self, event: simpy.Event) -> None:
        if event.value == self._wake_s:
            self._tick(event.value)

    def _arrivals(self, requests: Iterable[ev.Arrived]) -> Generator[simpy.Event, Any, None]:
        for request in requests:
            yield self._env.timeout(max(request.at_s - self._env.now, 0.0))
            self._feed(request)
            self._tick(request.at_s)

    def _replica(self, pool: str, queue: simpy.Store) -> Generator[simpy.Event, Any, None]:
        while True:
            batch: ev.Dispatch = yield queue.get()
            first, items = batch.parts[0], sum(p.items for p in batch.parts)
            service_s = DRAWS[pool, MODEL](items, simulate.key(1, first.rid, first.start), batch.start_s)
            end_s = batch.start_s + service_s
            yield self._env.timeout(max(end_s - self._env.now, 0.0))
            self._feed(ev.Finished(at_s=end_s, batch=batch.batch, service_s=service_s))
            self._tick(end_s)


# ---- measuring -------------------------------------------------------------------------------------------------------


def recorded(count: int) -> list[ev.Event]:
    """What the router is told in a run."""
    seen: list[ev.Event] = []
    simulate.run(head(), stream(count), DRAWS, policies.load, observe=lambda event, _actions: seen.append(event))
    return seen


def fed(events: list[ev.Event]) -> Summary:
    """Router and account alone."""
    router, account = Router(policies.load), Account()
    for event in events:
        account.feed(event, router.handle(event))
    return account.summary()


def timed(run: Callable[[], Summary]) -> tuple[float, Summary]:
    """Seconds and the summary."""
    gc.collect()
    start_s = process_time()
    summary = run()
    return process_time() - start_s, summary


def long_run(count: int) -> tuple[float, float, float]:
    """Seconds, peak resident MB and attainment of one run of our engine in this process."""
    seconds, summary = timed(lambda: ours(count))
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0, summary.attainment


def compare(count: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of our engine, of SimPy, and of Router and Account alone, in turn."""
    events = recorded(count)
    gc.freeze()  # they are no garbage, and are not to be looked through again and again
    seconds: dict[str, list[float]] = {"ours": [], "simpy": [], "router": []}
    for _ in range(repeats):
        found = {
            "ours": timed(lambda: ours(count)),
            "simpy": timed(lambda: Program().run(stream(count))),
            "router": timed(lambda: fed(events)),
        }
        summaries = {summary.met for _, summary in found.values()}
        assert len(summaries) == 1, f"the programs differ in what they simulate: {found}"
        for name, (took_s, _) in found.items():
            seconds[name].append(took_s)
    return seconds


def main() -> None:
    """Print a table, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter runs, under 60 s")
    quick = parser.parse_args().quick
    lengths = (10_000, 60_000) if quick else (100_000, 1_000_000)
    runs = []
    for count in lengths:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            runs.append(pool.submit(long_run, count).result())
    long_s, _, attainment = runs[-1]
    memory_mb = {str(count): mb for count, (_, mb, _) in zip(lengths, runs, strict=True)}
    seconds = compare(5_000 if quick else 100_000, 3 if quick else 5)
    paired = {name: [a / b for a, b in zip(row, seconds["ours"], strict=True)] for name, row in seconds.items()}
    share = [1.0 - ratio for ratio in paired["router"]]
    result: dict[str, Any] = {
        "requests_per_s": lengths[-1] / long_s,
        "driver_share": median(share),
        "ratio_vs_simpy": median(paired["simpy"]),
        "memory_mb": memory_mb,
        "attainment": attainment,
        "driver_share_runs": share,
        "ratio_vs_simpy_runs": paired["simpy"],
    }
    low, high = min(paired["simpy"]), max(paired["simpy"])
    print(f"ours / SimPy, requests per second      {result['ratio_vs_simpy']:8.2f}  ({low:.2f} to {high:.2f})")
    print(
        f"driver's share of a run's time         {result['driver_share']:8.2f}  ({min(share):.2f} to {max(share):.2f})"
    )
    print(f"requests per second, {lengths[-1]:,} requests {result['requests_per_s']:8.0f}")
    print(f"peak memory, MB                        {memory_mb}")
    print(f"in time                                {attainment:8.4f}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
