"""A model runs where it was asked to run, or an error says why not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.graphs import embedding, mlp, write
from turnout.errors import ConfigError, DeviceAbsentError, ModelError, SilentFallbackError
from turnout.pools import loader, onnx
from turnout.pools.base import batch_axes


@pytest.fixture
def model(tmp_path):
    """Path of a small MLP."""
    return mlp(tmp_path / "mlp.onnx")


def test_a_batch_comes_back_with_its_time_and_its_nodes_are_counted(model):
    """Outputs have the batch's size, the time is positive, and every node is on the CPU."""
    loaded = loader("onnx")(model, "cpu", {"threads": 1})
    outcome = loaded.run({"x": np.zeros((3, 16), np.float32)})
    assert outcome.outputs["h1"].shape == (3, 4)
    assert outcome.service_s > 0.0
    assert loaded.placement == {onnx.CPU: 3}
    assert loaded.load_s > 0.0
    assert (loaded.inputs[0].name, loaded.inputs[0].shape, loaded.inputs[0].batch_axis) == ("x", (-1, 16), 0)
    loaded.close()


def test_threads_are_explicit_and_do_not_spin(model):
    """The session never takes ONNX Runtime's defaults, which ignore cgroups and spin on other sessions' cores."""
    options = onnx.session_options({"threads": 1})
    assert options.intra_op_num_threads == 1
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert onnx.session_options({}).intra_op_num_threads >= 1


@pytest.mark.parametrize("device", [d for d in ("cuda", "webgpu") if d not in onnx.devices()])
def test_a_device_that_this_runtime_lacks_is_refused(model, device):
    """Asking the CPU package for an accelerator is an error that names the package to install."""
    with pytest.raises(DeviceAbsentError, match=f"onnxruntime-|{device}"):
        onnx.load(model, device, {})


def test_a_session_that_fell_back_is_refused_with_its_node_count(model):
    """ONNX Runtime gives a CPU session to who asks for CUDA in the CPU package; the check turns that into an error."""
    session = onnx.ort.InferenceSession(model, onnx.session_options({}), providers=[onnx.CPU])
    with pytest.raises(
        SilentFallbackError, match=r"asked .*CUDAExecutionProvider and got .*all 3 nodes are on the CPU"
    ):
        onnx.check_placement(session, "cuda")


def test_a_graph_partly_on_the_cpu_is_refused_unless_allowed():
    """One node left on the CPU makes the time a mixture: refused with the count, or labelled by leave."""

    class Node:
        op_type = "Cast"

    class Group:
        def __init__(self, ep_name, count):
            self.ep_name = ep_name
            self.get_nodes = lambda: [Node()] * count

    class Session:
        get_providers = staticmethod(lambda: ["WebGpuExecutionProvider", onnx.CPU])
        get_provider_graph_assignment_info = staticmethod(
            lambda: [Group("WebGpuExecutionProvider", 5), Group(onnx.CPU, 2)]
        )

    with pytest.raises(SilentFallbackError, match=r"leaves 2 nodes of the graph on the CPU \(Cast 2\)"):
        onnx.check_placement(Session(), "webgpu")
    placement = onnx.check_placement(Session(), "webgpu", allow_partial=True)
    assert placement == {"WebGpuExecutionProvider": 5, onnx.CPU: 2}


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07\x12\x00" * 10])
def test_a_damaged_model_is_a_model_error(tmp_path, content):
    """Whatever bytes the file has, the error is the user's and fits on a line."""
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        onnx.load(str(path), "cpu", {})
    assert "\n" not in str(caught.value)


def test_a_missing_model_is_a_model_error(tmp_path):
    """The message names the path."""
    with pytest.raises(ModelError, match=r"none\.onnx is not a file"):
        onnx.load(str(tmp_path / "none.onnx"), "cpu", {})


@pytest.mark.parametrize(
    "feeds",
    [
        {"wrong": np.zeros((1, 16), np.float32)},
        {"x": np.zeros((1, 15), np.float32)},
        {"x": np.zeros((1, 16), np.int64)},
        {},
    ],
)
def test_inputs_that_do_not_fit_are_a_model_error(model, feeds):
    """A wrong name, shape, type, or no input at all is refused with the runtime's own words."""
    loaded = onnx.load(model, "cpu", {})
    with pytest.raises(ModelError, match="does not run on these inputs"):
        loaded.run(feeds)


@pytest.mark.parametrize("options", [{"thread": 1}, {"variant": "fp4"}])
def test_an_unknown_option_is_refused(model, options):
    """A misspelt option is not ignored."""
    with pytest.raises(ConfigError):
        onnx.load(model, "cpu", options)


def test_int8_runs_and_a_model_without_anything_to_quantise_says_so(tmp_path, model):
    """The int8 variant is another graph with close answers; where nothing would change there is none."""
    feeds = {"x": np.ones((2, 16), np.float32)}
    plain = onnx.load(model, "cpu", {}).run(feeds).outputs["h1"]
    int8 = onnx.load(model, "cpu", {"variant": "int8"})
    assert np.abs(int8.run(feeds).outputs["h1"] - plain).max() < 0.1
    relu = write(tmp_path / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"])], [("x", ["n"])], [("y", ["n"])])
    with pytest.raises(ModelError, match="no operator that dynamic int8 covers"):
        onnx.load(relu, "cpu", {"variant": "int8"})


def test_an_embedding_bounds_its_ids(tmp_path):
    """The rows of the table that ids look up are found through a type change."""
    assert onnx.index_limits(tmp_path / embedding(tmp_path / "e.onnx", rows=7)) == {"ids": 7}


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        ({"x": ("n", 64)}, {"x": 0}),
        ({"input": (None, None), "state": (2, None, 128), "sr": ()}, {"input": 0, "state": 1, "sr": None}),
        ({"ids": ("batch", "seq"), "mask": ("batch", "seq"), "pos": ("seq",)}, {"ids": 0, "mask": 0, "pos": None}),
        ({"kv": (2, "batch", "seq"), "ids": ("batch", "seq")}, {"kv": 1, "ids": 0}),
        ({"a": ("unk__1", 8), "b": ("unk__2", 8)}, {"a": 0, "b": 0}),
        ({"x": (1, 3, 8, 8)}, {"x": None}),
    ],
)
def test_the_batch_axis_is_found(shapes, axes):
    """The axis that counts items is the batch symbol's, else the first variable one that is no length."""
    assert batch_axes(shapes) == axes


@given(st.dictionaries(st.text(max_size=3), st.lists(st.none() | st.integers(-1, 4) | st.text(max_size=2)).map(tuple)))
def test_a_batch_axis_is_always_a_variable_axis(shapes):
    """Whatever the shapes, a fixed axis never counts items."""
    for name, axis in batch_axes(shapes).items():
        assert axis is None or not (isinstance(shapes[name][axis], int) and shapes[name][axis] > 0)
