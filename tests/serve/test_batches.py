"""Joining and cutting: whatever the parts and their shapes, every request gets its own rows back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.core.events import Part, Piece
from turnout.errors import ModelError
from turnout.pools.base import TensorSpec
from turnout.serve.batches import assemble, gather

X = TensorSpec(name="x", datatype="FP32", shape=(-1, -1))
STATE = TensorSpec(name="s", datatype="FP32", shape=(2, -1, 3), batch_axis=1)
RATE = TensorSpec(name="r", datatype="INT64", shape=(), batch_axis=None)


def request(rid, items, width=4, rate=1):
    """Tensors that tell whose they are."""
    return {
        "x": np.full((items, width), rid, np.float32) + np.arange(items)[:, None] / 100,
        "s": np.full((2, items, 3), rid, np.float32) + np.arange(items)[None, :, None] / 100,
        "r": np.array(rate),
    }


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2), st.integers(1, 2)), min_size=1, max_size=6), st.data())
def test_every_request_gets_its_own_rows_back(shapes, data):
    """Requests of several widths and rates, each cut into parts over two batches."""
    requests = {rid: request(rid, *shape) for rid, shape in enumerate(shapes)}
    cuts = {rid: data.draw(st.integers(0, shape[0])) for rid, shape in enumerate(shapes)}
    first = [Part(rid, 0, cut) for rid, cut in cuts.items() if cut]
    second = [Part(rid, cut, shapes[rid][0] - cut) for rid, cut in cuts.items() if shapes[rid][0] - cut]
    specs, batches, pieces = [X, STATE, RATE], {}, {rid: [] for rid in requests}
    for number, parts in enumerate((first, second)):
        batch, runs = gather("m", "r-0", parts, requests, specs)
        assert [len(run["x"]) for run in runs] == batch.run_items
        batch.outputs = runs  # an identity model
        batches[number] = batch
        offset = 0
        for part in parts:
            pieces[part.rid].append(Piece(part.start, part.items, number, offset))
            offset += part.items
    for rid, tensors in requests.items():
        outputs = assemble(pieces[rid], batches, specs, ["x", "s", "r"])
        assert all(np.array_equal(outputs[name], tensors[name]) for name in tensors)


def test_equal_shapes_share_one_run():
    """Merging is the point."""
    requests = {rid: request(rid, 2) for rid in range(3)}
    _, runs = gather("m", "r-0", [Part(rid, 0, 2) for rid in range(3)], requests, [X, STATE, RATE])
    assert [run["x"].shape for run in runs] == [(6, 4)]
    assert runs[0]["s"].shape == (2, 6, 3)


def test_a_request_alone_passes_through():
    """No copy in, and outputs whose rows are no items are left as they are."""
    requests = {1: request(1, 2)}
    batch, runs = gather("m", "r-0", [Part(1, 0, 2)], requests, [X])
    assert runs[0]["x"] is requests[1]["x"]
    batch.outputs = [{"x": np.array([7.0])}]
    assert assemble([Piece(0, 2, 1, 0)], {1: batch}, [X], ["x"])["x"].tolist() == [7.0]


def test_unaligned_bytes_are_copied():
    """A request's tensor may begin at any byte of its body; a runtime wants it aligned."""
    unaligned = np.frombuffer(b"\0" * 9, dtype=np.uint8)[1:].view(np.float32).reshape(1, 2)
    assert not unaligned.flags.aligned
    _, runs = gather("m", "r-0", [Part(1, 0, 1)], {1: {"x": unaligned}}, [X])
    assert runs[0]["x"].flags.aligned


def test_an_output_without_a_row_per_item_cannot_be_cut():
    """The error names the output and says what to do."""
    requests = {rid: request(rid, 1) for rid in range(2)}
    batch, _ = gather("m", "r-0", [Part(0, 0, 1), Part(1, 0, 1)], requests, [X])
    batch.outputs = [{"x": np.ones(1, np.float32)}]
    with pytest.raises(ModelError, match=r"output x of m .* mergeable = false"):
        assemble([Piece(0, 1, 1, 1)], {1: batch}, [X], ["x"])
