"""Who is owed an answer, and which parts of it are where. Every request that is opened is closed exactly once.

The ledger knows no policy and no pool: it counts items. A part is identified by (rid, start); parts of one request
never overlap, and a hedge is a second copy of the same part.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from turnout.core.events import Arrived, Part, Piece
from turnout.core.policy import Waiting


class Trouble(Struct, kw_only=True):
    """What a part has been through: failed attempts, the pools on which they failed, and whether it must run alone."""

    attempts: int = 0
    barred: tuple[str, ...] = ()
    alone: bool = False


class Request(Struct, kw_only=True):
    """One open request.

    `left` items have no result yet; `ranges` is the number of parts it is in by now; `flying` maps the start of a
    part to the batches that carry it.
    """

    arrived: Arrived
    left: int
    ranges: int = 1
    pieces: list[Piece] = field(default_factory=list)
    flying: dict[int, list[int]] = field(default_factory=dict)
    troubles: dict[int, Trouble] = field(default_factory=dict)

    def waiting(self, part: Part) -> Waiting:
        """`part` as something to decide about."""
        arrived = self.arrived
        trouble = self.troubles.get(part.start) or Trouble()
        return Waiting(
            rid=part.rid,
            start=part.start,
            items=part.items,
            model=arrived.model,
            arrived_s=arrived.at_s,
            deadline_s=arrived.deadline_s,
            nbytes=(arrived.nbytes_in + arrived.nbytes_out) * part.items // arrived.items,
            priority=arrived.priority,
            value_usd=arrived.value_usd,
            ranges_left=arrived.max_parts - self.ranges,
            attempts=trouble.attempts,
            barred=trouble.barred,
            alone=trouble.alone,
        )

    def cut(self, start: int, at: int) -> None:
        """The part at `start` becomes two, the second from `at` on; both have the history of the whole."""
        self.ranges += 1
        if start in self.troubles:
            self.troubles[at] = replace(self.troubles[start])


class Ledger:
    """All open requests."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        """Start with nothing owed."""
        self.requests: dict[int, Request] = {}

    def open(self, arrived: Arrived) -> Request:
        """Owe `arrived` an answer."""
        request = Request(arrived=arrived, left=arrived.items)
        self.requests[arrived.rid] = request
        return request

    def close(self, rid: int) -> Request:
        """The answer of `rid` is out."""
        return self.requests.pop(rid)

    def wanted(self, part: Part, batch: int) -> bool:
        """Whether somebody still waits for this part from `batch`."""
        return self._carried(part, batch) is not None

    def _carried(self, part: Part, batch: int) -> Request | None:
        """The request that waits for `part` from `batch`; not a later one of the same id, nor other items of it."""
        request = self.requests.get(part.rid)
        return request if request is not None and batch in request.flying.get(part.start, ()) else None

    def alone(self, part: Part) -> bool:
        """Whether this part must not share a batch."""
        trouble = self.requests[part.rid].troubles.get(part.start)
        return trouble is not None and trouble.alone

    def fly(self, part: Part, batch: int) -> None:
        """`part` travels in `batch`."""
        self.requests[part.rid].flying.setdefault(part.start, []).append(batch)

    def land(self, part: Part, batch: int, offset: int) -> tuple[Request, list[int]] | None:
        """`part` came back from `batch`; returns its request and the batches with now useless copies.

        None if nobody waits for it any more.
        """
        request = self._carried(part, batch)
        if request is None:
            return None
        copies = request.flying.pop(part.start)
        copies.remove(batch)
        request.pieces.append(Piece(part.start, part.items, batch, offset))
        request.left -= part.items
        return request, copies

    def crash(self, part: Part, batch: int) -> Request | None:
        """`part` did not come back from `batch`; returns its request if no other copy is under way."""
        request = self._carried(part, batch)
        if request is None:
            return None
        copies = request.flying[part.start]
        copies.remove(batch)
        if copies:
            return None
        del request.flying[part.start]
        return request
