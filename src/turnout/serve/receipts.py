"""Decision receipts: why each request went where it went, what that was predicted to take, and what it took and cost.

A receipt is kept as references to the log's own records and only rendered when somebody asks. The last `keep`
requests have one; older ones are in the event log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from turnout.core import events as ev
from turnout.core.cost import Price, bill_usd
from turnout.core.events import Action, Event
from turnout.telemetry import Counters

MOST_DIGITS = 18
"""Of a request's number here; Python refuses to read numbers of thousands of digits."""


class Flight(Struct):
    """One batch that carried (a part of) the request, and how it ended."""

    dispatch: ev.Dispatch
    at_s: float
    items: int
    end: ev.Finished | ev.Failed | None = None


class Entry(Struct):
    """The records behind one receipt."""

    arrived: ev.Arrived
    flights: list[Flight] = field(default_factory=list)
    answer: ev.Reply | ev.Reject | None = None
    answered_s: float = 0.0


class Receipts:
    """The receipts of the last `keep` requests."""

    def __init__(self, keep: int, counters: Counters) -> None:
        """`counters` has the pools and their usage, of which a request's bill is a share."""
        self._keep = keep
        self._counters = counters
        self._entries: dict[int, Entry] = {}
        self._names: dict[str, int] = {}
        self._ids: dict[int, str] = {}
        self._flights: dict[int, Flight] = {}
        self._prices: dict[str, Price] = {}

    def name(self, rid: int, client_id: str) -> None:
        """The client calls request `rid` by an id of its own; the latest request of an id has it."""
        if client_id:
            self._names[client_id] = rid
            self._ids[rid] = client_id

    def add(self, records: Iterable[Event | Action]) -> None:
        """Keep what the records of a tick say, in the order of the log."""
        now_s = 0.0
        for record in records:
            now_s = getattr(record, "at_s", now_s)
            match record:
                case ev.Arrived():
                    self._entries[record.rid] = Entry(record)
                    self._trim()
                case ev.Dispatch():
                    self._dispatched(record, now_s)
                case ev.Finished() | ev.Failed():
                    flight = self._flights.pop(record.batch, None)
                    if flight is not None:
                        flight.end = record
                case ev.Reply() | ev.Reject():
                    entry = self._entries.get(record.rid)
                    if entry is not None:
                        entry.answer, entry.answered_s = record, now_s
                case ev.Configured():
                    self._prices = {pool.name: pool.price for pool in record.fleet.pools}

    def find(self, name: str, now_s: float) -> dict[str, Any] | None:
        """The receipt of the request that the client calls `name`, or that is `turnout-<rid>` here."""
        rid = self._names.get(name)
        prefix, _, number = name.rpartition("-")
        if rid is None and prefix == "turnout" and number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS:
            rid = int(number)
        entry = self._entries.get(rid) if rid is not None else None
        return self._render(entry, now_s) if entry is not None else None

    def _dispatched(self, record: ev.Dispatch, now_s: float) -> None:
        """A batch is off; it is one flight for all its requests."""
        flight = Flight(record, now_s, sum(part.items for part in record.parts))
        self._flights[record.batch] = flight
        for rid in {part.rid for part in record.parts}:
            entry = self._entries.get(rid)
            if entry is not None:
                entry.flights.append(flight)

    def _trim(self) -> None:
        """Forget the oldest beyond `keep`."""
        while len(self._entries) > self._keep:
            rid = next(iter(self._entries))
            del self._entries[rid]
            name = self._ids.pop(rid, None)
            if name is not None and self._names.get(name) == rid:
                del self._names[name]

    def _render(self, entry: Entry, now_s: float) -> dict[str, Any]:
        """A receipt as JSON-like values; times are seconds since the log's epoch."""
        arrived, answer = entry.arrived, entry.answer
        attempts = [self._attempt(flight, arrived.rid, now_s) for flight in entry.flights]
        outcome = "open"
        if isinstance(answer, ev.Reply):
            outcome = "met" if entry.answered_s <= arrived.deadline_s else "late"
        elif answer is not None:
            outcome = answer.reason
        return {
            "request": f"turnout-{arrived.rid}",
            "client_id": self._ids.get(arrived.rid, ""),
            "model": arrived.model,
            "items": arrived.items,
            "arrived_s": arrived.at_s,
            "deadline_s": arrived.deadline_s,
            "priority": arrived.priority,
            "outcome": outcome,
            "detail": answer.detail if isinstance(answer, ev.Reject) else "",
            "answered_s": entry.answered_s if answer is not None else None,
            "took_s": entry.answered_s - arrived.at_s if answer is not None else None,
            "attempts": attempts,
            "retries": sum(1 for attempt in attempts if attempt["failed"]),
            "billed_usd": sum(attempt["billed_usd"] for attempt in attempts),
            "marginal_usd": sum(attempt["marginal_usd"] for attempt in attempts),
        }

    def _attempt(self, flight: Flight, rid: int, now_s: float) -> dict[str, Any]:
        """One batch, from this request's side: the decision, prediction beside fact, and its share of the cost."""
        dispatch, end = flight.dispatch, flight.end
        pool = self._counters.pool_of(dispatch.replica)
        mine = sum(part.items for part in dispatch.parts if part.rid == rid)
        service_s = end.service_s + end.transfer_s if isinstance(end, ev.Finished) else None
        busy_s = (service_s or 0.0) * mine / flight.items
        marginal_usd, billed_usd = self._share_usd(pool, busy_s, now_s)
        return {
            "batch": dispatch.batch,
            "pool": pool,
            "replica": dispatch.replica,
            "hedge": dispatch.hedge,
            "items": mine,
            "batch_items": flight.items,
            "dispatched_s": flight.at_s,
            "waited_s": flight.at_s - self._entries[rid].arrived.at_s,
            "binding": dispatch.why.binding,
            "candidates": [msgspec.structs.asdict(option) for option in dispatch.why.options],
            "predicted": {
                "start_s": dispatch.start_s,
                "service_s": dispatch.predicted_s,
                "p99_s": dispatch.p99_s,
            },
            "actual": {
                "service_s": service_s,
                "ended_s": end.at_s if end is not None else None,
                "within_p99": service_s <= dispatch.p99_s if service_s is not None else None,
            },
            "failed": end.kind if isinstance(end, ev.Failed) else "",
            "billed_usd": billed_usd,
            "marginal_usd": marginal_usd,
        }

    def _share_usd(self, pool: str, busy_s: float, now_s: float) -> tuple[float, float]:
        """What `busy_s` seconds cost: added to the bill (marginal), and as a share of it with idle time spread."""
        price = self._prices.get(pool)
        if price is None or not busy_s:
            return 0.0, 0.0
        usage = self._counters.usage(pool, now_s)
        billed_usd = bill_usd(price, usage) * busy_s / usage.busy_s if usage.busy_s else 0.0
        return price.marginal_usd(busy_s), billed_usd
