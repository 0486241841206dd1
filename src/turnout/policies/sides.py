"""The two sides of a fleet, CPU and accelerators, for rules that choose between them by what a request is.

A rule names a side and nothing else. Where no pool of that side can take the request, the other side does: so a rule
neither loses what is too large for its side, or failed there, nor has a say where there is only one side.
"""

from __future__ import annotations

from collections.abc import Callable

from turnout.core.policy import PoolView, View, Waiting
from turnout.policies.batching import Allow


def sided(view: View, accelerated: Callable[[Waiting], bool]) -> Allow:
    """Allow the side that the rule names for a request, accelerators or CPU; both, if that side cannot take it."""
    sides: dict[tuple[str, bool], list[PoolView]] = {(m, side): [] for m in view.workloads for side in (False, True)}
    for pool in view.pools.values():
        for model in view.workloads:
            if pool.serves(model):
                sides[model, _accelerator(pool)].append(pool)

    def allow(waiting: Waiting, pool: PoolView) -> bool:
        wanted = accelerated(waiting)
        return wanted == _accelerator(pool) or not any(_takes(waiting, p) for p in sides[waiting.model, wanted])

    return allow


def _accelerator(pool: PoolView) -> bool:
    return pool.spec.device != "cpu"


def _takes(waiting: Waiting, pool: PoolView) -> bool:
    """Whether the request, in as many pieces as it may still be cut into, can run on this pool."""
    return pool.spec.name not in waiting.barred and waiting.items <= pool.spec.max_items * (waiting.ranges_left + 1)
