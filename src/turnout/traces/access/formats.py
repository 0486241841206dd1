"""A file to rows, each with its line, by the format that its content shows. No column has a meaning here yet.

A row that cannot be read is yielded as words that say why, so that the reader decides what becomes of it. Everything
but Parquet may be compressed with gzip. OTLP: the JSON encoding of traces (one document, or one per line as the file
exporter of the OpenTelemetry specification writes it); 64-bit numbers in it are texts.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import msgspec

from turnout.errors import ArtefactError, ExtraMissingError
from turnout.traces.access import lines
from turnout.traces.access.mapping import Known

Row = tuple[int, Mapping[str, Any] | str]
"""The line (or the row, from 1, where there are no lines), and its fields; or why there are none."""

HEAD_LINES = 20
"""Lines that are looked at to tell the format."""

FORMATS = "JSON lines, CSV with a header, Parquet, nginx combined, Envoy's default format, OTLP JSON traces"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: its name, what its own columns are, and whether its times are those of a request's end."""

    name: str
    known: Known
    at_end: bool | None
    rows: Callable[[Path], Iterator[Row]]


def detect(path: Path) -> Format:
    """The format that the content of `path` shows.

    Raises:
        ArtefactError: the file is missing or empty, or of no format that is known here.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
        if magic == b"PAR1":
            return PARQUET
        with _open(path) as text:
            head = [line for line in islice(text, HEAD_LINES) if line.strip()]
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ArtefactError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if not head:
        raise ArtefactError(f"{path} is empty: there is no request in it")
    first = head[0].lstrip("\ufeff \t")
    if first.startswith("{"):
        return OTLP if any("resourceSpans" in line for line in head) else JSON_LINES
    if re.match(r"\[\s*(\{|$)", first):
        return JSON_ARRAY
    for shape, found in ((lines.is_envoy, ENVOY), (lines.is_combined, NGINX)):
        if any(map(shape, head)):
            return found
    if _delimiter(first):
        return CSV
    raise ArtefactError(f"{path} is of no known format; the first line is {first.strip()[:80]!r}. There are: {FORMATS}")


def _open(path: Path) -> TextIO:
    """The file as text, unpacked if it is compressed."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, with their numbers.

    Raises:
        ArtefactError: the file stops being text, or its compression is cut off.
    """
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.strip("\ufeff\r\n")
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise ArtefactError(f"{path}, after line {number}: {error}") from error


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _json_lines(path: Path) -> Iterator[Row]:
    decoder = msgspec.json.Decoder()
    for number, line in _numbered(path):
        try:
            value = decoder.decode(line)
        except msgspec.DecodeError as error:
            yield number, f"not JSON: {error}"
            continue
        yield number, _flat(value) if isinstance(value, dict) else "not a JSON object"


def _json_array(path: Path) -> Iterator[Row]:
    for number, value in enumerate(_document(path), 1):
        yield number, _flat(value) if isinstance(value, dict) else "not a JSON object"


def _document(path: Path) -> Any:
    """The whole file as one JSON value.

    Raises:
        ArtefactError: it is none.
    """
    with _open(path) as file:
        content = file.read()
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise ArtefactError(f"{path} is damaged or cut short: {error}") from error


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as dotted names."""
    if not prefix and not any(isinstance(inner, dict) for inner in value.values()):
        return value
    fields: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            fields.update(_flat(inner, f"{prefix}{name}."))
        else:
            fields[f"{prefix}{name}"] = inner
    return fields


# ---- OTLP ------------------------------------------------------------------------------------------------------------

_SERVER = {2, "SPAN_KIND_SERVER"}
_ERROR = {2, "STATUS_CODE_ERROR"}


def _otlp(path: Path) -> Iterator[Row]:
    """Spans of servers; where there is none, spans without a parent."""
    spans = list(_spans(path))
    served = [row for row in spans if isinstance(row[1], str) or row[1]["kind"] in _SERVER]
    if not any(isinstance(row[1], dict) for row in served):
        served = [row for row in spans if isinstance(row[1], str) or not row[1]["parentSpanId"]]
    yield from served


def _spans(path: Path) -> Iterator[Row]:
    number = 0
    for line, document in _otlp_documents(path):
        if isinstance(document, str):
            yield line, document
            continue
        for resource in document.get("resourceSpans") or ():
            common = _attributes(resource.get("resource") or {})
            for scope in resource.get("scopeSpans") or ():
                for span in scope.get("spans") or ():
                    number += 1
                    yield line or number, _span(span, common)


def _otlp_documents(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """One document per line with its line; or, with line 0, the only one."""
    numbered = _numbered(path)
    line, text = next(numbered)
    decoder = msgspec.json.Decoder(dict[str, Any])
    try:
        decoder.decode(text)
    except msgspec.DecodeError:
        yield 0, _document(path)
        return
    for line, text in chain([(line, text)], numbered):  # noqa: B020
        try:
            yield line, decoder.decode(text)
        except msgspec.DecodeError as error:
            yield line, f"not JSON: {error}"


def _span(span: dict[str, Any], common: Mapping[str, Any]) -> dict[str, Any] | str:
    """A span's times, status and attributes as one row; the span's attributes win over its resource's."""
    try:
        start_ns, end_ns = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    except (KeyError, TypeError, ValueError):
        return "a span without startTimeUnixNano and endTimeUnixNano"
    fields = {**common, **_attributes(span)}
    failed = (span.get("status") or {}).get("code") in _ERROR
    code = fields.get("http.response.status_code", fields.get("http.status_code"))
    return {
        **fields,
        "name": span.get("name", ""),
        "kind": span.get("kind", 0),
        "parentSpanId": span.get("parentSpanId") or "",
        "startTimeUnixNano": start_ns,
        "duration_ns": end_ns - start_ns,
        "span.status": 500 if failed and code is None else 200 if code is None else code,
    }


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as plain values; 64-bit whole numbers come as texts."""
    fields = {}
    for entry in holder.get("attributes") or ():
        for kind, value in (entry.get("value") or {}).items():
            fields[str(entry.get("key"))] = int(value) if kind == "intValue" else value
    return fields


# ---- tables and text -------------------------------------------------------------------------------------------------


def _delimiter(line: str) -> str:
    """What separates the columns of a header, "" if it is none."""
    counts = {mark: line.count(mark) for mark in ",;\t|"}
    best = max(counts, key=lambda mark: counts[mark])
    return best if counts[best] else ""


def _csv(path: Path) -> Iterator[Row]:
    with _open(path) as file:
        header = file.readline().strip("\ufeff\r\n")
        delimiter = _delimiter(header)
        names = next(csv.reader([header], delimiter=delimiter))
        reader = csv.reader(file, delimiter=delimiter)
        try:
            for cells in reader:
                if not cells:
                    continue
                number = reader.line_num + 1  # the header was read before
                if len(cells) != len(names):
                    yield number, f"{len(cells)} cells for {len(names)} columns"
                else:
                    yield number, dict(zip(names, cells, strict=True))
        except csv.Error as error:
            raise ArtefactError(f"{path}, line {reader.line_num + 1}: {error}") from error


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ExtraMissingError("pyarrow", "parquet", "reading Parquet") from error
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                columns = [_plain(column, pa) for column in batch.columns]
                for cells in zip(*columns, strict=True):
                    number += 1
                    yield number, dict(zip(batch.schema.names, cells, strict=True))
    except (pa.ArrowException, OSError) as error:
        raise ArtefactError(f"{path} is no Parquet file that can be read: {error}") from error


def _plain(column: Any, pa: Any) -> list[Any]:
    """A column's values; times to the microsecond, which Python's own type can hold."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values


def _text(parse: Callable[[str], dict[str, str] | None], what: str) -> Callable[[Path], Iterator[Row]]:
    """Rows of a text log, one per line."""

    def rows(path: Path) -> Iterator[Row]:
        for number, line in _numbered(path):
            yield number, parse(line) or f"not a line of {what}"

    return rows


JSON_LINES = Format(name="JSON lines", known={}, at_end=None, rows=_json_lines)
JSON_ARRAY = Format(name="JSON array", known={}, at_end=None, rows=_json_array)
CSV = Format(name="CSV", known={}, at_end=None, rows=_csv)
PARQUET = Format(name="Parquet", known={}, at_end=None, rows=_parquet)
OTLP = Format(
    name="OTLP JSON traces",
    known={
        "time": ("startTimeUnixNano", "ns"),
        "latency": ("duration_ns", "ns"),
        "status": ("span.status", ""),
        "backend": ("service.instance.id", ""),
    },
    at_end=False,
    rows=_otlp,
)
NGINX = Format(
    name="nginx combined",
    known={
        "time": ("time_local", ""),
        "latency": ("request_time", "s"),
        "status": ("status", ""),
        "backend": ("upstream_addr", ""),
    },
    at_end=True,
    rows=_text(lines.combined, "nginx's combined format"),
)
ENVOY = Format(
    name="Envoy's default format",
    known={
        "time": ("start_time", ""),
        "latency": ("duration", "ms"),
        "status": ("response_code", ""),
        "backend": ("upstream_host", ""),
    },
    at_end=False,
    rows=_text(lines.envoy, "Envoy's default format"),
)


def names(rows: Iterable[Row]) -> tuple[str, ...]:
    """All columns of some rows, in order of appearance."""
    return tuple(dict.fromkeys(name for _, row in rows if not isinstance(row, str) for name in row))
