"""The same requests come out of every format; what cannot be read is refused by its line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ArtefactError, ConfigError
from turnout.traces.access import parse_map, read

START = datetime(2026, 3, 2, 23, 59, 59, 500_000, tzinfo=UTC)

REQUESTS = [  # arrival ms, items, latency ms, status, backend; in order of arrival
    (0, 3, 40, 200, "gpu-0"),
    (5, 1, 900, 200, "cpu-0"),
    (7, 200, 12, 503, ""),
    (7, 8, 250, 204, "cpu-1"),
    (1300, 64, 70, 404, "gpu-0"),
    (90_000, 2, 1, 499, "cpu-0"),
]


def at(ms):
    """The time so many milliseconds after the start."""
    return START + timedelta(milliseconds=ms)


def ended(requests):
    """As a server writes them: in the order in which they ended."""
    return sorted(requests, key=lambda r: r[0] + r[2])


def json_lines(requests):
    """One object per line, one of them nested, with times of arrival."""
    return "".join(
        json.dumps({"ts": at(t).isoformat(), "latency_ms": d, "http": {"status": s}, "batch": n, "backend": b}) + "\n"
        for t, n, d, s, b in ended(requests)
    )


def json_array(requests):
    """One document; times are seconds since 1970."""
    return json.dumps(
        [
            {"ts": at(t).timestamp(), "latency_s": d / 1e3, "http.status": s, "batch": n, "backend": b or None}
            for t, n, d, s, b in ended(requests)
        ],
        indent=1,
    )


def csv_of_ends(requests):
    """Semicolons, and times of the end in ms since 1970."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=";")
    writer.writerow(["end_time", "latency_us", "http.status", "batch", "backend"])
    for t, n, d, s, b in ended(requests):
        writer.writerow([round(at(t + d).timestamp() * 1e3), 1000 * d, s, n, b])
    return out.getvalue()


def envoy(requests):
    """Envoy's default format, with the items as bytes."""
    return "".join(
        f'[{at(t).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]}Z] "POST /rank HTTP/2" {s} - {n} 0 {d} - "-" "a" "id" "h" '
        f'"{b or "-"}"\n'
        for t, n, d, s, b in ended(requests)
    )


def otlp(requests):
    """A document per span of a server, with a span of a client in each."""
    documents = []
    for t, n, d, s, b in ended(requests):
        start_ns = round(at(t).timestamp() * 1e3) * 1_000_000
        attributes = [
            {"key": "batch", "value": {"intValue": str(n)}},
            {"key": "http.response.status_code", "value": {"intValue": str(s)}},
        ]
        span = {"kind": 2, "startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(start_ns + d * 1_000_000)}
        child = {"kind": 3, "parentSpanId": "ab", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
        resource = {"attributes": [{"key": "service.instance.id", "value": {"stringValue": b}}]} if b else {}
        spans = [{**span, "attributes": attributes}, child]
        documents.append({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]})
    return "".join(json.dumps(d) + "\n" for d in documents)


WAYS = {
    "JSON lines": (json_lines, "status=http.status"),
    "JSON array": (json_array, "status=http.status"),
    "CSV": (csv_of_ends, "status=http.status"),
    "Envoy's default format": (envoy, "items=bytes_received"),
    "OTLP JSON traces": (otlp, ""),
}


def same(log, requests):
    """Whether a log is these requests."""
    rows = sorted(
        zip(
            np.round(1e3 * (log.at_s - log.at_s[0])).astype(int).tolist(),
            log.items.tolist(),
            np.round(1e3 * log.latency_s).astype(int).tolist(),
            log.ok.tolist(),
            [log.backends[b] if b >= 0 else "" for b in log.backend],
            strict=True,
        )
    )
    first = min(t for t, *_ in requests)
    return rows == sorted((t - first, n, d, s < 500 and s != 499, b) for t, n, d, s, b in requests)


@pytest.mark.parametrize("name", WAYS)
def test_the_same_requests_come_out_of_every_format(tmp_path, name):
    """Told by the content alone, also when it is compressed; in order of arrival though written in order of ends."""
    write, mapped = WAYS[name]
    for suffix, pack in ((".log", bytes), (".log.gz", gzip.compress)):
        path = tmp_path / f"access{suffix}"
        path.write_bytes(pack(write(REQUESTS).encode()))
        log = read(path, parse_map([mapped]) if mapped else {})
        assert log.format == name
        assert same(log, REQUESTS)
        assert (np.diff(log.at_s) >= 0.0).all()


def test_parquet(tmp_path):
    """Timestamps with nanoseconds and all, and whole numbers."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = ended(REQUESTS)
    times = pa.array([round(at(t).timestamp() * 1e3) * 1_000_000 + 7 for t, *_ in rows], pa.timestamp("ns", tz="UTC"))
    table = pa.table(
        {
            "timestamp": times,
            "latency_ms": [d for _, _, d, _, _ in rows],
            "status": [s for _, _, _, s, _ in rows],
            "items": [n for _, n, _, _, _ in rows],
            "backend": [b or None for *_, b in rows],
        }
    )
    parquet.write_table(table, tmp_path / "a.bin")
    log = read(tmp_path / "a.bin")
    assert log.format == "Parquet"
    assert same(log, REQUESTS)
    (tmp_path / "b.bin").write_bytes((tmp_path / "a.bin").read_bytes()[:200])
    with pytest.raises(ArtefactError, match="no Parquet file"):
        read(tmp_path / "b.bin")


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.integers(1, 5000),
            st.integers(0, 20_000),
            st.sampled_from([200, 404, 429, 500]),
            st.sampled_from(["", "a", "b-1"]),
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(sorted(WAYS)),
    st.randoms(use_true_random=False),
)
def test_any_requests_in_any_order_are_read(tmp_path_factory, requests, name, rng):
    """Whatever the order of the lines, what comes out are the requests, by arrival. 429 is a refusal."""
    write, mapped = WAYS[name]
    lines = write(requests).splitlines(keepends=True)
    if name in {"JSON lines", "Envoy's default format", "OTLP JSON traces"}:
        rng.shuffle(lines)
    path = tmp_path_factory.mktemp("log") / "a.log"
    path.write_text("".join(lines))
    log = read(path, parse_map([mapped]) if mapped else {})
    assert same(log, [(t, n, d, 500 if s == 429 else s, b) for t, n, d, s, b in requests])


def test_nginx_times_are_ends_in_whole_seconds(tmp_path):
    """Ends are spread evenly within their second, then the latency is taken off; the log says that it did so."""
    path = tmp_path / "access.log"
    line = '1.1.1.1 - - [10/Oct/2026:13:55:3{} +0200] "GET / HTTP/1.1" 200 1 "-" "-" {} {} 10.0.0.1:80\n'
    path.write_text(line.format(6, 0.1, 0.1) + line.format(6, 0.2, 0.2) + line.format(7, 0.5, 0.5))
    log = read(path)
    assert (log.format, log.time_is) == ("nginx combined", "end")
    assert np.allclose(log.at_s, np.array([0.15, 0.55, 1.0]) - 0.15, atol=1e-6)
    assert "whole seconds" in log.notes[0]
    assert datetime.fromtimestamp(log.epoch_s, UTC).isoformat().startswith("2026-10-10T11:55:36.15")
    assert np.allclose(read(path, time_is="start").at_s, [0.0, 0.5, 1.25], atol=1e-6)


@pytest.mark.parametrize(("scale", "name"), [(1, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")])
def test_numbers_since_1970_are_told_by_their_size(tmp_path, scale, name):
    """Seconds, milliseconds, microseconds and nanoseconds, with the unit or without it."""
    path = tmp_path / "a.csv"
    path.write_text("ts,latency_s\n" + "".join(f"{round((1_770_000_000 + t) * scale)},0.5\n" for t in (0.0, 1.0, 3.0)))
    assert np.allclose(read(path).at_s, [0.0, 1.0, 3.0], atol=1e-6)
    assert np.allclose(read(path, parse_map([f"time=ts:{name}"])).at_s, [0.0, 1.0, 3.0], atol=1e-6)


def test_bytes_and_tokens_are_divided_and_rounded_up(tmp_path):
    """A column of bytes is items at so many to one, and never none."""
    path = tmp_path / "a.csv"
    path.write_text("ts,latency_s,bytes\n1,0.5,0\n2,0.5,1024\n3,0.5,1025\n")
    assert read(path, parse_map(["items=bytes:1024"])).items.tolist() == [1, 1, 2]


BAD = {
    "no number": ("2,soon,1,200", "line 3: latency_s 'soon' is not a number"),
    "negative": ("2,-1,1,200", "line 3: latency_s '-1' is negative"),
    "no items": ("2,1,0,200", "line 3: items '0' is not a whole number of at least 1"),
    "half an item": ("2,1,1.5,200", "line 3: items '1.5' is not a whole number"),
    "no latency": ("2,,1,200", "line 3: latency_s is empty"),
    "no time": (",1,1,200", "line 3: ts '' is not a time"),
    "infinite": ("inf,1,1,200", "line 3: ts 'inf' is not a finite number"),
    "another form": ("2026-01-01T00:00:00Z,1,1,200", "line 3: ts '2026-01-01T00:00:00Z' is of another form"),
    "too few cells": ("2,1", "line 3: 2 cells for 4 columns"),
    "no status": ("2,1,1,fine", "line 3: status 'fine' is not a number"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_row_is_refused_by_its_line(tmp_path, what):
    """A row that cannot be read is named with file and line; with `skip_bad` it is left out and counted."""
    row, said = BAD[what]
    path = tmp_path / "a.csv"
    path.write_text(f"ts,latency_s,items,status\n1,0.5,1,200\n{row}\n4,0.5,1,500\n")
    with pytest.raises(ArtefactError) as raised:
        read(path)
    assert f"{path}, {said}" in str(raised.value)
    assert "--skip-bad" in str(raised.value)
    log = read(path, skip_bad=True)
    assert (len(log), log.skipped) == (2, 1)
    assert "1 bad rows are left out" in log.notes


def test_a_failed_request_needs_no_latency(tmp_path):
    """What was refused may have none, and arrived when its time says."""
    path = tmp_path / "a.csv"
    path.write_text("ts,latency_s,status\n1,0.5,200\n2,,503\n3,-,429\n")
    log = read(path)
    assert log.ok.tolist() == [True, False, False]
    assert np.isnan(log.latency_s).tolist() == [False, True, True]


def test_too_many_bad_rows_are_no_log(tmp_path):
    """Leaving out more than half is refused: then the format or the map is wrong."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"ts": 1, "latency_s": 1}\n' + "{broken\n" * 3)
    with pytest.raises(ArtefactError, match=r"3 of 4 rows cannot be read as JSON lines, which is too many"):
        read(path, skip_bad=True)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    """With a message of its own."""
    (tmp_path / "a").write_text(content)
    with pytest.raises(ArtefactError, match="is empty"):
        read(tmp_path / "a")


def test_an_unknown_format_is_refused(tmp_path):
    """The message shows the first line and names the formats there are; so do files that are missing or cut off."""
    (tmp_path / "a").write_text("once upon a time\n")
    with pytest.raises(ArtefactError, match=r"'once upon a time'\. There are: JSON lines, CSV"):
        read(tmp_path / "a")
    with pytest.raises(ArtefactError, match=r"cannot read .*: No such file"):
        read(tmp_path / "b")
    noise = "".join(random.Random(0).choices("0123456789", k=100_000))  # does not compress away
    (tmp_path / "c").write_bytes(gzip.compress(f'{{"ts": "{noise}"}}\n'.encode())[:-2000])
    with pytest.raises(ArtefactError):
        read(tmp_path / "c")


def test_a_log_without_times_says_which_flag_names_them(tmp_path):
    """The plain combined format of nginx has no latency."""
    (tmp_path / "a").write_text('1.1.1.1 - - [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 1 "-" "-"\n')
    with pytest.raises(ConfigError, match="no column is known as latency: say which with --map latency=COLUMN:ms"):
        read(tmp_path / "a")


def test_otlp_without_server_spans(tmp_path):
    """Then the spans without a parent are the requests; a span's error is a miss."""
    span = {"startTimeUnixNano": "1000000000", "endTimeUnixNano": "1500000000"}
    spans = [{**span, "status": {"code": "STATUS_CODE_ERROR"}}, {**span, "parentSpanId": "ab"}, {**span, "kind": 1}]
    (tmp_path / "a").write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}, indent=2))
    log = read(tmp_path / "a")
    assert log.ok.tolist() == [False, True]
    assert log.latency_s.tolist() == [0.5, 0.5]
