"""The router: events in, actions out. The gateway, the replay and the simulator all drive this very object.

It queues, batches by its policy's choices, dispatches, retries elsewhere, refuses and answers; time is in the events.
It does no I/O, reads no clock, and is a function of its events alone, so a log replays to the identical actions.

Rules:
- Only `Decide` runs the policy. All other events change state and at most answer.
- Every choice of the policy is checked against `rules`; a wrong one becomes `Refused`, and the work waits on.
- Every request that arrives is answered by exactly one `Reply` or `Reject`.
- All that is needed to go on is in `snapshot()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import inf, nextafter
from typing import Any

from numpy.random import PCG64, Generator

from turnout.core import events as ev
from turnout.core import rules
from turnout.core.events import Action, Event, Part, Why
from turnout.core.ledger import Trouble
from turnout.core.policy import Bind, Choice, Drop, Hold, InFlight, Policy, PoolView, Run, View
from turnout.core.replicas import Batch, Bound, Replica
from turnout.core.state import State
from turnout.core.waiting import NEVER

LoadPolicy = Callable[[str, Mapping[str, Any]], Policy]


class Router:
    """The state machine. Deliver events to `handle`, carry out the actions it returns, in order."""

    def __init__(self, load_policy: LoadPolicy) -> None:
        """`load_policy(name, params)` finds the policy that a `Configured` names."""
        self._load_policy = load_policy
        self._config: ev.Configured | None = None
        self._policy: Policy | None = None
        self._state = State()
        self._on: dict[type, Callable[[Any, list[Action]], None]] = {
            ev.Configured: self._configured,
            ev.Arrived: self._arrived,
            ev.Cancelled: self._cancelled,
            ev.Started: self._started,
            ev.Finished: self._finished,
            ev.Failed: self._failed,
            ev.ReplicaStarting: self._replica_starting,
            ev.ReplicaUp: self._replica_up,
            ev.ReplicaDown: self._replica_down,
            ev.Reported: self._reported,
            ev.Closing: self._closing,
            ev.Decide: self._decide,
        }

    def handle(self, event: Event) -> list[Action]:
        """Take one event; return what is to be done, in order."""
        out: list[Action] = []
        self._on[type(event)](event, out)
        return out

    @property
    def unanswered(self) -> int:
        """Requests that still wait for their one answer."""
        return len(self._state.ledger.requests)

    @property
    def waiting(self) -> int:
        """Ranges of items that no replica has yet."""
        return len(self._state.waiting)

    def pool_view(self, pool: str) -> PoolView:
        """A pool with its live predictions, as policies see it; for reports and receipts."""
        return self._state.pools[pool]

    def snapshot(self) -> dict[str, Any]:
        """All state, JSON-like, for `Configured.snapshot`: a fresh router goes on from it exactly as this one."""
        return self._state.snapshot()

    # ---- configuration -----------------------------------------------------------------------------------------------

    def _configured(self, event: ev.Configured, out: list[Action]) -> None:
        old, self._config = self._config, event
        state = self._state
        state.configure(event)
        if old is None or (old.policy, old.params) != (event.policy, event.params):
            self._policy = self._load_policy(event.policy, event.params)
            state.policy_state = None
        if old is not None:
            self._retire(out)
            return
        state.rng = Generator(PCG64(event.seed))
        if event.snapshot is not None:
            state.restore(event.snapshot)

    def _retire(self, out: list[Action]) -> None:
        """After a reload: take down replicas of pools that are gone, answer requests of models that are gone.

        What is bound to a replica is decided anew, since its pool may no longer be able to run it.
        """
        state = self._state
        for rid, request in list(state.ledger.requests.items()):
            if request.arrived.model not in state.workloads:
                self._reject(rid, "unknown model", "the model was removed", out)
        for replica in list(state.replicas.by_name.values()):
            if replica.pool not in state.pools:
                self._lose(replica, "its pool was removed", out)
            else:
                self._release(replica)
        state.replicas.all_changed()
        state.unbar()

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _arrived(self, event: ev.Arrived, out: list[Action]) -> None:
        state = self._state
        assert event.rid not in state.ledger.requests, "a driver never reuses the id of an open request"
        standing = state.standings.get(event.model)
        if standing is not None:
            standing.arrive(event.at_s, event.items, event.max_parts)
        refusal = rules.refusal(state, event)
        if refusal is not None:
            if standing is not None:
                standing.answer(met=False)
            out.append(refusal)
            return
        state.enqueue(state.ledger.open(event), Part(event.rid, 0, event.items))

    def _cancelled(self, event: ev.Cancelled, out: list[Action]) -> None:
        if event.rid in self._state.ledger.requests:
            self._reject(event.rid, "cancelled", "the client is gone", out)

    def _closing(self, event: ev.Closing, out: list[Action]) -> None:  # one shape for all handlers
        self._state.closing_s = event.at_s + event.grace_s

    def _reject(self, rid: int, reason: str, detail: str, out: list[Action], retry_after_s: float = 0.0) -> None:
        out.append(ev.Reject(rid=rid, reason=reason, detail=detail, retry_after_s=retry_after_s))
        standing = self._state.standings.get(self._state.ledger.requests[rid].arrived.model)
        if standing is not None:  # None: the model was removed by a reload
            standing.answer(met=False)
        self._forget(rid, out)

    def _forget(self, rid: int, out: list[Action]) -> None:
        """Close a request that was just answered, and call off what is under way for it alone."""
        state = self._state
        request = state.ledger.close(rid)
        if request.left:
            state.waiting.drop(rid)
            self._unbind(rid)
            self._call_off((b for copies in request.flying.values() for b in copies), out)

    def _unbind(self, rid: int) -> None:
        """Take a request's parts out of the queues of replicas."""
        for replica in self._state.replicas.by_name.values():
            for bound in replica.bound:
                bound.parts = tuple(p for p in bound.parts if p.rid != rid)
            replica.bound = [b for b in replica.bound if b.parts]
        self._state.replicas.all_changed()

    def _call_off(self, batches: Iterable[int], out: list[Action]) -> None:
        """Cancel those of `batches` that nobody waits for any more."""
        state = self._state
        for number in batches:
            batch = state.batches.get(number)
            if batch is None or batch.cancelled or any(state.ledger.wanted(p, number) for p in batch.flight.parts):
                continue
            batch.cancelled = True
            out.append(ev.Cancel(batch=number))

    # ---- batches -----------------------------------------------------------------------------------------------------

    def _started(self, event: ev.Started, out: list[Action]) -> None:
        """The prediction of when the replica is free counts from here."""
        batch = self._state.batches.get(event.batch)
        if batch is not None:
            self._reckon(self._state.replicas.by_name[batch.flight.replica], event.at_s)

    def _reckon(self, replica: Replica, at_s: float) -> None:
        """Predict anew when a replica is through with all that is on it, if it begins on the first of it at `at_s`."""
        replica.free_s = at_s + sum(self._state.batches[b].predicted_s for b in replica.flying)
        self._state.replicas.changed(replica.name)

    def _land(self, number: int, at_s: float) -> Batch | None:
        """Take a batch off its replica; None if it is not known (its replica was lost before)."""
        batch = self._state.batches.pop(number, None)
        if batch is not None:
            replica = self._state.replicas.by_name[batch.flight.replica]
            replica.flying.remove(number)
            self._reckon(replica, at_s)
        return batch

    def _finished(self, event: ev.Finished, out: list[Action]) -> None:
        state = self._state
        batch = self._land(event.batch, event.at_s)
        if batch is None:
            return
        flight = batch.flight
        calibration = state.calibrations.get(flight.pool, {}).get(flight.model)
        if calibration is not None and not batch.cancelled:
            calibration.observe(flight.items, event.service_s)
        offset = 0
        for part in flight.parts:
            landed = state.ledger.land(part, event.batch, offset)
            offset += part.items
            if landed is None:
                continue
            request, copies = landed
            if request.left == 0:
                out.append(ev.Reply(rid=part.rid, pieces=tuple(sorted(request.pieces, key=_start))))
                state.standings[request.arrived.model].answer(met=event.at_s <= request.arrived.deadline_s)
                self._forget(part.rid, out)
            self._call_off(copies, out)

    def _failed(self, event: ev.Failed, out: list[Action]) -> None:
        batch = self._land(event.batch, event.at_s)
        if batch is None:
            return
        flight = batch.flight
        if event.retryable:
            self._retry(flight, event.kind, out, barred={flight.pool})
        elif len(flight.parts) > 1:  # one of them is at fault, and the others must not pay for it
            self._retry(flight, event.kind, out, alone=True)
        else:
            for part in flight.parts:
                if self._state.ledger.crash(part, flight.batch) is not None:
                    self._reject(part.rid, "failed", f"{event.kind} on {flight.replica}", out)

    def _retry(
        self,
        flight: InFlight,
        kind: str,
        out: list[Action],
        *,
        barred: AbstractSet[str] = frozenset(),
        alone: bool = False,
    ) -> None:
        """Queue the parts of a batch again, or give up those that were tried often enough.

        They are `barred` from the pool that failed them, and run `alone` if one of them may have failed the others.
        """
        state = self._state
        for part in flight.parts:
            request = state.ledger.crash(part, flight.batch)
            if request is None:
                continue
            trouble = request.troubles.setdefault(part.start, Trouble())
            trouble.attempts += 1
            if trouble.attempts >= state.limits.max_attempts:
                self._reject(part.rid, "failed", f"{kind} on {flight.replica}, attempt {trouble.attempts}", out)
                continue
            away = {*trouble.barred, *barred}
            trouble.barred = tuple(sorted(away)) if state.present(flight.model, away) else ()  # see `State.unbar`
            trouble.alone = trouble.alone or alone
            state.enqueue(request, part)

    # ---- replicas ----------------------------------------------------------------------------------------------------

    def _replica_starting(self, event: ev.ReplicaStarting, out: list[Action]) -> None:
        if event.pool not in self._state.pools:  # removed by a reload while the replica was on its way
            return
        known = self._state.replicas.by_name.get(event.replica)
        if known is not None and known.up:  # nobody said that it went down, but it cannot be up and starting
            self._lose(known, "replica restarted", out)
        self._state.replicas.add(Replica(name=event.replica, pool=event.pool, up=False, ready_s=event.ready_s))

    def _replica_up(self, event: ev.ReplicaUp, out: list[Action]) -> None:
        known = self._state.replicas.by_name.get(event.replica)
        if event.pool in self._state.pools and (known is None or not known.up):
            self._state.replicas.add(Replica(name=event.replica, pool=event.pool, up=True, free_s=event.at_s))

    def _replica_down(self, event: ev.ReplicaDown, out: list[Action]) -> None:
        replica = self._state.replicas.by_name.get(event.replica)
        if replica is not None:
            self._lose(replica, event.why or "replica lost", out)

    def _lose(self, replica: Replica, why: str, out: list[Action]) -> None:
        """A replica is gone: what was on it is tried on any other, what was queued for it waits again."""
        state = self._state
        state.replicas.remove(replica.name)
        for number in replica.flying:
            self._retry(state.batches.pop(number).flight, why, out)
        self._release(replica)
        state.unbar()

    def _release(self, replica: Replica) -> None:
        """What was queued for a replica waits again."""
        bound, replica.bound = replica.bound, []
        for part in (part for batch in bound for part in batch.parts):
            request = self._state.ledger.requests.get(part.rid)
            if request is not None:
                self._state.enqueue(request, part)

    def _reported(self, event: ev.Reported, out: list[Action]) -> None:
        """The load of others keeps a pool busy for its backlog, at the rate of full batches, less what has passed."""
        state = self._state
        view = state.pools.get(event.pool)
        replicas = state.replicas.count(event.pool)
        if view is None or not replicas:
            return
        full = view.spec.max_items
        full_s = max((view.mean_s(m, full) for m in view.spec.models if view.serves(m)), default=0.0)
        backlog_s = event.backlog_items / full * full_s / replicas
        state.replicas.report(event.pool, event.at_s - event.age_s + backlog_s)

    # ---- the tick ----------------------------------------------------------------------------------------------------

    def _decide(self, event: ev.Decide, out: list[Action]) -> None:
        state = self._state
        now_s = event.at_s
        if state.closing_s is not None and now_s >= state.closing_s:
            for rid in list(state.ledger.requests):
                self._reject(rid, "closing", "not done within the grace period", out)
        for rid in state.waiting.pop_expired(now_s):
            request = state.ledger.requests.get(rid)
            if request is not None:
                after_s = state.retry_after_s(request.arrived, now_s)
                self._reject(rid, "deadline", "no replica could finish it by its deadline", out, after_s)
        self._run_bound(now_s, out)
        held_s = NEVER
        if len(state.waiting) or (state.batches and state.hedges_left >= 1.0):
            held_s = self._run_policy(now_s, out)
        self._wake(now_s, held_s, out)

    def _run_policy(self, now_s: float, out: list[Action]) -> float:
        """One decision; returns when the policy asks to be run again at the latest."""
        assert self._policy is not None, "the first event of a log is Configured"
        state = self._state
        view = View(
            now_s=now_s,
            waiting=state.waiting.in_order(),
            replicas=state.replicas.views(),
            pools=state.pools,
            workloads=state.workloads,
            standings=state.standings,
            in_flight=tuple(b.flight for b in state.batches.values() if not b.cancelled),
            hedges_left=state.hedges_left,
        )
        try:
            choices, state.policy_state = self._policy(view, state.policy_state, state.rng)
        except Exception as error:  # noqa: BLE001  # a policy's fault must lose no request: it is said, the work waits
            out.append(ev.Refused(why=f"the policy raised {type(error).__name__}: {error}"))
            return NEVER
        held_s = NEVER
        for choice in choices:
            if isinstance(choice, Hold) and choice.until_s > now_s:
                held_s = min(held_s, choice.until_s)
                continue
            objection = self._apply(choice, now_s, out)
            if objection:
                out.append(ev.Refused(why=objection))
        return held_s

    def _apply(self, choice: Choice, now_s: float, out: list[Action]) -> str:
        """Carry out one choice; returns what spoke against it, or ""."""
        state = self._state
        if isinstance(choice, Run):
            objection = rules.against_run(state, choice)
            if not objection:
                if not choice.hedge:
                    self._take(choice.parts)
                self._dispatch(choice.parts, choice.replica, choice.why, now_s, out, hedge=choice.hedge)
            return objection
        if isinstance(choice, Bind):
            objection = rules.against_batch(state, choice.parts, choice.replica)
            if not objection:
                self._bind(choice, now_s, out)
            return objection
        if isinstance(choice, Drop):
            request = state.ledger.requests.get(choice.rid)
            if request is None:
                return f"request {choice.rid} is not open"
            after_s = state.retry_after_s(request.arrived, now_s)
            self._reject(choice.rid, choice.reason, "dropped by the policy", out, after_s)
            return ""
        return f"{choice!r} is no choice, or a hold that is not in the future"

    def _take(self, parts: tuple[Part, ...]) -> None:
        """Move parts out of the waiting set, leaving what remains of their ranges."""
        state = self._state
        for part in parts:
            rest = state.waiting.remove(part.rid, part.start).items - part.items
            if rest:
                request = state.ledger.requests[part.rid]
                request.cut(part.start, part.start + part.items)
                state.enqueue(request, Part(part.rid, part.start + part.items, rest))

    def _bind(self, choice: Bind, now_s: float, out: list[Action]) -> None:
        """Queue a batch on a replica, or start it if there is a slot."""
        state = self._state
        replica = state.replicas.by_name[choice.replica]
        self._take(choice.parts)
        if state.replicas.slots_left(replica):
            self._dispatch(choice.parts, choice.replica, choice.why, now_s, out)
            return
        model = state.ledger.requests[choice.parts[0].rid].arrived.model
        predicted_s = state.pools[replica.pool].mean_s(model, sum(p.items for p in choice.parts))
        replica.bound.append(Bound(parts=choice.parts, why=choice.why, predicted_s=predicted_s))
        replica.free_s = max(now_s, replica.free_s)
        state.replicas.changed(replica.name)

    def _run_bound(self, now_s: float, out: list[Action]) -> None:
        """Start what is bound to replicas that have a free slot."""
        for replica in self._state.replicas.by_name.values():
            while replica.bound and self._state.replicas.slot_free(replica):
                bound = replica.bound.pop(0)
                self._dispatch(bound.parts, replica.name, bound.why, now_s, out)

    def _dispatch(
        self, parts: tuple[Part, ...], name: str, why: Why, now_s: float, out: list[Action], *, hedge: bool = False
    ) -> None:
        """Put a batch on a replica, with the predictions that it will be held against."""
        state = self._state
        replica = state.replicas.by_name[name]
        arrived = [state.ledger.requests[p.rid].arrived for p in parts]
        model = arrived[0].model
        items = sum(p.items for p in parts)
        view = state.pools[replica.pool]
        nbytes = sum((a.nbytes_in + a.nbytes_out) * p.items // a.items for a, p in zip(arrived, parts, strict=True))
        predicted_s, p99_s = view.mean_s(model, items, nbytes), view.p99_s(model, items, nbytes)
        start_s = max(now_s, replica.free_s) if replica.flying else now_s
        number = state.next_batch
        state.next_batch += 1
        flight = InFlight(
            batch=number,
            replica=name,
            pool=replica.pool,
            model=model,
            parts=parts,
            items=items,
            dispatched_s=now_s,
            finish_s=start_s + predicted_s,
            p99_finish_s=start_s + p99_s,
            deadline_s=min(a.deadline_s for a in arrived),
            hedge=hedge,
        )
        state.batches[number] = Batch(flight=flight, predicted_s=predicted_s)
        for part in parts:
            state.ledger.fly(part, number)
        replica.flying.append(number)
        replica.free_s = start_s + predicted_s
        state.replicas.changed(name)
        earned = state.hedges_left + state.limits.hedge_share
        state.hedges_left = min(earned, state.limits.hedge_burst) - hedge
        out.append(
            ev.Dispatch(
                batch=number,
                replica=name,
                model=model,
                parts=parts,
                start_s=start_s,
                predicted_s=predicted_s,
                p99_s=p99_s,
                hedge=hedge,
                why=why,
            )
        )

    def _wake(self, now_s: float, held_s: float, out: list[Action]) -> None:
        """Ask for a `Decide` when something will have to be decided though nothing happens."""
        state = self._state
        if state.wake_s <= now_s:
            state.wake_s = NEVER
        expiry_s = state.waiting.next_expiry_s()
        wanted_s = min(held_s, nextafter(expiry_s, inf) if expiry_s < NEVER else NEVER)
        if state.closing_s is not None and state.ledger.requests:
            wanted_s = min(wanted_s, state.closing_s)
        if wanted_s < NEVER and wanted_s != state.wake_s:
            state.wake_s = wanted_s
            out.append(ev.Wake(at_s=wanted_s))


def _start(piece: ev.Piece) -> int:
    return piece.start
