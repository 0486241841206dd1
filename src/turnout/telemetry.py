"""The event log (one writer, one reader) and the counters that are kept from it.

A log is JSON lines: events as they were delivered, each followed by the actions that it caused. The first record of
every segment is a `Configured`; with its snapshot a fresh router goes on from there, so that a segment can be read
alone. Times in it are the driver's: nothing here reads a clock. A segment appears under its name only with its first
record in it, and is only ever appended to, whole ticks at a time; a crash can therefore cost no more than the end of
the last line.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from turnout.core.cost import Usage
from turnout.core.events import (
    Action,
    Arrived,
    Configured,
    Dispatch,
    Event,
    Failed,
    Finished,
    Refused,
    Reject,
    ReplicaDown,
    ReplicaStarting,
    ReplicaUp,
    Reply,
)
from turnout.core.uptime import Uptime
from turnout.errors import ArtefactError

Fsync = Literal["close", "tick"]

SUFFIX = ".jsonl"

SEGMENT_BYTES = 64 << 20
"""A segment that has grown past this is ended at the next tick."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event | Action)


class LogWriter:
    """Appends whole ticks to numbered segments in one folder.

    `run` begins every file name, so that the runs of one folder sort by it. `fsync` says when the disk has the last
    word: "close" at the end of each segment (a crash of the process loses nothing, one of the machine may), or
    "tick" after every tick.
    """

    def __init__(self, folder: Path, run: str, *, segment_bytes: int = SEGMENT_BYTES, fsync: Fsync = "close") -> None:
        self._folder = folder
        self._run = run
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._fd = -1
        self._sequence = 0
        self._written_bytes = 0

    @property
    def full(self) -> bool:
        """Whether the segment is long enough to be followed by the next."""
        return self._written_bytes >= self._segment_bytes

    def start(self, first: Configured) -> Path:
        """End the segment there is, if any, and begin the next with `first`; its path.

        Raises:
            ArtefactError: the folder cannot be written to, or the segment exists already.
        """
        self.close()
        path = self._folder / f"{self._run}-{self._sequence:06d}{SUFFIX}"
        draft = path.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self.write([first])
            os.link(draft, path)  # unlike a rename, this never replaces a log that is there
            draft.unlink()
        except OSError as error:
            self.close()
            msg = f"cannot begin the event log {path}: {error.strerror}"
            raise ArtefactError(msg) from error
        self._sequence += 1
        return path

    def write(self, records: Iterable[Event | Action]) -> None:
        """Append the records of one tick.

        Raises:
            OSError: the disk refuses.
        """
        data = memoryview(_ENCODER.encode_lines(records))
        self._written_bytes += len(data)
        while data:
            data = data[os.write(self._fd, data) :]
        if self._fsync == "tick":
            os.fsync(self._fd)

    def close(self) -> None:
        """End the segment; a second call does nothing."""
        if self._fd < 0:
            return
        try:
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
            self._fd = -1
            self._written_bytes = 0


def segments(folder: Path) -> list[Path]:
    """The log segments in `folder`, in the order in which they were written."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def read_log(path: Path, *, ignore_truncated_tail: bool = False) -> Iterator[tuple[int, Event | Action]]:
    """Each record of one segment, with its line number from 1 on; actions follow the event that caused them.

    Raises:
        ArtefactError: the file is missing, empty or not a log, a line is damaged, or the last one is cut off
            (unless `ignore_truncated_tail`, which leaves that line out).
    """
    try:
        file = path.open("rb")
    except OSError as error:
        msg = f"cannot read the event log {path}: {error.strerror}"
        raise ArtefactError(msg) from error
    number = 0
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                if ignore_truncated_tail and number > 1:
                    return
                msg = (
                    f"{path}, line {number}: cut off, as a crash leaves it; "
                    "--ignore-truncated-tail reads everything before it"
                )
                raise ArtefactError(msg)
            record = _decode(line, path, number)
            if number == 1 and not isinstance(record, Configured):
                msg = f"{path}: the first record is {type(record).__name__}, not Configured, so this is no whole log"
                raise ArtefactError(msg)
            yield number, record
    if not number:
        msg = f"{path} is empty; an event log begins with a Configured record"
        raise ArtefactError(msg)


def truncated(path: Path) -> bool:
    """Whether the segment ends within a line, as a crash leaves it."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        if not file.tell():
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _decode(line: bytes, path: Path, number: int) -> Event | Action:
    """The record in one line."""
    try:
        record: Event | Action = _DECODER.decode(line)
    except msgspec.ValidationError as error:
        msg = f"{path}, line {number}: not a record that this version of Turnout knows: {error}"
        raise ArtefactError(msg) from error
    except msgspec.DecodeError as error:
        msg = f"{path}, line {number}: damaged: {error}"
        raise ArtefactError(msg) from error
    return record


# ---- counters --------------------------------------------------------------------------------------------------------

SECONDS_BOUNDS = (
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper bounds in seconds: most answers of a CPU take under 5 ms, where the usual defaults begin."""

ITEMS_BOUNDS = tuple(float(1 << n) for n in range(11))
"""Upper bounds in items: 1, 2, 4, … 1024."""


class Histogram:
    """Counts per bucket; `bounds` are the buckets' upper ends, and the last count is of all that is beyond them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Counters:
    """Totals kept from the records of a log, live or read back.

    `requests[model, outcome]`: "met" and "late" are answers before and after the deadline, any other outcome is the
    reason of the reject. `request_s[model]` is from arrival to answer. `dispatches[pool]`, `batch_items[pool]` and
    `busy_s[pool]` are of batches; `finished[pool]` of those that brought a result, `failed[pool]` of those that
    did not, and `covered[pool]` of the finished that took no longer than the predicted p99.
    `refused` are choices of the policy that broke a rule.
    """

    __slots__ = (
        "_batches",
        "_now_s",
        "_on",
        "_open",
        "_uptime",
        "batch_items",
        "busy_s",
        "covered",
        "dispatches",
        "failed",
        "finished",
        "refused",
        "request_s",
        "requests",
    )

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str], int] = {}
        self.request_s: dict[str, Histogram] = {}
        self.batch_items: dict[str, Histogram] = {}
        self.dispatches: dict[str, int] = {}
        self.finished: dict[str, int] = {}
        self.failed: dict[str, int] = {}
        self.covered: dict[str, int] = {}
        self.busy_s: dict[str, float] = {}
        self._open: dict[int, Arrived] = {}
        self._batches: dict[int, tuple[str, float]] = {}
        self.refused = 0
        self._uptime = Uptime()
        self._now_s = 0.0
        self._on: dict[type, Callable[[Any], object]] = {
            Configured: self._uptime.follow,
            ReplicaStarting: self._uptime.follow,
            ReplicaUp: self._uptime.follow,
            ReplicaDown: self._uptime.follow,
            Arrived: self._arrived,
            Dispatch: self._dispatched,
            Finished: self._finished,
            Failed: self._failed,
            Refused: self._refused,
            Reply: self._replied,
            Reject: self._rejected,
        }

    @property
    def replicas(self) -> dict[str, set[str]]:
        """The names of those that are up, by every pool that ever had one."""
        return self._uptime.up()

    def pool_of(self, replica: str) -> str:
        """The pool of a replica, "" if it never was up."""
        return self._uptime.pool_of(replica)

    @property
    def unanswered(self) -> int:
        """Requests that arrived and have no answer yet."""
        return len(self._open)

    @property
    def in_flight(self) -> int:
        """Batches that are on a replica."""
        return len(self._batches)

    def usage(self, pool: str, now_s: float) -> Usage:
        """For how long the pool's replicas were up until now, and busy."""
        return Usage(up_s=self._uptime.up_s(pool, now_s), busy_s=self.busy_s.get(pool, 0.0))

    def add(self, records: Iterable[Event | Action]) -> None:
        """Count records, in the order of the log."""
        for record in records:
            self._now_s = getattr(record, "at_s", self._now_s)
            count = self._on.get(type(record))
            if count is not None:
                count(record)

    def _arrived(self, record: Arrived) -> None:
        self._open[record.rid] = record

    def _dispatched(self, record: Dispatch) -> None:
        pool = self._uptime.pool_of(record.replica)
        self.dispatches[pool] = self.dispatches.get(pool, 0) + 1
        items = self.batch_items.setdefault(pool, Histogram(ITEMS_BOUNDS))
        items.observe(sum(part.items for part in record.parts))
        self._batches[record.batch] = (pool, record.p99_s)

    def _finished(self, record: Finished) -> None:
        pool, p99_s = self._batches.pop(record.batch, ("", 0.0))
        if not pool:  # dispatched in an earlier segment
            return
        took_s = record.service_s + record.transfer_s
        self.finished[pool] = self.finished.get(pool, 0) + 1
        self.busy_s[pool] = self.busy_s.get(pool, 0.0) + took_s
        if took_s <= p99_s:
            self.covered[pool] = self.covered.get(pool, 0) + 1

    def _failed(self, record: Failed) -> None:
        pool, _ = self._batches.pop(record.batch, ("", 0.0))
        if pool:
            self.failed[pool] = self.failed.get(pool, 0) + 1

    def _refused(self, record: Refused) -> None:
        self.refused += 1

    def _replied(self, record: Reply) -> None:
        self._answered(record.rid, None)

    def _rejected(self, record: Reject) -> None:
        self._answered(record.rid, record.reason)

    def _answered(self, rid: int, reason: str | None) -> None:
        """A request is answered, with outputs if there is no `reason`; an action's time is that of its event."""
        request = self._open.pop(rid, None)
        if request is None:  # arrived in an earlier segment
            return
        if reason is None:
            seconds = self.request_s.setdefault(request.model, Histogram(SECONDS_BOUNDS))
            seconds.observe(self._now_s - request.at_s)
            reason = "met" if self._now_s <= request.deadline_s else "late"
        key = (request.model, reason)
        self.requests[key] = self.requests.get(key, 0) + 1
