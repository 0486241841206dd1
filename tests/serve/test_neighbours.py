"""A request that the model refuses costs nobody else an answer, however they were batched."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import graphs
from tests.gateways import ask, in_thread
from turnout import policies, replay, store, telemetry
from turnout.core import events as ev
from turnout.core.profile import Profile, Provenance, Samples
from turnout.pools.source import digest

pytest.importorskip("onnxruntime")

CONFIG = """
[gateway]
port = 0
log = "log"
[[models]]
name = "table"
path = "table.onnx"
slo = { deadline_ms = 20000 }
[[pools]]
name = "cpu"
models = ["table"]
workers = "thread"
profile = { table = "profile.json" }
"""


def config(folder):
    """A table of seven rows, with a profile made by hand."""
    graphs.embedding(folder / "table.onnx")
    profile = Profile(
        model="table",
        model_digest=digest(str(folder / "table.onnx")),
        device="cpu",
        device_key="",
        variant="fp32",
        provenance=Provenance(kind="modelled", source="test", date="2026-12-01", hardware="none"),
        samples=tuple(Samples(items=n, service_s=(0.001,)) for n in (1, 32)),
    )
    store.save(profile, folder / "profile.json")
    (folder / "turnout.toml").write_text(CONFIG)
    return folder / "turnout.toml"


def body(row):
    """One item that looks up `row` three times."""
    ids = {"name": "ids", "shape": [1, 3], "datatype": "INT32", "data": [row] * 3}
    return json.dumps({"inputs": [ids]}).encode()


def test_only_the_request_at_fault_fails(tmp_path):
    """Of 16 clients at once every fourth asks beyond the table: it gets a 500, and all others their own row."""
    with in_thread(config(tmp_path)) as gateway, ThreadPoolExecutor(16) as clients:

        def one(number):
            row = 99 if number % 4 == 0 else number % 7
            status, _, answer = ask(gateway.port, "/v2/models/table/infer", body(row))
            return row, status, answer

        found = list(clients.map(one, range(240)))
        log = gateway.log_path
    for row, status, answer in found:
        assert status == (500 if row == 99 else 200), answer
        if status == 200:
            assert answer["outputs"][0]["data"] == [4.0 * row + column for column in range(4)]
    sizes = {r.batch: len(r.parts) for _, r in telemetry.read_log(log) if isinstance(r, ev.Dispatch)}
    failed = [sizes[r.batch] for _, r in telemetry.read_log(log) if isinstance(r, ev.Failed)]
    assert max(failed) > 1  # they did share batches, and the batches did fail
    assert replay.verify(log, policies.load).identical
