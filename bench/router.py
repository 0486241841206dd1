"""Microseconds per request through the Router: arrive, decide, finish, with the default policy.

A fixed number of requests waits, due in 0.15 s, and replicas are busy. One cycle: a batch finishes, as many requests
arrive as the router dispatched last time, one `Decide`. The cycle's time over its requests is one sample. Two kinds of
traffic: `merged` (requests share batches, as the product runs) and `single` (every request a batch of its own, the
dearest). No driver, codec or log is in the figures. JSON: `handle_us_p50`, `handle_us_p99` for 2 pools x 8 replicas
with 64 waiting, merged; `by_size` has all cells.

    .venv/bin/python bench/router.py [--quick]
"""

from __future__ import annotations

import argparse
import gc
import json
from collections import deque
from time import perf_counter_ns

from turnout import policies
from turnout.core import events as ev
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import line
from turnout.core.router import Router
from turnout.core.workload import Slo, Workload

SPREAD = tuple(0.9 + i / 500 for i in range(100))
CELLS = [(1, 1), (1, 8), (2, 8), (4, 8), (2, 32)]
WAITING = [1, 16, 64, 256, 1000]
DEADLINE_S = 0.15
HEADLINE = (2, 8, 64, "merged")


class Bench:
    """A router in a steady state."""

    def __init__(self, pools: int, replicas: int, waiting: int, kind: str) -> None:
        """Fill every replica, then the queue."""
        names = [f"pool{i}" for i in range(pools)]
        specs = tuple(
            PoolSpec(
                name=name,
                device="cuda" if i % 2 else "cpu",
                models=("m",),
                replicas=replicas,
                max_items=32,
                price=Price(usd_per_s=(1 + 4 * (i % 2)) * 3e-5),
            )
            for i, name in enumerate(names)
        )
        latency = {
            n: line(0.010, 0.00005, SPREAD) if i % 2 else line(0.002, 0.001, SPREAD) for i, n in enumerate(names)
        }
        model = Workload(
            name="m", slo=Slo(deadline_s=DEADLINE_S), latency=latency, mergeable=kind == "merged", late="serve"
        )
        self.router = Router(policies.load)
        self.router.handle(ev.Configured(at_s=0.0, fleet=Fleet(pools=specs), models=(model,), policy="turnout"))
        self.now_s, self.rid = 0.0, 0
        self.flying: deque[ev.Dispatch] = deque()
        for name in names:
            for i in range(replicas):
                self.router.handle(ev.ReplicaUp(at_s=0.0, replica=f"{name}-{i}", pool=name))
        self.arrive(pools * replicas)
        self.decide()
        self.arrive(waiting - self.router.waiting)

    def arrive(self, count: int) -> None:
        """`count` requests of 1 to 8 items."""
        for _ in range(count):
            self.rid += 1
            items = 1 + self.rid % 8
            self.router.handle(
                ev.Arrived(at_s=self.now_s, rid=self.rid, model="m", items=items, deadline_s=self.now_s + DEADLINE_S)
            )

    def decide(self) -> int:
        """The tick; returns how many requests were dispatched."""
        sent = 0
        for action in self.router.handle(ev.Decide(at_s=self.now_s)):
            if isinstance(action, ev.Dispatch):
                self.flying.append(action)
                sent += len(action.parts)
        return sent

    def before(self, arrivals: int) -> None:
        """What comes before a decision: one batch finishes, `arrivals` come."""
        self.now_s += 0.001
        batch = self.flying.popleft()
        self.router.handle(ev.Finished(at_s=self.now_s, batch=batch.batch, service_s=batch.predicted_s))
        self.arrive(arrivals)


def measure(pools: int, replicas: int, waiting: int, kind: str, cycles: int) -> dict[str, float]:
    """p50 and p99 of microseconds per request over `cycles`."""
    bench = Bench(pools, replicas, waiting, kind)
    samples_us: list[float] = []
    sent = 1
    gc.collect()
    gc.freeze()
    for number in range(cycles + cycles // 10):
        start_ns = perf_counter_ns()
        arrivals = sent
        bench.before(arrivals)
        sent = bench.decide()
        if number >= cycles // 10 and arrivals:
            samples_us.append((perf_counter_ns() - start_ns) / 1e3 / arrivals)
    gc.unfreeze()
    samples_us.sort()
    return {"p50": samples_us[len(samples_us) // 2], "p99": samples_us[int(len(samples_us) * 0.99)]}


def main() -> None:
    """Print a table, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cycles, under 60 s")
    cycles = 300 if parser.parse_args().quick else 3000
    by_size: dict[str, dict[str, float]] = {}
    print(f"{'pools x replicas':>18} {'waiting':>8} {'kind':>7} {'p50 us':>9} {'p99 us':>9}")
    for pools, replicas in CELLS:
        for waiting in WAITING:
            for kind in ("merged", "single"):
                cell = measure(pools, replicas, waiting, kind, cycles)
                by_size[f"{pools}x{replicas}x{waiting} {kind}"] = cell
                print(f"{f'{pools} x {replicas}':>18} {waiting:>8} {kind:>7} {cell['p50']:>9.1f} {cell['p99']:>9.1f}")
    pools, replicas, waiting, kind = HEADLINE
    headline = by_size[f"{pools}x{replicas}x{waiting} {kind}"]
    print(json.dumps({"handle_us_p50": headline["p50"], "handle_us_p99": headline["p99"], "by_size": by_size}))


if __name__ == "__main__":
    main()
