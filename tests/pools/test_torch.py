"""The torch path agrees with ONNX Runtime, on the CPU here and on CUDA where there is one."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

from tests.graphs import mlp  # noqa: E402
from turnout.errors import ConfigError, DeviceAbsentError, ModelError  # noqa: E402
from turnout.measure import parity  # noqa: E402
from turnout.pools import loader  # noqa: E402


@pytest.fixture
def model(tmp_path):
    """Path of a small MLP."""
    return mlp(tmp_path / "mlp.onnx")


def test_torch_agrees_with_onnx_runtime(model):
    """The converted module gives the reference's outputs, by the same names."""
    feeds = {"x": np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)}
    reference = loader("onnx")(model, "cpu", {"threads": 1}).run(feeds).outputs
    loaded = loader("torch")(model, "cpu", {"threads": 1})
    assert parity.compare(loaded.run(feeds).outputs, reference, "fp32").ok
    assert loaded.inputs[0].batch_axis == 0


def test_what_is_wrong_is_said(tmp_path, model):
    """Wrong names, a damaged file, an absent device and an unknown option are errors of the tree."""
    with pytest.raises(ModelError):
        loader("torch")(model, "cpu", {}).run({"y": np.zeros((1, 16), np.float32)})
    with pytest.raises(ConfigError):
        loader("torch")(model, "cpu", {"streams": 2})
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="cannot convert"):
        loader("torch")(str(tmp_path / "bad.onnx"), "cpu", {})
    if "cuda" not in loader("torch").__globals__["devices"]():
        with pytest.raises(DeviceAbsentError):
            loader("torch")(model, "cuda", {})


@pytest.mark.gpu
def test_cuda_tells_its_phases_apart(model):
    """Copy in, compute and copy out are positive and add up to about the whole."""
    loaded = loader("torch")(model, "cuda", {})
    feeds = {"x": np.zeros((512, 16), np.float32)}
    loaded.run(feeds)
    outcome = loaded.run(feeds)
    phases = (outcome.copy_in_s, outcome.compute_s, outcome.copy_out_s)
    assert all(phase > 0.0 for phase in phases)
    assert sum(phases) <= 1.5 * outcome.service_s
    assert outcome.peak_bytes > 0
