"""Which column is what: as the user says, else by name, and never with a unit that nobody said."""

from __future__ import annotations

import pytest

from turnout.errors import ConfigError
from turnout.traces.access.mapping import COMMON, Column, choose, parse_map, suffix


def test_a_map_names_columns_and_units():
    """Roles, columns, and units behind the last colon; a colon that is part of a name stays in it."""
    assert parse_map(["time=ts,latency=dur:ms", "items=bytes:1024", "backend=up:stream"]) == {
        "time": Column(name="ts"),
        "latency": Column(name="dur", unit="ms"),
        "items": Column(name="bytes", unit="1024"),
        "backend": Column(name="up:stream"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("latency", "ROLE=COLUMN"),
        ("latenzy=x", "did you mean latency"),
        ("colour=x", "the roles are time, latency"),
        ("latency=dur:min", "one of s, ms, us, ns"),
        ("items=bytes:kb", "a whole number to divide by"),
    ],
)
def test_a_wrong_map_is_refused(text, said):
    """The message says what was wrong and what may stand there."""
    with pytest.raises(ConfigError, match=said):
        parse_map([text])


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("latency_ms", "ms"), ("duration-us", "us"), ("x.ns", "ns"), ("took_seconds", "s"), ("LATENCY_MS", "ms"),
        ("status", ""), ("ms", ""), ("items", ""), ("queries", ""),
    ],
)  # fmt: skip
def test_units_in_names(name, unit):
    """A unit is what stands behind the last separator, not any word that ends so."""
    assert suffix(name) == unit


def test_columns_are_found_by_name():
    """Common names are found without a map, units cut off, and a mapped column wins over them."""
    columns = ("ts", "latency_ms", "duration", "batch_size", "status_code", "upstream")
    found = choose({}, {}, columns, "f")
    assert found["latency"] == Column(name="latency_ms", unit="ms")
    assert {role: c.name for role, c in found.items()} == {
        "time": "ts",
        "latency": "latency_ms",
        "items": "batch_size",
        "status": "status_code",
        "backend": "upstream",
    }
    assert choose({"latency": Column(name="duration", unit="us")}, {}, columns, "f")["latency"].name == "duration"


def test_a_duration_without_a_unit_is_refused():
    """A unit is never guessed: the flag that says it is in the message. nginx's own variables are in seconds."""
    with pytest.raises(ConfigError, match="--map latency=duration:ms"):
        choose({}, {}, ("ts", "duration"), "f")
    assert choose({}, {}, ("ts", "request_time"), "f")["latency"].unit == "s"


def test_what_is_missing_is_said_with_what_there_is():
    """A log whose columns do not map names them all, and the flag."""
    with pytest.raises(ConfigError) as raised:
        choose({}, {}, ("when", "how_long"), "my.csv")
    assert "--map time=COLUMN,latency=COLUMN:ms" in str(raised.value)
    assert "my.csv has the columns how_long, when" in str(raised.value)
    with pytest.raises(ConfigError, match=r"no such column \(did you mean how_long\?\)"):
        choose({"latency": Column(name="howlong", unit="s")}, {}, ("when", "how_long"), "my.csv")


def test_no_name_stands_for_two_roles():
    """A column is taken for one thing only."""
    names = [name for role in COMMON.values() for name in role]
    assert len(names) == len(set(names))
