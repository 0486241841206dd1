"""Any function can stand for a model, and what is wrong with it is the user's error with its own words."""

import sys
import types

import numpy as np
import pytest

from turnout.errors import ConfigError, DeviceAbsentError, ModelError
from turnout.pools import loader


@pytest.fixture
def module(monkeypatch):
    """A module of functions in each of the three conventions."""
    made = types.ModuleType("given")

    def plain(items):
        return np.arange(items)

    def fed(inputs):
        return {"sum": inputs["x"].sum(axis=1)}

    fed.make_inputs = lambda items, rng: {"x": rng.standard_normal((items, 3))}

    def train(_inputs):
        raise AssertionError

    def setup(device):
        weights = {"w": 1.0}

        def step(items):
            weights["w"] *= 0.5
            return {"loss": weights["w"] * items, "device": np.array([device == "cpu"])}

        return step

    train.setup = setup
    train.devices = ("cpu", "cuda")

    def broken(_items):
        raise KeyError("row")

    for function in (plain, fed, train, broken):
        setattr(made, function.__name__, function)
    made.number = 3
    made.ragged = lambda _items: [[1, 2], [3]]
    monkeypatch.setitem(sys.modules, "given", made)


def run(source, items=2, device="cpu"):
    """Load and run once."""
    model = loader("callable")(source, device, {})
    return model.run(model.make_inputs(items, np.random.default_rng(0)))


def test_each_convention_runs(module):
    """By number of items, by inputs it makes itself, and by setting up its state first."""
    assert run("given:plain").outputs["output"].tolist() == [0, 1]
    assert run("given:fed").outputs["sum"].shape == (2,)
    assert run("given:train").outputs["loss"] == 1.0
    assert run("given:plain").service_s > 0.0


def test_every_load_of_a_training_step_starts_afresh(module):
    """State does not leak from one contender to the next: two loads give the same losses in the same order."""
    first, second = (loader("callable")("given:train", "cpu", {}) for _ in range(2))
    feeds = first.make_inputs(4, np.random.default_rng(0))
    losses = [float(model.run(feeds).outputs["loss"]) for model in (first, first, second, second)]
    assert losses == [2.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("given", "is not module:function"),
        ("absent_module:f", "cannot import absent_module"),
        ("given:none", "has no none"),
        ("given:number", "is a int, not a function"),
    ],
)
def test_a_source_that_names_no_function_says_so(module, source, says):
    """Each way of naming nothing has its message."""
    with pytest.raises(ModelError, match=says):
        loader("callable")(source, "cpu", {})


@pytest.mark.parametrize(("source", "says"), [("given:broken", "KeyError: 'row'"), ("given:ragged", "as arrays")])
def test_a_function_that_fails_is_a_model_error(module, source, says):
    """Foreign exceptions arrive as one message, with their type and words."""
    with pytest.raises(ModelError, match=says):
        run(source)


def test_a_function_runs_only_where_it_says(module):
    """Nothing is put on a device that the function does not know, and options are not swallowed."""
    with pytest.raises(DeviceAbsentError, match="runs on cpu, not on cuda"):
        loader("callable")("given:plain", "cuda", {})
    with pytest.raises(ConfigError):
        loader("callable")("given:plain", "cpu", {"threads": 1})


def test_a_closed_model_does_not_run(module):
    """Close lets go of the function for good."""
    model = loader("callable")("given:plain", "cpu", {})
    model.close()
    with pytest.raises(ModelError, match="closed"):
        model.run(model.make_inputs(1, np.random.default_rng(0)))
