"""Batch axes: what is sure, what the config must say, and what it says wrongly."""

import pytest

from turnout.pools.base import TensorSpec
from turnout.pools.replica import ModelIo
from turnout.serve.axes import doubt, with_axes


def model(*outputs, symbols=()):
    """A model with one input of named dimensions."""
    x = TensorSpec(name="x", datatype="FP32", shape=(-1, -1), symbols=symbols)
    return ModelIo(inputs=(x,), outputs=outputs, placement={}, load_s=0.0)


def output(shape, axis=0, symbols=()):
    """An output."""
    return TensorSpec(name="y", datatype="FP32", shape=shape, batch_axis=axis, symbols=symbols)


@pytest.mark.parametrize(
    "sure",
    [
        model(output((-1, 3))),
        model(output((2, -1, 3), 1)),
        model(output((-1, -1), 0, ("n", "t")), symbols=("n", "t")),
    ],
)
def test_axes_that_are_sure(sure):
    """One varying dimension, or the symbol of an input's batch axis."""
    assert doubt(sure, {}) == ""


@pytest.mark.parametrize(
    "unsure",
    [
        model(output((-1, -1, -1))),
        model(output((3, -1), 0)),
        model(output((3,), None)),
        model(output((-1, -1), 0, ("a", "t")), symbols=("n", "t")),
    ],
)
def test_axes_that_the_config_must_confirm(unsure):
    """The message has what to write; having written it, all is well."""
    assert "set batch_axes = { y = AXIS }" in doubt(unsure, {})
    confirmed = with_axes(unsure, {"y": -1})
    assert confirmed.outputs[0].batch_axis is None
    assert doubt(confirmed, {"y": -1}) == ""
    assert with_axes(unsure, {"y": 0}).outputs[0].batch_axis == 0


def test_axes_that_do_not_exist():
    """Unknown tensors and axes beyond the shape."""
    io = model(output((-1, 3)))
    assert "the model has: x, y" in doubt(io, {"z": 0})
    assert "is 2, and the shape is" in doubt(io, {"y": 2})
    assert "is -2, and the shape is" in doubt(io, {"y": -2})
