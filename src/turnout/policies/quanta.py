"""How large a batch should be: the most items that still leave room to wait for the replica.

A larger batch is more efficient, and keeps its replica from everything that comes meanwhile. With a batch that takes
about half of the deadline, a request can wait for one whole batch and still be in time: it waits for as long as a batch
takes on average, and must be in time whatever its own takes, so what counts is between the mean and the p99.

Where models share replicas, it is the tightest deadline among those with traffic that counts: a batch of one must not
cost another its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from turnout.core.policy import PoolView, View

SHARE = 0.55
"""Share of the deadline that one batch may take; more than half, as waiting for a batch is on average half of one."""

RECENT_S = 10.0
"""A model has traffic if a request of it arrived in the last so many seconds."""


class Quanta:
    """The batch sizes of one decision, each worked out when first asked for."""

    __slots__ = ("_deadlines_s", "_group", "_known", "_share", "_view")

    def __init__(self, view: View, share: float = SHARE, groups: Sequence[Collection[str]] = ()) -> None:
        """`share` of a model's deadline is what one batch may take; only models of a group share replicas."""
        self._view = view
        self._share = share
        self._group = {model: group for group in groups for model in group}
        since_s = view.now_s - RECENT_S
        self._deadlines_s = {
            model: view.workloads[model].slo.deadline_s
            for model, standing in view.standings.items()
            if len(view.workloads) > 1 and standing.recent_at_s and standing.recent_at_s[-1] >= since_s
        }
        self._known: dict[tuple[str, str], int] = {}

    def items(self, pool: PoolView, model: str) -> int:
        """The largest batch of `model` on `pool` within its share of the deadline; `max_items` if one item is late."""
        key = (pool.spec.name, model)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._largest(pool, model)
        return known

    def _largest(self, pool: PoolView, model: str) -> int:
        own_s = self._view.workloads[model].slo.deadline_s
        group = self._group.get(model, pool.spec.models)
        tightest_s = min(
            [own_s, *(self._deadlines_s[m] for m in pool.spec.models if m in self._deadlines_s and m in group)]
        )
        return (
            pool.most_items(model, self._share * tightest_s)
            or pool.most_items(model, self._share * own_s)
            or pool.spec.max_items
        )
