"""What the router never does, whatever its policy asks: each function says what speaks against something, or "".

The words go into the log as `Refused`, and to the client as the detail of a `Reject`.
"""

from __future__ import annotations

from turnout.core import events as ev
from turnout.core.events import Part
from turnout.core.policy import Run
from turnout.core.replicas import Replica
from turnout.core.state import State


def refusal(state: State, event: ev.Arrived) -> ev.Reject | None:
    """Why a request that arrives is not even queued, or None."""
    rid, model = event.rid, event.model
    if state.closing_s is not None:
        return ev.Reject(rid=rid, reason="closing", detail="shutting down")
    if model not in state.workloads:
        return ev.Reject(rid=rid, reason="unknown model", detail=f"no model is called {model!r}")
    largest = state.largest(model)
    if event.items < 1 or event.items > largest * max(event.max_parts, 1):
        detail = f"{event.items} items; a batch takes at least 1 and at most {largest}"
        if event.max_parts > 1:
            detail += f", and the request may be split over {event.max_parts}"
        return ev.Reject(rid=rid, reason="too large", detail=detail)
    if len(state.waiting) >= state.limits.max_waiting:
        detail = f"{len(state.waiting)} requests wait already"
        after_s = state.retry_after_s(event, event.at_s)
        return ev.Reject(rid=rid, reason="queue full", detail=detail, retry_after_s=after_s)
    if not state.present(model):
        return ev.Reject(rid=rid, reason="no replica", detail=f"no replica for {model} is up or starting")
    return None


def against_run(state: State, choice: Run) -> str:
    """What speaks against running a batch now."""
    said = against_batch(state, choice.parts, choice.replica, hedge=choice.hedge)
    if said:
        return said
    if choice.hedge and state.hedges_left < 1.0:
        return "the budget for hedges is spent"
    if not state.replicas.slots_left(state.replicas.by_name[choice.replica]):
        return f"replica {choice.replica} has no free slot"
    return ""


def against_batch(state: State, parts: tuple[Part, ...], replica_name: str, *, hedge: bool = False) -> str:
    """What speaks against these parts as one batch on that replica, now or later."""
    replica = state.replicas.by_name.get(replica_name)
    if replica is None or not replica.up:
        return f"replica {replica_name} is not up"
    if not parts or len({(p.rid, p.start) for p in parts}) < len(parts):
        return "a batch has at least one part, and none twice"
    for part in parts:
        said = _against_hedge(state, part, replica) if hedge else _against_part(state, part, replica.pool)
        if said:
            return said
    model = state.ledger.requests[parts[0].rid].arrived.model
    view = state.pools[replica.pool]
    if not view.serves(model) or any(state.ledger.requests[p.rid].arrived.model != model for p in parts):
        return f"a batch on {replica_name} must be of one model that its pool serves"
    if sum(p.items for p in parts) > view.spec.max_items:
        return f"more than {view.spec.max_items} items for {replica_name}"
    if len(parts) > 1 and not state.workloads[model].mergeable:
        return f"requests of {model} must not share a batch"
    if len(parts) > 1 and any(state.ledger.alone(part) for part in parts):
        return "a batch that one of these requests was in has failed: each must run alone"
    return ""


def _against_part(state: State, part: Part, pool: str) -> str:
    waiting = state.waiting.find(part)
    if waiting is None:
        return f"items {part.start}+{part.items} of request {part.rid} are not waiting"
    request = state.ledger.requests[part.rid]
    if part.items < waiting.items and request.ranges >= request.arrived.max_parts:
        return f"request {part.rid} may not be split further"
    if pool in waiting.barred:
        return f"request {part.rid} failed on {pool} before"
    return ""


def _against_hedge(state: State, part: Part, replica: Replica) -> str:
    request = state.ledger.requests.get(part.rid)
    copies = request.flying.get(part.start, []) if request is not None else []
    flights = [state.batches[b].flight for b in copies]
    if not any(part in flight.parts for flight in flights):
        return f"items {part.start}+{part.items} of request {part.rid} are not in flight"
    if any(flight.replica == replica.name for flight in flights):
        return f"request {part.rid} is on {replica.name} already"
    trouble = request.troubles.get(part.start) if request is not None else None
    if trouble is not None and replica.pool in trouble.barred:
        return f"request {part.rid} failed on {replica.pool} before"
    return ""
