"""Frames over a real pipe: any tensors arrive as they went, and damage is told from the end."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from turnout.pools import wire

DTYPES = st.sampled_from(["?", "u1", "<u2", "<i8", "<f2", "<f4", "<f8"]).map(np.dtype)
NUMBERS = DTYPES.flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0, max_side=4)))
STRINGS = st.lists(st.binary(max_size=6), max_size=4).map(lambda texts: np.array([*texts, b""], dtype=object)[:-1])
RUNS = st.lists(st.dictionaries(st.sampled_from("abc"), NUMBERS | STRINGS, min_size=1), max_size=3)


def through_a_pipe(kind, body, runs):
    """Send from another thread, since a pipe holds little."""
    source, sink = os.pipe()
    sender = threading.Thread(target=wire.send, args=(sink, kind, body, runs))
    sender.start()
    try:
        return wire.receive(source)
    finally:
        sender.join()
        os.close(source)
        os.close(sink)


@given(RUNS)
def test_tensors_arrive_as_they_went(runs):
    """Of every type, shape and number, empty ones and scalars included."""
    kind, body, received = through_a_pipe("run", {"model": "m"}, runs)
    assert (kind, body) == ("run", {"model": "m"})
    assert len(received) == len(runs)
    for sent, got in zip(runs, received, strict=True):
        assert list(sent) == list(got)
        for name, tensor in sent.items():
            assert got[name].dtype == tensor.dtype
            assert got[name].shape == tensor.shape
            assert np.array_equal(got[name], tensor, equal_nan=tensor.dtype.kind == "f")


def test_more_than_a_pipe_holds():
    """Large and strided tensors, in more buffers than one call takes."""
    runs = [{f"t{n}": np.arange(100_000, dtype=np.float32)[::2] for n in range(100)}]
    _, _, received = through_a_pipe("run", {}, runs)
    assert all(np.array_equal(received[0][name], tensor) for name, tensor in runs[0].items())


def test_the_end_between_frames_is_no_error():
    """And in the middle of one it is."""
    source, sink = os.pipe()
    os.close(sink)
    assert wire.receive(source) is None
    os.close(source)
    for damaged in (b"\x01", b"\x09\0\0\0ab"):
        source, sink = os.pipe()
        os.write(sink, damaged)
        os.close(sink)
        with pytest.raises(wire.FrameError, match="inside a frame"):
            wire.receive(source)
        os.close(source)


def test_something_else_than_a_frame():
    """Bytes that are no header are an error and nothing worse."""
    source, sink = os.pipe()
    os.write(sink, b"\x03\0\0\0abc")
    with pytest.raises(wire.FrameError, match="not a frame"):
        wire.receive(source)
    os.close(source)
    os.close(sink)
