"""Small random instances for the tests of bounds, the same as arrays and as a simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from turnout import policies, simulate
from turnout.bounds.schedule import Batch, Instance
from turnout.core import events as ev
from turnout.core.cost import Price
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import line
from turnout.core.workload import Slo, Workload

POOLS = ("cpu", "gpu")
PARAMS = {"pinned": {"pools": ["gpu"]}}


@dataclass(frozen=True)
class Case:
    """An instance whose service times are the line `fixed_s + per_item_s * items` on each pool."""

    at_s: tuple[float, ...]
    items: tuple[int, ...]
    deadline_s: tuple[float, ...]
    replicas: tuple[int, int]
    fixed_s: tuple[float, float]
    per_item_s: tuple[float, float]
    merge: bool
    max_parts: int
    max_items: tuple[int, int] = (4, 8)

    def instance(self) -> Instance:
        """As arrays, with the seconds that the simulator's draws give."""
        models = [line(a, b) for a, b in zip(self.fixed_s, self.per_item_s, strict=True)]
        draws = [simulate.from_model(model) for model in models]
        return Instance(
            at_s=np.array(self.at_s),
            items=np.array(self.items, dtype=np.int64),
            deadline_s=np.array(self.deadline_s),
            replicas=self.replicas,
            seconds=tuple(
                np.array([[draw(m, 0, 0.0) if m else 0.0 for m in range(most + 1)]])
                for draw, most in zip(draws, self.max_items, strict=True)
            ),
            merge=self.merge,
            max_parts=self.max_parts,
        )

    def run(self, name: str) -> tuple[int, list[Batch]]:
        """The misses and the batches of a shipped policy on it, through the router."""
        latency = {pool: line(a, b) for pool, a, b in zip(POOLS, self.fixed_s, self.per_item_s, strict=True)}
        pools = tuple(
            PoolSpec(
                name=pool,
                device="cuda" if pool == "gpu" else "cpu",
                models=("m",),
                replicas=count,
                max_items=most,
                price=Price(usd_per_s=0.001 if pool == "gpu" else 0.0003),
            )
            for pool, count, most in zip(POOLS, self.replicas, self.max_items, strict=True)
        )
        configured = ev.Configured(
            at_s=0.0,
            fleet=Fleet(pools=pools),
            models=(Workload(name="m", slo=Slo(deadline_s=1.0), latency=latency, mergeable=self.merge),),
            policy=name,
            params=PARAMS.get(name, {}),
        )
        arrivals = [
            ev.Arrived(at_s=t, rid=rid, model="m", items=n, deadline_s=t + d, max_parts=self.max_parts)
            for rid, (t, n, d) in enumerate(zip(self.at_s, self.items, self.deadline_s, strict=True))
        ]
        draws = {(pool, "m"): simulate.from_model(model) for pool, model in latency.items()}
        first = (0, self.replicas[0])  # the number of each pool's first machine
        batches: list[Batch] = []

        def observe(event: ev.Event, actions: list[ev.Action]) -> None:
            for action in actions:
                if isinstance(action, ev.Dispatch):
                    pool, number = action.replica.split("-")
                    machine = first[POOLS.index(pool)] + int(number)
                    batches.append(Batch(machine=machine, start_s=action.start_s, parts=action.parts))

        summary = simulate.run(configured, arrivals, draws, policies.load, observe=observe)
        return summary.requests - summary.met, batches


@st.composite
def cases(draw, most=6, splits=(1,)):
    """Up to `most` requests on one or two machines of two pools, tight enough that some must be missed."""
    max_parts = draw(st.sampled_from(splits))
    n = draw(st.integers(1, most if max_parts == 1 else 4))
    gaps = draw(st.lists(st.sampled_from((0.0, 0.05, 0.13, 0.4)), min_size=n, max_size=n))
    same = draw(st.none() | st.sampled_from((0.4, 0.8)))
    deadlines = st.just(same) if same else st.sampled_from((0.25, 0.5, 0.9, 1.6))
    return Case(
        at_s=tuple(np.cumsum(gaps).tolist()),
        items=tuple(draw(st.lists(st.integers(1, 5 if max_parts == 1 else 2), min_size=n, max_size=n))),
        deadline_s=tuple(draw(st.lists(deadlines, min_size=n, max_size=n))),
        replicas=draw(st.sampled_from(((1, 1), (2, 1), (1, 0), (0, 1), (2, 0)))),
        fixed_s=draw(st.sampled_from(((0.02, 0.1), (0.1, 0.1), (0.05, 0.2)))),
        per_item_s=draw(st.sampled_from(((0.1, 0.02), (0.05, 0.05), (0.07, 0.03)))),
        merge=draw(st.booleans()),
        max_parts=max_parts,
    )
