"""The live driver of the router: it collects the events of a loop tick, lets the router decide once, and obeys.

It owns the requests' tensors, the batches under way and the replicas; the router owns every decision. It knows no
HTTP and reads no clock of its own: time, "soon" and "later" are passed in, so that a test can hold them still.

Rules:
- All methods run in one thread, the event loop's. Events enter the log in the order in which they were delivered.
- A tick is: the events since the last one, then one `Decide`; its records reach the log before its actions are done.
- Every request submitted gets its callback called once, whatever fails.
"""

from __future__ import annotations

import asyncio
import math
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from msgspec import Struct

from turnout.core import events as ev
from turnout.core.events import Action, Event
from turnout.core.router import Router
from turnout.core.workload import Workload
from turnout.errors import ArtefactError, ConfigError, ModelError, TurnoutError
from turnout.pools.replica import ModelIo, Task
from turnout.serve.axes import doubt, with_axes
from turnout.serve.batches import Batch, assemble, gather
from turnout.serve.receipts import Receipts
from turnout.telemetry import Counters, LogWriter

Outputs = Mapping[str, np.ndarray]


class Timer(Protocol):
    """Something that was to happen later, and can be called off."""

    def cancel(self) -> None:
        """Do not."""


class Loop(Protocol):
    """The part of an event loop that the driver needs; asyncio's has it."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call back in the next turn of the loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        """Call back after `delay` seconds."""


class Runner(Protocol):
    """A replica as the driver sees it; see `pools.replica.Replica`."""

    def submit(self, task: Task) -> None:
        """Queue a batch."""

    def cancel(self, batch: int) -> None:
        """Do not begin with `batch`."""


class Answer(Struct, frozen=True, kw_only=True):
    """What became of a request: `outputs`, or why there are none."""

    rid: int
    outputs: Outputs | None = None
    reject: ev.Reject | None = None


class Submission(Struct, frozen=True, kw_only=True):
    """A request that was decoded. `timeout_s` is None for the model's own objective; `priority` is the core's."""

    model: str
    tensors: Outputs
    items: int
    outputs: tuple[str, ...]
    nbytes: int = 0
    timeout_s: float | None = None
    priority: int = 1
    max_parts: int = 1
    client_id: str = ""


class _Open(Struct):
    """A request without its answer: the tensors until then, and whom to tell."""

    submission: Submission
    tell: Callable[[Answer], None]
    batches: list[int]


class Driver:
    """See the module. `start` first; then requests come by `submit`, and replicas by the methods of `Listener`."""

    def __init__(
        self,
        *,
        router: Router,
        clock: Callable[[], float],
        loop: Loop,
        log: LogWriter | None,
        receipts: Receipts,
        counters: Counters,
        batch_axes: Mapping[str, Mapping[str, int]],
    ) -> None:
        """`clock` gives seconds since the log's epoch and never goes back; `log` None keeps no event log.

        `batch_axes[model][tensor]` is the axis that counts items, where the config says so; see `axes`.
        """
        self.receipts = receipts
        self.counters = counters
        self.models: dict[str, ModelIo] = {}
        self.workloads: dict[str, Workload] = {}
        self.runners: dict[str, Runner] = {}
        self.faults: list[TurnoutError] = []
        self.loading = True  # until every replica was up once; a fault in that time ends the gateway, which says it
        self.broken: TurnoutError | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._router = router
        self._clock = clock
        self._batch_axes = batch_axes
        self._loop = loop
        self._log = log
        self._configured: ev.Configured | None = None
        self._events: list[Event] = []
        self._ticking = False
        self._open: dict[int, _Open] = {}
        self._batches: dict[int, Batch] = {}
        self._serving: dict[str, set[str]] = {}
        self._pool_of: dict[str, str] = {}
        self._next_rid = 1
        self._wake_s = math.inf
        self._timer: Timer | None = None
        self._idle: asyncio.Event | None = None

    # ---- requests ----------------------------------------------------------------------------------------------------

    @property
    def unanswered(self) -> int:
        """Requests that have no answer yet."""
        return len(self._open)

    def now_s(self) -> float:
        """Seconds since the log's epoch."""
        return self._clock()

    @property
    def replicas_up(self) -> int:
        """Replicas that take batches."""
        return len(set().union(*self._serving.values()))

    def start(self, configured: ev.Configured) -> Path | None:
        """Configure the router, and begin the log; its first segment."""
        self._configured = configured
        self.workloads = {workload.name: workload for workload in configured.models}
        path = self._log.start(configured) if self._log is not None else None
        self.counters.add([configured])
        self.receipts.add([configured])
        self._carry_out(self._router.handle(configured))
        return path

    def submit(self, submission: Submission, tell: Callable[[Answer], None]) -> int:
        """Take a request; `tell` is called once, later, with its answer. Returns the id that it has here."""
        rid, self._next_rid = self._next_rid, self._next_rid + 1
        now_s = self._clock()
        workload = self.workloads[submission.model]
        budget_s = workload.slo.deadline_s if submission.timeout_s is None else submission.timeout_s
        self._open[rid] = _Open(submission, tell, [])
        self.receipts.name(rid, submission.client_id)
        self._post(
            ev.Arrived(
                at_s=now_s,
                rid=rid,
                model=submission.model,
                items=submission.items,
                deadline_s=now_s + budget_s,
                nbytes_in=submission.nbytes,
                priority=submission.priority,
                max_parts=submission.max_parts,
            )
        )
        return rid

    def cancel(self, rid: int) -> None:
        """The client is gone."""
        if rid in self._open:
            self._post(ev.Cancelled(at_s=self._clock(), rid=rid))

    def close(self, grace_s: float) -> None:
        """Take no more requests, and reject after `grace_s` what is still open then."""
        self._post(ev.Closing(at_s=self._clock(), grace_s=grace_s))

    async def idle(self) -> None:
        """Wait until no request is open."""
        self._idle = asyncio.Event()
        while self._open:
            self._idle.clear()
            await self._idle.wait()

    def serves(self, model: str) -> bool:
        """Whether a replica that has `model` is up."""
        return bool(self._serving.get(model))

    # ---- replicas ----------------------------------------------------------------------------------------------------

    def replica_starting(self, replica: str, pool: str, ready_in_s: float) -> None:
        """See `pools.replica.Listener`."""
        now_s = self._clock()
        self._pool_of[replica] = pool
        self._post(ev.ReplicaStarting(at_s=now_s, replica=replica, pool=pool, ready_s=now_s + ready_in_s))

    def replica_up(self, replica: str, pool: str, models: dict[str, ModelIo]) -> None:
        """See `pools.replica.Listener`. A replica whose tensors are not those of the others is not used."""
        for name, io in models.items():
            fault = self._fault_of(name, replica, io)
            if fault:
                self.faults.append(ConfigError(fault))
                self.on_change()
                return
        for name in models:
            self._serving.setdefault(name, set()).add(replica)
        self._post(ev.ReplicaUp(at_s=self._clock(), replica=replica, pool=pool))
        self.on_change()

    def _fault_of(self, model: str, replica: str, io: ModelIo) -> str:
        """Why a model that was loaded cannot be served, or ""."""
        if not io.inputs or not io.outputs:
            return f"model {model} on {replica} does not say what tensors it takes and returns, so it cannot be served"
        named = self._batch_axes.get(model, {})
        io = with_axes(io, named)
        unsure = doubt(io, named) if self.workloads[model].mergeable or named else ""
        if unsure:
            return f"model {model}: {unsure}"
        known = self.models.setdefault(model, io)
        if _says(known) != _says(io):
            return f"pools disagree on the tensors of {model}: {replica} has {_says(io)}, others have {_says(known)}"
        return ""

    def replica_down(self, replica: str, why: str, error: TurnoutError | None, ready_in_s: float) -> None:
        """See `pools.replica.Listener`. It is starting again in the same tick: what waits for it is not refused."""
        now_s = self._clock()
        for serving in self._serving.values():
            serving.discard(replica)
        self._post(ev.ReplicaDown(at_s=now_s, replica=replica, why=why))
        for number, batch in self._batches.items():  # for the record: the router has taken them back by now
            if batch.replica == replica and not batch.outputs:
                self._post(ev.Failed(at_s=now_s, batch=number, kind=why, retryable=True))
        pool = self._pool_of[replica]
        self._post(ev.ReplicaStarting(at_s=now_s, replica=replica, pool=pool, ready_s=now_s + ready_in_s))
        if error is not None:
            self.faults.append(error)
        if error is None or not self.loading:
            sys.stderr.write(f"turnout: {replica}: {why}; it starts again\n")
        self.on_change()

    def batch_finished(self, batch: int, outputs: Sequence[dict[str, np.ndarray]], service_s: float) -> None:
        """See `pools.replica.Listener`."""
        if batch in self._batches:
            self._batches[batch].outputs = outputs
            self._post(ev.Finished(at_s=self._clock(), batch=batch, service_s=service_s))

    def batch_failed(self, batch: int, kind: str, *, retryable: bool) -> None:
        """See `pools.replica.Listener`."""
        if batch in self._batches:
            self._post(ev.Failed(at_s=self._clock(), batch=batch, kind=kind, retryable=retryable))

    # ---- the tick ----------------------------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        """Add an event to the tick that is being collected."""
        self._events.append(event)
        if not self._ticking:
            self._ticking = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        """Deliver the tick's events and one `Decide`, write it all down, and do what the router says."""
        events, self._events, self._ticking = self._events, [], False
        records: list[Event | Action] = []
        actions: list[Action] = []
        decided = ev.Decide(at_s=self._clock())
        try:
            for event in (*events, decided):
                out = self._router.handle(event)
                records.append(event)
                records += out
                actions += out
        except Exception as error:  # noqa: BLE001  # a fault of ours must not leave anybody waiting
            self._give_up(error)
            return
        self._write(records)
        self.counters.add(records)
        self.receipts.add(records)
        self._carry_out(actions)
        for event in events:
            if isinstance(event, ev.Finished | ev.Failed):
                self._settle(event.batch)
        self._rotate(decided.at_s)

    def _write(self, records: Sequence[Event | Action]) -> None:
        """Append to the log; a disk that refuses ends the log, aloud, and not the service."""
        if self._log is None:
            return
        try:
            self._log.write(records)
        except OSError as error:
            self._end_log(error.strerror or str(error))

    def _rotate(self, now_s: float) -> None:
        """Begin the next log segment if this one is full; its snapshot is of the state after this tick."""
        if self._log is None or not self._log.full:
            return
        assert self._configured is not None
        first = msgspec.structs.replace(self._configured, at_s=now_s, snapshot=self._router.snapshot())
        try:
            self._log.start(first)
        except ArtefactError as error:
            self._end_log(str(error))

    def _end_log(self, why: str) -> None:
        """Go on without a log, and say so."""
        sys.stderr.write(f"turnout: the event log ends here: {why}\n")
        self._log = None

    def _carry_out(self, actions: Sequence[Action]) -> None:
        """Do what the router says, in order."""
        for action in actions:
            match action:
                case ev.Dispatch():
                    self._dispatch(action)
                case ev.Reply():
                    self._reply(action)
                case ev.Reject():
                    self._answer(Answer(rid=action.rid, reject=action))
                case ev.Cancel():
                    self.runners[self._batches[action.batch].replica].cancel(action.batch)
                case ev.Wake():
                    self._set_alarm(action.at_s)
                case ev.Refused():
                    pass  # it is in the log and the counters; the work waits on

    def _dispatch(self, action: ev.Dispatch) -> None:
        """Join the parts' tensors and hand them to the replica."""
        tensors = {part.rid: self._open[part.rid].submission.tensors for part in action.parts}
        io = self.models[action.model]
        batch, runs = gather(action.model, action.replica, action.parts, tensors, io.inputs)
        self._batches[action.batch] = batch
        for rid in batch.owed:
            self._open[rid].batches.append(action.batch)
        self.runners[action.replica].submit(Task(batch=action.batch, model=action.model, runs=runs))

    def _reply(self, action: ev.Reply) -> None:
        """Cut a request's rows out of the batches that it was in."""
        submission = self._open[action.rid].submission
        io = self.models[submission.model]
        try:
            outputs = assemble(action.pieces, self._batches, io.outputs, submission.outputs)
        except (ModelError, KeyError) as error:
            detail = str(error) if isinstance(error, ModelError) else f"the model returned no output {error}"
            self._answer(Answer(rid=action.rid, reject=ev.Reject(rid=action.rid, reason="failed", detail=detail)))
            return
        self._answer(Answer(rid=action.rid, outputs=outputs))

    def _answer(self, answer: Answer) -> None:
        """Tell the request's owner, and let go of what only it needed."""
        request = self._open.pop(answer.rid)
        for number in request.batches:
            batch = self._batches.get(number)
            if batch is not None:
                batch.owed.discard(answer.rid)
                if not batch.owed and batch.outputs:
                    del self._batches[number]
        request.tell(answer)
        if not self._open and self._idle is not None:
            self._idle.set()

    def _settle(self, number: int) -> None:
        """A batch is back: forget it unless rows of it are still owed."""
        batch = self._batches.get(number)
        if batch is not None and (not batch.owed or not batch.outputs):
            del self._batches[number]

    def _set_alarm(self, at_s: float) -> None:
        """Deliver a `Decide` at `at_s`, in place of the last such wish."""
        if self._timer is not None:
            self._timer.cancel()
        self._wake_s = at_s
        # Loops round to milliseconds, some of them down; an alarm that rings early would only be set again.
        delay_s = math.ceil(max(at_s - self._clock(), 0.0) * 1e3) / 1e3
        self._timer = self._loop.call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._clock() < self._wake_s:
            self._set_alarm(self._wake_s)
        elif not self._ticking:
            self._ticking = True
            self._loop.call_soon(self._tick)

    def _give_up(self, error: Exception) -> None:
        """The router itself failed: answer everybody, and say so."""
        sys.stderr.write("turnout: the router failed, which is a fault of Turnout's own\n")
        traceback.print_exception(error)
        self.broken = TurnoutError(f"the router failed: {error}")
        for rid in list(self._open):
            reject = ev.Reject(rid=rid, reason="failed", detail="internal error")
            self._answer(Answer(rid=rid, reject=reject))
        self.on_change()


def _says(io: ModelIo) -> str:
    """A model's tensors in one line."""
    return ", ".join(
        f"{spec.name} {spec.datatype}{list(spec.shape)} batch {spec.batch_axis}" for spec in (*io.inputs, *io.outputs)
    )
