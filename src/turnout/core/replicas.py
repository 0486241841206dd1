"""Replicas as the router knows them: which are up, what is on them, and when each will be free by prediction.

The time at which a replica is free is dead-reckoned at every dispatch and corrected at every completion.
"""

from __future__ import annotations

from msgspec import Struct, field

from turnout.core.events import Part, Why
from turnout.core.policy import InFlight, ReplicaView


class Batch(Struct, kw_only=True):
    """A dispatched batch: what the policy sees of it, its predicted seconds, and whether it was called off."""

    flight: InFlight
    predicted_s: float
    cancelled: bool = False


class Bound(Struct, kw_only=True):
    """A batch that waits for a slot of one replica."""

    parts: tuple[Part, ...]
    why: Why
    predicted_s: float


class Replica(Struct, kw_only=True):
    """One replica: `flying` are batches on it in order of dispatch, `bound` what is queued behind them.

    `free_s` is when it is through with what is flying, by prediction.
    """

    name: str
    pool: str
    up: bool
    ready_s: float = 0.0
    free_s: float = 0.0
    flying: list[int] = field(default_factory=list)
    bound: list[Bound] = field(default_factory=list)

    @property
    def through_s(self) -> float:
        """When it is through with what is bound to it as well."""
        return self.free_s + sum(b.predicted_s for b in self.bound) if self.bound else self.free_s


class Replicas:
    """All replicas that are up or starting, in the fleet's order of pools; within one, in the order they came in."""

    __slots__ = ("_count", "_slots", "_stale", "_views", "by_name", "reported_s")

    def __init__(self) -> None:
        """Start with none."""
        self.by_name: dict[str, Replica] = {}
        self.reported_s: dict[str, float] = {}  # pool -> until when the load of others lasts
        self._slots: dict[str, int] = {}
        self._count: dict[str, int] = {}
        self._views: dict[str, ReplicaView] | None = None  # of those that are up, in the order of `by_name`
        self._stale: set[str] = set()  # those of them that are to be made anew

    def configure(self, slots: dict[str, int]) -> None:
        """`slots` is the number of batches in flight per replica, by pool, in the fleet's order."""
        self._slots = slots
        self._sort()

    def _sort(self) -> None:
        """Order by pool; those of a pool that is gone, which are about to be lost, come last."""
        rank = {name: i for i, name in enumerate(self._slots)}
        self.by_name = dict(sorted(self.by_name.items(), key=lambda item: rank.get(item[1].pool, len(rank))))
        self.all_changed()

    def restore(self, replicas: list[Replica], reported_s: dict[str, float]) -> None:
        """Go on from a snapshot."""
        for replica in replicas:
            self.add(replica)
        self.reported_s = reported_s

    def add(self, replica: Replica) -> None:
        """A replica is up or starting; one of the same name that was starting is replaced."""
        if replica.name in self.by_name:
            self.remove(replica.name)
        self._count[replica.pool] = self.count(replica.pool) + 1
        self.by_name[replica.name] = replica
        self._sort()

    def remove(self, name: str) -> None:
        """A replica is gone."""
        self._count[self.by_name.pop(name).pool] -= 1
        self._views = None

    def changed(self, name: str) -> None:
        """To be called after any change to a replica."""
        self._stale.add(name)

    def all_changed(self) -> None:
        """To be called after changes to many."""
        self._views = None

    def report(self, pool: str, until_s: float) -> None:
        """Others keep the replicas of `pool` busy until `until_s`."""
        self.reported_s[pool] = until_s
        self.all_changed()

    def count(self, pool: str) -> int:
        """The pool's replicas, up or starting."""
        return self._count.get(pool, 0)

    def slot_free(self, replica: Replica) -> bool:
        """Whether one more batch can be on `replica` itself."""
        return replica.up and len(replica.flying) < self._slots[replica.pool]

    def slots_left(self, replica: Replica) -> int:
        """Batches that `replica` takes now; what is bound to it comes first."""
        return max(self._slots[replica.pool] - len(replica.flying) - len(replica.bound), 0)

    def views(self) -> tuple[ReplicaView, ...]:
        """What a policy sees."""
        views = self._views
        if views is None:
            views = self._views = {name: self._view(r) for name, r in self.by_name.items() if r.up}
        else:
            for name in self._stale:
                views[name] = self._view(self.by_name[name])
        self._stale.clear()
        return tuple(views.values())

    def _view(self, replica: Replica) -> ReplicaView:
        return ReplicaView(
            replica=replica.name,
            pool=replica.pool,
            free_s=max(replica.through_s, self.reported_s.get(replica.pool, 0.0)),
            slots_left=self.slots_left(replica),
        )
