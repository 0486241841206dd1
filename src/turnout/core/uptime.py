"""Which replicas are up, of which pool, and for how long: followed from events alone.

Everything that counts a run (`account`, the live counters, receipts, a recording) asks here, so that all of them agree
on what a lost, restarted or removed replica means.
"""

from __future__ import annotations

from turnout.core import events as ev
from turnout.core.events import Action, Event


class Uptime:
    """The lives of replicas. A pool that was once up keeps its lives when it is removed."""

    __slots__ = ("_lives_s", "_pool_of", "_since_s")

    def __init__(self) -> None:
        """Start with none."""
        self._pool_of: dict[str, str] = {}
        self._since_s: dict[str, float] = {}
        self._lives_s: dict[str, list[float]] = {}

    def follow(self, record: Event | Action) -> list[str]:
        """Take a record of the log (most are none of its business); returns the replicas that are lost by it."""
        if isinstance(record, ev.ReplicaUp):
            self._begin(record.replica, record.pool, record.at_s)
        elif isinstance(record, ev.ReplicaDown | ev.ReplicaStarting):  # what starts cannot be up
            self._end(record.replica, record.at_s)
            return [record.replica]
        elif isinstance(record, ev.Configured):
            return self._configure(record)
        return []

    def pool_of(self, replica: str) -> str:
        """The pool of a replica that is or was up, "" if it never was."""
        return self._pool_of.get(replica, "")

    def up(self) -> dict[str, set[str]]:
        """The replicas that are up, by every pool that ever had one."""
        found: dict[str, set[str]] = {pool: set() for pool in self._pool_of.values()}
        for replica in self._since_s:
            found[self._pool_of[replica]].add(replica)
        return found

    def up_s(self, pool: str, now_s: float) -> tuple[float, ...]:
        """Seconds of each life of the pool's replicas; those that are up count until now."""
        running = [now_s - since_s for replica, since_s in self._since_s.items() if self._pool_of[replica] == pool]
        return (*self._lives_s.get(pool, ()), *running)

    def _configure(self, event: ev.Configured) -> list[str]:
        """A snapshot has replicas that came up before it; those of a pool that is no longer there end."""
        for replica in (event.snapshot or {}).get("replicas", ()):
            if replica["up"]:
                self._begin(replica["name"], replica["pool"], event.at_s)
        present = {pool.name for pool in event.fleet.pools}
        gone = [name for name in self._since_s if self._pool_of[name] not in present]
        for name in gone:
            self._end(name, event.at_s)
        return gone

    def _begin(self, replica: str, pool: str, at_s: float) -> None:
        if replica not in self._since_s:
            self._pool_of[replica] = pool
            self._since_s[replica] = at_s

    def _end(self, replica: str, at_s: float) -> None:
        since_s = self._since_s.pop(replica, None)
        if since_s is not None:
            self._lives_s.setdefault(self._pool_of[replica], []).append(at_s - since_s)
