"""The simulated backend: its rows, its time, its options."""

import time

import numpy as np
import pytest

from turnout.errors import ConfigError
from turnout.pools import loader

load = loader("simulated")


def test_rows_come_back_as_they_went():
    """So that a row in the wrong answer is seen."""
    model = load("", "cuda", {})
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert np.array_equal(model.run({"x": x}).outputs["x_out"], x)
    model.close()


def test_it_takes_as_long_as_it_says(monkeypatch):
    """The line a + b · n, times a ratio of the latency model; the clock here is the sleep itself."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    ratios = {"form": "line", "knot_items": [0, 1], "knot_s": [1.0, 3.0], "ratios": {0: [2.0]}}
    load("", "cpu", {"a_s": 1.0, "b_s_per_item": 2.0}).run({"x": np.zeros((3, 4), np.float32)})
    load("", "cpu", {"latency": ratios, "start_s": 5.0}).run({"x": np.zeros((3, 4), np.float32)})
    assert slept == [0.0, 7.0, 5.0, 14.0]


def test_inputs_are_free():
    """Any batch axis; shared inputs have no output."""
    state = {"name": "s", "datatype": "FP32", "shape": [2, -1], "batch_axis": 1}
    rate = {"name": "r", "datatype": "INT64", "shape": [], "batch_axis": None}
    model = load("", "cpu", {"inputs": [rate, state]})
    assert [spec.name for spec in model.outputs] == ["s_out"]


def test_an_unknown_option_is_an_error():
    """As everywhere."""
    with pytest.raises(ConfigError, match="unknown field `speed`"):
        load("", "cpu", {"speed": 1})
