"""The rows of a log to an `AccessLog`: cells to values, ends to arrivals, everything in order of arrival.

A status is a miss from 500 on, and for 408, 429 and 499 (timed out, refused, the client gave up) and 0 (Envoy: nothing
was sent); any other number is an answer. Servers log a request when it is over, so a log is in order of ends; where its
times are ends, arrival = end - latency. Times in whole seconds, as nginx's $time_local, are spread evenly within their
second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice
from math import ceil, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from turnout.errors import ArtefactError
from turnout.traces.access.formats import Format, Row, detect, names
from turnout.traces.access.log import NONE, AccessLog, Bools, Floats, Ints, TimeIs
from turnout.traces.access.mapping import AT_END, SCALE, Column, choose

LOOK = 1000
"""Rows that are looked at for the columns there are."""

SHOWN = 3
"""Bad rows that a message names."""

MOST_BAD = 0.5
"""Share of bad rows beyond which the format or the map is wrong, not the rows."""

REFUSED = frozenset({0, 408, 429, 499})

WORDS = {
    **dict.fromkeys(("ok", "success", "succeeded", "true", "answered"), True),
    **dict.fromkeys(("error", "fail", "failed", "false", "rejected", "timeout", "cancelled"), False),
}

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"

MONTHS = {name: i for i, name in enumerate(_MONTHS.split(), 1)}

_LOCAL = re.compile(r"^(\d{2})/(\w{3})/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})$")

_EPOCH_UNITS = ((1e11, "s"), (1e14, "ms"), (1e17, "us"), (float("inf"), "ns"))
"""Numbers below the bound are taken for times since 1970 in the unit; 1e11 seconds are in the year 5138."""


class _BadCellError(Exception):
    """What is wrong with a cell, in words."""


@dataclass(kw_only=True)
class _Columns:
    """The cells so far, row by row."""

    time: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    ok: list[bool] = field(default_factory=list)
    backend: list[int] = field(default_factory=list)
    service_s: list[float] = field(default_factory=list)
    model: list[int] = field(default_factory=list)
    backends: dict[str, int] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    numeric: bool | None = None


def read(
    path: Path, mapped: Mapping[str, Column] | None = None, *, time_is: TimeIs | None = None, skip_bad: bool = False
) -> AccessLog:
    """The log at `path`. `mapped` are columns by role (see `parse_map`), `time_is` says when a row's time was taken.

    Raises:
        ArtefactError: the file is missing, empty or of no known format, or it has bad rows (unless `skip_bad`, and
            then if more than half are).
        ConfigError: a column that is needed cannot be told, or one that is named is not there.
        ExtraMissingError: it is Parquet, and pyarrow is not installed.
    """
    found = detect(path)
    rows = found.rows(path)
    head = list(islice(rows, LOOK))
    columns = names(head)
    if not columns:
        why = f": line {head[0][0]} is {head[0][1]}" if head else ""
        raise ArtefactError(f"{path}, taken for {found.name}, has no row that can be read{why}")
    chosen = choose(mapped or {}, found.known, columns, str(path))
    cells, bad = _collect(chain(head, rows), chosen)
    _check(path, found, bad, len(cells.time), skip_bad=skip_bad)
    at_end = found.at_end if found.at_end is not None else chosen["time"].name.lower() in AT_END
    return _built(path, found, chosen, cells, skipped=len(bad), time_is=time_is or ("end" if at_end else "start"))


def _collect(rows: Iterable[Row], chosen: Mapping[str, Column]) -> tuple[_Columns, list[tuple[int, str]]]:
    """All rows as cells, and the bad ones with what is wrong."""
    cells, bad = _Columns(), list[tuple[int, str]]()
    for number, row in rows:
        if isinstance(row, str):
            bad.append((number, row))
            continue
        try:
            _add(cells, row, chosen)
        except _BadCellError as error:
            bad.append((number, str(error)))
    return cells, bad


def _check(path: Path, found: Format, bad: list[tuple[int, str]], good: int, *, skip_bad: bool) -> None:
    """Refuse bad rows, all or too many of them."""
    if not bad:
        return
    word = "row" if found.name == "Parquet" else "line"
    shown = "\n".join(f"  {path}, {word} {number}: {why}" for number, why in bad[:SHOWN])
    more = f"\n  and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    rows = f"{len(bad)} of {len(bad) + good} rows cannot be read as {found.name}"
    if not skip_bad:
        raise ArtefactError(f"{rows}; mend them, or leave them out with --skip-bad:\n{shown}{more}")
    if len(bad) > MOST_BAD * (len(bad) + good):
        raise ArtefactError(f"{rows}, which is too many to leave out; is the format or --map wrong?\n{shown}{more}")


# ---- cells -----------------------------------------------------------------------------------------------------------


def _add(cells: _Columns, row: Mapping[str, Any], chosen: Mapping[str, Column]) -> None:
    """One row; nothing is added if any of its cells is bad."""
    ok = _ok(row.get(chosen["status"].name), chosen["status"].name) if "status" in chosen else True
    latency_s = _seconds(row, chosen["latency"], empty=not ok)
    items = _items(row, chosen["items"]) if "items" in chosen else 1
    service_s = _seconds(row, chosen["service"], empty=True) if "service" in chosen else nan
    time, numeric = _time(row.get(chosen["time"].name), chosen["time"])
    if cells.numeric is None:
        cells.numeric = numeric
    elif cells.numeric is not numeric:
        raise _BadCellError(f"{chosen['time'].name} {row.get(chosen['time'].name)!r} is of another form than above")
    cells.time.append(time)
    cells.latency_s.append(latency_s)
    cells.items.append(items)
    cells.ok.append(ok)
    cells.service_s.append(service_s)
    backend = str(row.get(chosen["backend"].name) or "-") if "backend" in chosen else "-"
    cells.backend.append(NONE if backend == "-" else cells.backends.setdefault(backend, len(cells.backends)))
    model = str(row.get(chosen["model"].name) or "-") if "model" in chosen else "model"
    cells.model.append(cells.models.setdefault(model, len(cells.models)))


def _seconds(row: Mapping[str, Any], column: Column, *, empty: bool) -> float:
    """A duration; NaN for none, where there may be none."""
    cell = row.get(column.name)
    if cell is None or cell in {"", "-"}:
        if empty:
            return nan
        raise _BadCellError(f"{column.name} is empty")
    value = _number(cell, column.name) * SCALE[column.unit]
    if value < 0.0:
        raise _BadCellError(f"{column.name} {cell!r} is negative")
    return value


def _items(row: Mapping[str, Any], column: Column) -> int:
    """A count of items; bytes or tokens are divided, and rounded up."""
    cell = row.get(column.name)
    value = _number(cell, column.name)
    if column.unit:
        return max(ceil(value / int(column.unit)), 1)
    if value < 1.0 or value != int(value):
        raise _BadCellError(f"{column.name} {cell!r} is not a whole number of at least 1")
    return int(value)


def _number(cell: Any, name: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise _BadCellError(f"{name} {cell!r} is not a number") from None
    if not isfinite(value):
        raise _BadCellError(f"{name} {cell!r} is not a finite number")
    return value


def _ok(cell: Any, name: str) -> bool:
    """Whether a status is an answer."""
    if isinstance(cell, bool):
        return cell
    word = str(cell).strip().lower()
    if word in WORDS:
        return WORDS[word]
    code = _number(cell, name)
    return code < 500 and code not in REFUSED


def _time(cell: Any, column: Column) -> tuple[float, bool]:
    """A time as a number in the column's unit (True), or as seconds since 1970 (False)."""
    if isinstance(cell, datetime):
        return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).timestamp(), False
    try:
        value = float(cell)
    except (TypeError, ValueError):
        return _clock(str(cell), column.name), False
    if not isfinite(value):
        raise _BadCellError(f"{column.name} {cell!r} is not a finite number")
    return value, True


def _clock(text: str, name: str) -> float:
    """ISO 8601 (UTC where it names no zone), or nginx's local time, to seconds since 1970."""
    local = _LOCAL.match(text)
    try:
        if local is None:
            at = datetime.fromisoformat(text)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        day, month, year, hour, minute, second, sign, zone_h, zone_m = local.groups()
        at = datetime(int(year), MONTHS[month], int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except (ValueError, KeyError):
        raise _BadCellError(f"{name} {text!r} is not a time (ISO 8601, or a number since 1970)") from None
    offset_s = 60.0 * (60 * int(zone_h) + int(zone_m))
    return at.timestamp() - (offset_s if sign == "+" else -offset_s)


# ---- the whole -------------------------------------------------------------------------------------------------------


def _built(
    path: Path, found: Format, chosen: Mapping[str, Column], cells: _Columns, *, skipped: int, time_is: TimeIs
) -> AccessLog:
    """The columns in order of arrival."""
    notes = []
    unit = chosen["time"].unit or _epoch_unit(cells.time) if cells.numeric else "s"
    times = np.asarray(cells.time) * SCALE[unit]
    latency_s = np.asarray(cells.latency_s)
    spread = _spread(times)
    if spread is not None:
        times = spread
        notes.append("times are whole seconds: requests are spread evenly within each, so bursts in it are not seen")
    if time_is == "end":
        times = times - np.nan_to_num(latency_s)
    order = np.argsort(times, kind="stable")
    if skipped:
        notes.append(f"{skipped} bad rows are left out")
    if "items" not in chosen:
        notes.append("no column of items: every request counts as 1")
    if "status" not in chosen:
        notes.append("no column of the status: every row counts as answered")
    service_s = np.asarray(cells.service_s)[order]
    backend: Ints = np.asarray(cells.backend, dtype=np.int64)[order]
    ok: Bools = np.asarray(cells.ok, dtype=np.bool_)[order]
    at_s: Floats = times[order]
    return AccessLog(
        source=path.name,
        format=found.name,
        epoch_s=float(at_s[0]),
        at_s=at_s - at_s[0],
        items=np.asarray(cells.items, dtype=np.int64)[order],
        latency_s=latency_s[order],
        ok=ok,
        backend=backend,
        backends=tuple(cells.backends),
        service_s=None if np.isnan(service_s).all() else service_s,
        model=np.asarray(cells.model, dtype=np.int64)[order],
        models=tuple(cells.models),
        time_is=time_is,
        coarse=spread is not None,
        columns={role: f"{c.name} ({c.unit})" if c.unit else c.name for role, c in chosen.items()},
        skipped=skipped,
        notes=tuple(notes),
    )


def _epoch_unit(times: list[float]) -> str:
    """The unit of numbers that should be times, by their size."""
    middle = abs(float(np.median(np.asarray(times))))
    return next(unit for bound, unit in _EPOCH_UNITS if middle < bound)


def _spread(times: Floats) -> Floats | None:
    """Times in whole seconds, several to a second, spread within it in the order of the log; None if they are finer."""
    if len(times) < 2 or (times != np.floor(times)).any():
        return None
    order = np.argsort(times, kind="stable")
    seconds, first, counts = np.unique(times[order], return_index=True, return_counts=True)
    if len(seconds) == len(times):
        return None
    place = np.arange(len(times)) - np.repeat(first, counts)
    spread = np.empty(len(times))
    spread[order] = times[order] + (place + 0.5) / np.repeat(counts, counts)
    return spread
