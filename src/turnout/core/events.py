"""The vocabulary between the router and its drivers: events in, actions out. The same types are the log's codec.

Times are seconds since the log's epoch and never go back. A driver delivers the events of one tick and then one
`Decide`; only `Decide` runs the policy. Every request that `Arrived` gets exactly one `Reply` or `Reject`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from turnout.core.fleet import Fleet, Limits
from turnout.core.workload import Workload


class Record(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Root of all events and actions."""


class Part(Struct, frozen=True, gc=False, array_like=True):
    """Items `start` to `start + items` of request `rid`; the unit that batches are made of."""

    rid: int
    start: int
    items: int


class Piece(Struct, frozen=True, gc=False, array_like=True):
    """Where a part of an answer lies: items `start`… of the request are rows `offset`… of the output of `batch`."""

    start: int
    items: int
    batch: int
    offset: int


class Option(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One candidate of a decision: what running `items` on `replica` was predicted to take and to cost.

    `start_s` is the predicted start on the log's clock, `mean_s` and `p99_s` are seconds of service and transfer.
    `feasible` is that every deadline in the batch is met at the 99 % quantile, `busy` that the replica has no free
    slot, so that the work would wait for it.
    """

    pool: str
    replica: str
    items: int
    start_s: float
    mean_s: float
    p99_s: float
    marginal_usd: float = 0.0
    list_usd: float = 0.0
    feasible: bool = True
    busy: bool = False


class Why(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Why a batch went where it went: the candidates, the chosen one first, and the constraint that decided."""

    binding: str = ""
    options: tuple[Option, ...] = ()


# ---- events ----------------------------------------------------------------------------------------------------------


class Configured(Record, frozen=True, tag="configured"):
    """First record of every log segment, and a hot reload when it comes later.

    `snapshot` is None, or all the state with which a fresh router goes on exactly where another stopped. `seed` feeds
    the policy's generator. `epoch` is the wall-clock time (ISO 8601) of second 0; `origin` says what drove the router
    ("live", "simulated") and how the figures in it came to be.
    """

    at_s: float
    fleet: Fleet
    models: tuple[Workload, ...]
    policy: str
    params: dict[str, Any] = {}
    seed: int = 0
    limits: Limits = Limits()
    snapshot: dict[str, Any] | None = None
    epoch: str = ""
    origin: str = ""


class Arrived(Record, frozen=True, tag="arrived"):
    """A request for `items` of `model`, due at `deadline_s` on the log's clock.

    `priority` 0 is the highest. `max_parts` > 1 allows the items to be split over that many batches.
    """

    at_s: float
    rid: int
    model: str
    items: int
    deadline_s: float
    nbytes_in: int = 0
    nbytes_out: int = 0
    priority: int = 0
    value_usd: float = 0.0
    max_parts: int = 1


class Cancelled(Record, frozen=True, tag="cancelled"):
    """The client of request `rid` is gone."""

    at_s: float
    rid: int


class Started(Record, frozen=True, tag="started"):
    """The replica has begun on `batch`."""

    at_s: float
    batch: int


class Finished(Record, frozen=True, tag="finished"):
    """`batch` is done after `service_s` on the replica and `transfer_s` on the network."""

    at_s: float
    batch: int
    service_s: float
    transfer_s: float = 0.0


class Failed(Record, frozen=True, tag="failed"):
    """`batch` brought no result. `kind` is a word for people; if `retryable`, another replica may do better."""

    at_s: float
    batch: int
    kind: str
    retryable: bool = True


class ReplicaStarting(Record, frozen=True, tag="replica_starting"):
    """A replica is on its way and should be up at `ready_s`."""

    at_s: float
    replica: str
    pool: str
    ready_s: float


class ReplicaUp(Record, frozen=True, tag="replica_up"):
    """A replica takes batches from now on."""

    at_s: float
    replica: str
    pool: str


class ReplicaDown(Record, frozen=True, tag="replica_down"):
    """A replica is gone, and so is every batch on it."""

    at_s: float
    replica: str
    why: str = ""


class Reported(Record, frozen=True, tag="reported"):
    """Load that others put on a pool: items in its backlog and replicas busy, as seen `age_s` ago."""

    at_s: float
    pool: str
    age_s: float
    backlog_items: int
    busy_replicas: int = 0


class Closing(Record, frozen=True, tag="closing"):
    """Take no more requests; what is unanswered after `grace_s` is rejected."""

    at_s: float
    grace_s: float = 0.0


class Decide(Record, frozen=True, tag="decide"):
    """The tick boundary: the only event that runs the policy."""

    at_s: float


# ---- actions ---------------------------------------------------------------------------------------------------------


class Dispatch(Record, frozen=True, tag="dispatch"):
    """Run `parts`, in this order, as one batch of `model` on `replica`.

    `start_s` is when it should begin on the log's clock; `predicted_s` and `p99_s` are seconds of service.
    """

    batch: int
    replica: str
    model: str
    parts: tuple[Part, ...]
    start_s: float
    predicted_s: float
    p99_s: float
    hedge: bool = False
    why: Why = Why()


class Cancel(Record, frozen=True, tag="cancel"):
    """Nobody waits for `batch` any more. The driver stops it if it can, and reports `Finished` or `Failed` as ever."""

    batch: int


class Reply(Record, frozen=True, tag="reply"):
    """Answer `rid` from the outputs of these batches; the pieces cover its items once, in order."""

    rid: int
    pieces: tuple[Piece, ...]


class Reject(Record, frozen=True, tag="reject"):
    """Answer `rid` with an error. `retry_after_s` is when trying again makes sense, 0 if it never does."""

    rid: int
    reason: str
    detail: str = ""
    retry_after_s: float = 0.0


class Wake(Record, frozen=True, tag="wake"):
    """Deliver a `Decide` at `at_s`, if nothing else does before. Each one replaces the last."""

    at_s: float


class Refused(Record, frozen=True, tag="refused"):
    """A choice of the policy that the router did not carry out, and why; the work waits on."""

    why: str


Event = (
    Configured
    | Arrived
    | Cancelled
    | Started
    | Finished
    | Failed
    | ReplicaStarting
    | ReplicaUp
    | ReplicaDown
    | Reported
    | Closing
    | Decide
)
Action = Dispatch | Cancel | Reply | Reject | Wake | Refused
