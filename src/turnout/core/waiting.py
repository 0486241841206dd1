"""The waiting set: items that no replica has yet, in order of deadline, and which of them can no longer make it.

A request can be here as several ranges, once it was split. Adding and removing take O(log n) comparisons.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush

from turnout.core.events import Part
from turnout.core.policy import Waiting

NEVER = float("inf")

SLACK = 1024
"""Stale entries that the heap of expiries may hold beside twice the live ones."""


class WaitingSet:
    """Waiting ranges ordered by (deadline, rid, start), with the latest moment at which each may still start."""

    __slots__ = ("_by_key", "_expiry", "_keys", "_latest_s", "_order", "_starts")

    def __init__(self) -> None:
        """Start empty."""
        self._keys: list[tuple[float, int, int]] = []
        self._order: list[Waiting] = []
        self._by_key: dict[tuple[int, int], Waiting] = {}
        self._latest_s: dict[tuple[int, int], float] = {}
        self._starts: dict[int, list[int]] = {}  # rid -> where its waiting ranges start
        self._expiry: list[tuple[float, int, int]] = []

    def __len__(self) -> int:
        """Number of ranges."""
        return len(self._order)

    def in_order(self) -> tuple[Waiting, ...]:
        """All ranges, earliest deadline first."""
        return tuple(self._order)

    def latest_start_s(self, waiting: Waiting) -> float:
        """The latest start that `waiting` was added with."""
        return self._latest_s[waiting.rid, waiting.start]

    def add(self, waiting: Waiting, latest_start_s: float) -> None:
        """Queue a range; `latest_start_s` is `NEVER` for one that is served however late it is."""
        rid, start = waiting.rid, waiting.start
        key = (waiting.deadline_s, rid, start)
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self._order.insert(at, waiting)
        self._by_key[rid, start] = waiting
        self._latest_s[rid, start] = latest_start_s
        self._starts.setdefault(rid, []).append(start)
        if latest_start_s < NEVER:
            heappush(self._expiry, (latest_start_s, rid, start))

    def find(self, part: Part) -> Waiting | None:
        """The range that `part` is the head of, or None."""
        waiting = self._by_key.get((part.rid, part.start))
        return waiting if waiting is not None and 1 <= part.items <= waiting.items else None

    def remove(self, rid: int, start: int) -> Waiting:
        """Take one whole range out."""
        waiting = self._by_key.pop((rid, start))
        del self._latest_s[rid, start]
        starts = self._starts[rid]
        starts.remove(start)
        if not starts:
            del self._starts[rid]
        at = bisect_left(self._keys, (waiting.deadline_s, rid, start))
        del self._keys[at]
        del self._order[at]
        if len(self._expiry) > SLACK + 2 * len(self._order):
            self._tidy()
        return waiting

    def _tidy(self) -> None:
        """Drop what is stale from the heap, which would else keep every request until its deadline has passed."""
        live = [entry for entry in self._expiry if self._latest_s.get((entry[1], entry[2])) == entry[0]]
        self._expiry = sorted(set(live))  # a sorted list is a heap

    def drop(self, rid: int) -> None:
        """Remove every range of a request."""
        for start in tuple(self._starts.get(rid, ())):
            self.remove(rid, start)

    def next_expiry_s(self) -> float:
        """When the next range will be too late to start, `NEVER` if none will."""
        heap = self._expiry
        while heap and self._latest_s.get((heap[0][1], heap[0][2])) != heap[0][0]:
            heappop(heap)  # dispatched, dropped, or queued anew since
        return heap[0][0] if heap else NEVER

    def pop_expired(self, now_s: float) -> list[int]:
        """Requests with a range that is too late to start at `now_s`; the caller drops them."""
        rids: dict[int, None] = {}
        while self.next_expiry_s() < now_s:
            rids[heappop(self._expiry)[1]] = None
        return list(rids)
