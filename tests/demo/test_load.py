"""The demo's client speaks the protocol that the gateway reads, and reads what the gateway writes."""

from __future__ import annotations

import numpy as np
import pytest

from turnout.demo import load
from turnout.pools.base import TensorSpec

protocol = pytest.importorskip("turnout.serve.protocol")

INPUTS = (TensorSpec(name="bytes", datatype="INT32", shape=(-1, 4)),)
OUTPUTS = (TensorSpec(name="target_label", datatype="FP32", shape=(-1, 3)),)
PLAN = load.Plan(
    port=0,
    model="magika",
    inputs="",
    input_name="bytes",
    output_name="target_label",
    deadline_s=0.25,
    at_s=(0.0,),
    row=(0,),
    items=(2,),
)


def test_a_request_is_read_back_by_the_gateway():
    """Rows, id and deadline arrive as they were meant."""
    rows = np.arange(8, dtype=np.int32).reshape(2, 4)
    head, _, body = load.encode(PLAN, 7, rows).partition(b"\r\n\r\n")
    headers = dict(line.split(b": ") for line in head.split(b"\r\n")[1:])
    assert int(headers[b"content-length"]) == len(body)
    call = protocol.decode(body, int(headers[b"inference-header-content-length"]), INPUTS, OUTPUTS)
    assert np.array_equal(call.tensors["bytes"], rows)
    assert (call.id, call.timeout_s, call.items) == ("demo-7", 0.25, 2)


def test_an_answer_is_read_back_by_the_client():
    """The most likely class of each row, from a binary answer."""
    rows = np.arange(8, dtype=np.int32).reshape(2, 4)
    body = load.encode(PLAN, 7, rows).partition(b"\r\n\r\n")[2]
    call = protocol.decode(body, len(body) - rows.nbytes, INPUTS, OUTPUTS)
    scores = {"target_label": np.array([[0.1, 0.8, 0.1], [0.0, 0.1, 0.9]], np.float32)}
    encoded, json_bytes = protocol.encode("magika", call.id, call.wanted, scores, OUTPUTS)
    found = load.classes({"inference-header-content-length": str(json_bytes)}, encoded, "target_label")
    assert found.tolist() == [1, 2]
