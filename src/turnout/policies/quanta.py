"""How large a batch should be: the most items that still leave room to wait for the replica.

A larger batch is more efficient, and keeps its replica from everything that comes meanwhile. With a batch that takes
about half of the deadline, a request can wait for one whole batch and still be in time.
"""

from __future__ import annotations

from bisect import bisect_left

from turnout.core.policy import PoolView, View

SHARE = 0.55
"""Share of the deadline that one batch may take; more than half, as waiting for a batch is on average half of one."""


class Quanta:
    """The batch sizes of one decision, each worked out when first asked for."""

    __slots__ = ("_known", "_share", "_view")

    def __init__(self, view: View, share: float = SHARE) -> None:
        """`share` of a model's deadline is what one batch may take."""
        self._view = view
        self._share = share
        self._known: dict[tuple[str, str], int] = {}

    def items(self, pool: PoolView, model: str) -> int:
        """The largest batch of `model` on `pool` within the share of the deadline; `max_items` if there is none."""
        key = (pool.spec.name, model)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._largest(pool, model)
        return known

    def _largest(self, pool: PoolView, model: str) -> int:
        largest = pool.spec.max_items
        limit_s = self._share * self._view.workloads[model].slo.deadline_s
        if pool.p99_s(model, largest) <= limit_s:
            return largest
        return bisect_left(range(1, largest), x=True, key=lambda n: pool.p99_s(model, n) > limit_s) or largest
