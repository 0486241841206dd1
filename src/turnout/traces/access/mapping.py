"""Which column of a log is what, and in which unit: from the user's `--map`, else from names that are common.

A unit is never guessed for a duration: it stands in the name (`duration_ms`), in the map (`dur:ms`), or the format
defines it. Times are told by their form: ISO 8601, nginx's local time, or seconds, ms, µs or ns since 1970 by size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from turnout.errors import ConfigError

ROLES = ("time", "latency", "items", "status", "backend", "service", "model")
NEEDED = ("time", "latency")

SCALE = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds per unit."""

SUFFIX = re.compile(r"^(.+?)[_.-]?(?<=[_.-])(s|sec|seconds|ms|millis|us|micros|ns|nanos)$", re.IGNORECASE)
LONG = {"sec": "s", "seconds": "s", "millis": "ms", "micros": "us", "nanos": "ns"}

COMMON: dict[str, tuple[str, ...]] = {
    "time": (
        "time", "ts", "timestamp", "@timestamp", "start_time", "started_at", "start", "arrival", "arrived_at", "at",
        "datetime", "date_time", "msec", "time_iso8601", "time_local", "end_time", "finished_at", "starttimeunixnano",
    ),
    "latency": (
        "latency", "duration", "request_time", "response_time", "elapsed", "total_time", "took", "rt", "duration_total",
    ),
    "items": ("items", "batch", "batch_size", "num_items", "n_items", "rows", "candidates", "batch.size"),
    "status": (
        "status", "status_code", "code", "http_status", "response_code", "http.response.status_code",
        "http.status_code",
    ),
    "backend": (
        "backend", "upstream", "upstream_addr", "upstream_host", "pool", "instance", "replica", "server",
        "service.instance.id", "k8s.pod.name", "host.name",
    ),
    "service": ("service", "service_time", "compute", "compute_time", "infer", "inference_time"),
    "model": ("model", "model_name", "gen_ai.request.model"),
}  # fmt: skip
"""Names that are taken for a role where no flag says otherwise, in order of preference; units are cut off first."""

SECONDS = frozenset({"request_time", "upstream_response_time", "rt", "urt", "msec"})
"""nginx's variables, which are in seconds by its documentation, also where a JSON log carries them."""

AT_END = frozenset({"msec", "time_iso8601", "time_local", "end_time", "finished_at"})
"""Times that are taken when the request is over: nginx's variables are those of the moment at which it logs."""

Known = Mapping[str, tuple[str, str]]
"""A format's own columns: role -> (column, unit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column to read. `unit` is a key of `SCALE`, a divisor of `items` such as "1024", or "" (see the module)."""

    name: str
    unit: str = ""


def parse_map(texts: Iterable[str]) -> dict[str, Column]:
    """`time=ts,latency=dur:ms,items=bytes:1024` to columns by role; later texts win.

    Raises:
        ConfigError: not of that form, an unknown role, or a unit that the role does not have.
    """
    found: dict[str, Column] = {}
    for entry in (part.strip() for text in texts for part in text.split(",")):
        role, _, column = entry.partition("=")
        if not column or role not in ROLES:
            near = get_close_matches(role, ROLES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the roles are {', '.join(ROLES)}"
            raise ConfigError(f"--map {entry!r} is not ROLE=COLUMN, such as latency=duration_ms; {hint}")
        name, unit = _cut_unit(role, column)
        found[role] = Column(name=name, unit=unit)
    return found


def _cut_unit(role: str, column: str) -> tuple[str, str]:
    """The column's name and what stands behind its last colon, if that is a unit of this role."""
    name, colon, unit = column.rpartition(":")
    if not colon:
        return column, ""
    if role in {"time", "latency", "service"} and unit in SCALE:
        return name, unit
    if role == "items" and re.fullmatch("[1-9][0-9]{0,11}", unit):
        return name, unit
    if role in {"time", "latency", "service", "items"} and re.fullmatch(r"\w{0,3}", unit):
        allowed = "a whole number to divide by" if role == "items" else f"one of {', '.join(SCALE)}"
        raise ConfigError(f"--map {role}={column}: {unit!r} is no unit; it is {allowed}")
    return column, ""


def choose(mapped: Mapping[str, Column], known: Known, columns: Sequence[str], where: str) -> dict[str, Column]:
    """The column of each role: as mapped, else as the format has it, else by a common name.

    Raises:
        ConfigError: a mapped column is not there, a needed role has none, or a duration is of no known unit; the
            message lists the columns there are, and the flag that maps one.
    """
    there = f"{where} has the columns {', '.join(sorted(columns))}"
    chosen: dict[str, Column] = {}
    for role in ROLES:
        if role in mapped:
            if mapped[role].name not in columns:
                near = get_close_matches(mapped[role].name, columns, n=1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise ConfigError(f"--map {role}={mapped[role].name}: there is no such column{hint}; {there}")
            chosen[role] = _with_unit(role, mapped[role], there)
        elif role in known and known[role][0] in columns:
            chosen[role] = Column(name=known[role][0], unit=known[role][1])
        else:
            name = _by_name(role, columns)
            if name is not None:
                chosen[role] = _with_unit(role, Column(name=name), there)
    missing = [role for role in NEEDED if role not in chosen]
    if missing:
        example = ",".join(f"{role}={'COLUMN:ms' if role == 'latency' else 'COLUMN'}" for role in missing)
        raise ConfigError(f"no column is known as {' or '.join(missing)}: say which with --map {example}; {there}")
    return chosen


def _by_name(role: str, columns: Sequence[str]) -> str | None:
    """The column with the most preferred of the common names; a name with a unit comes before one without."""
    bare: dict[str, str] = {}
    for column in sorted(columns, key=lambda c: suffix(c) == "", reverse=True):
        timed = role in {"time", "latency", "service"}
        bare[(SUFFIX.sub(r"\1", column) if timed else column).lower().rstrip("_.-")] = column
    return next((bare[name] for name in COMMON[role] if name in bare), None)


def _with_unit(role: str, column: Column, there: str) -> Column:
    """The column with the unit that its name says, which a duration must have."""
    if column.unit or role not in {"time", "latency", "service"}:
        return column
    unit = suffix(column.name) or ("s" if column.name.lower() in SECONDS else "")
    if not unit and role != "time":
        raise ConfigError(
            f"the column {column.name} is taken for the {role}, and its unit is not known: "
            f"say it with --map {role}={column.name}:ms (or :s, :us, :ns); {there}"
        )
    return Column(name=column.name, unit=unit)


def suffix(name: str) -> str:
    """The unit in which a column's name ends, "" if there is none."""
    found = SUFFIX.match(name)
    if found is None:
        return ""
    unit = found[2].lower()
    return LONG.get(unit, unit)
