"""Traces that others recorded, read from files: which format a file has is told by its content, not by its name.

    azure     Azure's LLM traces: CSV with TIMESTAMP, ContextTokens, GeneratedTokens
    mooncake  Mooncake's: JSON lines with timestamp (milliseconds), input_length, output_length
    counts    requests of each second: whole numbers, between white space
    turnout   a log of `turnout serve`; another reads it, see `of_arrivals`

Each may be packed with gzip or bzip2, also in a tar of one file. Rules: everything comes out as a `core.trace.Trace`
that begins at second 0; a row that is wrong, or earlier than the one above it, is refused with its file and line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Struct

from turnout.core import events as ev
from turnout.core.trace import Floats, Ints, Trace, make
from turnout.errors import ArtefactError, ConfigError
from turnout.traces.laws import ArrivalLaw, Counts, SizeLaw, parse_arrivals
from turnout.traces.packed import unpacked

Format = Literal["azure", "mooncake", "counts", "turnout"]

FORMATS = (
    "Azure's LLM traces (CSV with TIMESTAMP, ContextTokens, GeneratedTokens), Mooncake's (JSON lines with timestamp, "
    "input_length, output_length), requests per second (whole numbers), each also in .gz, .bz2 or a tar of one file, "
    "and the log of turnout serve"
)
"""For messages."""

MOST_REQUESTS = 20_000_000
"""That a trace may have: more does not fit in memory as columns, nor in anybody's patience."""

HEAD = 65_536
"""Bytes that a format is told by."""

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

Row = TypeVar("Row")

Items = Literal["in", "out"]
"""Which tokens are taken for a request's items: those it brings (context, input) or those that it asks for."""


def detect(path: Path) -> Format:
    """Which format the file has; a folder is a log of `turnout serve`.

    Raises:
        ArtefactError: it cannot be read, is empty, or has none of the formats.
    """
    if path.is_dir():
        return "turnout"
    return _told(path, unpacked(path, HEAD))


def _told(path: Path, content: bytes) -> Format:
    """The format of content, or of its beginning."""
    head = content[:HEAD].removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head:
        raise ArtefactError(f"{path} is empty: there is no trace in it")
    first = head.splitlines()[0]
    if first.startswith(b"{"):
        if b'"type":"configured"' in first:
            return "turnout"
        if b'"timestamp"' in first and b'"input_length"' in first:
            return "mooncake"
    elif all(name.encode() in first for name in AZURE):
        return "azure"
    elif first.split()[0].lstrip(b"-").isdigit() and b"," not in first:
        return "counts"
    raise ArtefactError(f"{path} is in no format that is known here: {FORMATS}")


def read(
    path: Path,
    *,
    items: Items = "in",
    sizes: SizeLaw | None = None,
    window_s: tuple[float, float] | None = None,
    seed: int = 0,
    model: str = "model",
) -> Trace:
    """The requests of one file, as requests of `model`.

    `sizes` draws the items, in place of the file's tokens, and is what counts per second need. `window_s` keeps what
    arrives in those seconds of the trace, the second not included, and begins anew at 0. `seed` places requests within
    their second, and draws sizes.

    Raises:
        ArtefactError: the file cannot be read, is empty, has no known format, or has a row that is wrong or out of
            order, which is named; or nothing arrives in the window.
        ConfigError: per-second counts without a size law, or more requests than can be simulated.
    """
    content = unpacked(path)
    told = _told(path, content)
    if told == "turnout":
        raise ConfigError(f"{path} is a log of turnout serve, whose arrivals its own reader has to hand in")
    where, how_large = np.random.default_rng(seed).spawn(2)
    drawn: Ints | None = None
    if told == "counts":
        if sizes is None:
            raise ConfigError(f"{path} says when requests came and not how large they were: give a size law")
        at_s = _spread(path, _counts(path, content), window_s, where)
    else:
        at_s, drawn = (_azure if told == "azure" else _mooncake)(path, content, items)
        if window_s is not None:
            at_s, drawn = _window(path, at_s, drawn, window_s)
    if sizes is not None:
        drawn = sizes.draw(len(at_s), how_large)
    assert drawn is not None
    return make(at_s, drawn, _source(path, told, items, sizes, window_s), model)


def of_arrivals(arrivals: Iterable[ev.Arrived], source: str) -> Trace:
    """The requests of a recorded run, each with its own deadline, from second 0 on.

    Raises:
        ArtefactError: nothing arrived, a request was due before it arrived, or one arrived before the one above it.
    """
    rows = [(a.at_s, a.items, a.model, a.deadline_s - a.at_s) for a in arrivals]
    if not rows:
        raise ArtefactError(f"{source} has no requests in it")
    at_s, items, model, deadline_s = zip(*rows, strict=True)
    names = tuple(dict.fromkeys(model))
    index = {name: i for i, name in enumerate(names)}
    times_s, due_s = np.array(at_s) - at_s[0], np.array(deadline_s)
    back = np.diff(times_s, prepend=0.0) < 0.0
    for what, wrong in (("arrived before the one above it", back), ("was due before it arrived", due_s <= 0.0)):
        if wrong.any():
            raise ArtefactError(f"{source}: request {int(np.argmax(wrong)) + 1} {what}")
    return Trace(
        at_s=times_s,
        items=np.array(items, dtype=np.int64),
        model=np.array([index[name] for name in model], dtype=np.int64),
        models=names,
        source=source,
        deadline_s=due_s,
    )


def arrival_law(text: str) -> ArrivalLaw:
    """A law from its text, as `laws.parse_arrivals`; and `counts:FILE`, whose rates are those of a file's seconds.

    Raises:
        ConfigError: there is no such law.
        ArtefactError: the file cannot be read, or is not one of counts per second.
    """
    name, _, file = text.partition(":")
    if name != "counts" or not file:
        return parse_arrivals(text)
    path = Path(file)
    content = unpacked(path)
    if _told(path, content) != "counts":
        raise ArtefactError(f"{path} does not have the requests of each second as whole numbers")
    return Counts(counts=tuple(_counts(path, content).tolist()), source=path.name)


def _source(path: Path, told: Format, items: Items, sizes: SizeLaw | None, window_s: tuple[float, float] | None) -> str:
    """The words by which a result names its traffic."""
    tokens = {"in": "context tokens", "out": "generated tokens"}[items]
    parts = [path.name, {"azure": "Azure", "mooncake": "Mooncake"}.get(told, "requests per second, spread evenly")]
    parts.append(f"sizes {sizes.text}" if sizes is not None else f"items are its {tokens}")
    if window_s is not None:
        parts.append(f"seconds {window_s[0]:g} to {window_s[1]:g}")
    return ", ".join(parts)


def _window(path: Path, at_s: Floats, items: Ints, window_s: tuple[float, float]) -> tuple[Floats, Ints]:
    """What arrives in these seconds."""
    kept = (at_s >= window_s[0]) & (at_s < window_s[1])
    if not kept.any():
        raise ArtefactError(f"{path}: nothing arrives in seconds {window_s[0]:g} to {window_s[1]:g}; "
                            f"it ends at second {at_s[-1]:g}")  # fmt: skip
    return at_s[kept] - at_s[kept][0], items[kept]


# ---- Azure -----------------------------------------------------------------------------------------------------------


def _azure(path: Path, content: bytes, items: Items) -> tuple[Floats, Ints]:
    """Seconds since the first request, and tokens."""
    lines = _lines(path, content)
    head = lines[0].split(",")
    when, tokens = head.index(AZURE[0]), head.index(AZURE[1 if items == "in" else 2])
    rows = [line.split(",") for line in lines[1:]]
    _each_row(path, rows, 2, lambda row: len(row) == len(head), f"does not have the {len(head)} values of the header")
    if not rows:
        raise ArtefactError(f"{path} has a header and no requests")
    stamps = [row[when].removesuffix("Z").removesuffix("+00:00") for row in rows]
    _each_row(path, rows, 2, lambda row: _is_count(row[tokens]), f"has no whole number of at least 1 as {head[tokens]}")
    try:
        times = np.array(stamps, dtype="datetime64[ns]")
    except ValueError:
        times = np.array([_stamp(path, number, text) for number, text in enumerate(stamps, 2)])
    at_s = (times - times[0]).astype(np.int64) / 1e9
    _ascending(path, at_s, 2)
    return at_s, np.array([int(row[tokens]) for row in rows], dtype=np.int64)


def _stamp(path: Path, line: int, text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "ns")
    except ValueError:
        raise ArtefactError(
            f"{path}, line {line}: {text!r} is not a time such as 2023-11-16 18:17:03.9799600"
        ) from None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 2**53


# ---- Mooncake --------------------------------------------------------------------------------------------------------


class _Row(Struct, frozen=True):
    """What is read of a line; the hashes of prefix blocks are left."""

    timestamp: float
    input_length: int
    output_length: int


def _mooncake(path: Path, content: bytes, items: Items) -> tuple[Floats, Ints]:
    """Seconds since the first request, and tokens."""
    decoder = msgspec.json.Decoder(_Row)
    rows = []
    for number, line in enumerate(_lines(path, content), 1):
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ArtefactError(f"{path}, line {number}: {error}") from None
        rows.append(row)
    tokens = [row.input_length if items == "in" else row.output_length for row in rows]
    _each_row(path, tokens, 1, lambda n: n >= 1, f"has no tokens as {'input' if items == 'in' else 'output'}_length")
    at_ms = np.array([row.timestamp for row in rows])
    at_s = (at_ms - at_ms[0]) / 1e3
    _ascending(path, at_s, 1)
    return at_s, np.array(tokens, dtype=np.int64)


# ---- counts per second -----------------------------------------------------------------------------------------------


def _counts(path: Path, content: bytes) -> Ints:
    """Requests of each second."""
    tokens = content.split()
    try:
        counts = np.array(tokens).astype(np.int64)
    except (ValueError, OverflowError):
        counts = None
    if counts is None or (counts < 0).any() or not counts.any():
        _complain_of_counts(path, content)
        raise ArtefactError(f"{path} has nothing but zeros: no request in it")
    return counts


def _complain_of_counts(path: Path, content: bytes) -> None:
    """Name the first token that is no count, if there is one."""
    second = 0
    for number, line in enumerate(content.splitlines(), 1):
        for token in line.split():
            if not token.isdigit() or len(token) > 15:
                said = f"{token.decode(errors='replace')!r} as the count of second {second}"
                raise ArtefactError(f"{path}, line {number}: {said}, which is no whole number of at least 0")
            second += 1


def _spread(path: Path, counts: Ints, window_s: tuple[float, float] | None, rng: np.random.Generator) -> Floats:
    """Arrival times (n,), evenly spread at random within each second of the window."""
    first, last = (0, len(counts)) if window_s is None else (int(window_s[0]), int(window_s[1]))
    chosen = counts[first:last]
    total = int(chosen.sum())
    if total == 0:
        raise ArtefactError(f"{path}: nothing arrives in seconds {first} to {last}; it ends at second {len(counts)}")
    if total > MOST_REQUESTS:
        raise ConfigError(
            f"{path} has {total} requests in seconds 0 to {len(chosen)}, and at most {MOST_REQUESTS} can be simulated: "
            "give a window of its seconds"
        )
    return np.sort(np.repeat(np.arange(len(chosen), dtype=np.float64), chosen) + rng.random(total))


# ---- rows ------------------------------------------------------------------------------------------------------------


def _lines(path: Path, content: bytes) -> list[str]:
    """The lines without what ends them; blank ones at the end are none."""
    try:
        return content.decode("utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ArtefactError(f"{path}, line {line} is not text in UTF-8") from None


def _each_row(path: Path, rows: Sequence[Row], first: int, holds: Callable[[Row], bool], said: str) -> None:
    """Refuse the first row that something does not hold of; `first` is the line of the first."""
    for number, row in enumerate(rows, first):
        if not holds(row):
            raise ArtefactError(f"{path}, line {number} {said}")


def _ascending(path: Path, at_s: Floats, first: int) -> None:
    """Refuse a time before the one above it; `first` is the line of the first."""
    gaps = np.diff(at_s)
    back = np.flatnonzero(~(gaps >= 0.0))
    if len(back):
        row = int(back[0])
        raise ArtefactError(
            f"{path}, line {first + row + 1}: arrives {-gaps[row]:g} s before the line above it, a negative gap; "
            "sort the trace by time"
        )
