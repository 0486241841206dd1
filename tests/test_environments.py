"""What the heavy environments promise: a software GPU that takes every node, its absence seen, a torch that agrees.

Only the environments are tested here, on one small network; Turnout's own use of them is tested with the pools.
"""

import itertools
import os
import subprocess
import sys
import types

import numpy as np
import pytest

CONFIG = {
    "session.record_ep_graph_assignment_info": "1",
    # In its default layout (NHWC) the WebGPU provider of 1.27 takes its nodes unrecorded.
    "ep.webgpuexecutionprovider.preferredLayout": "NCHW",
}
NODES = 5


@pytest.fixture
def model():
    """Build an ONNX model of three Gemm and two Relu, 64-256-256-2, with random weights."""
    from onnx import TensorProto, helper, numpy_helper

    rng, sizes, nodes, weights, value = np.random.default_rng(0), (64, 256, 256, 2), [], [], "x"
    for layer, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weight = rng.standard_normal((rows, columns)).astype(np.float32) / np.float32(rows**0.5)
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(helper.make_node("Gemm", [value, f"w{layer}"], [f"h{layer}"], name=f"gemm{layer}"))
        nodes.append(helper.make_node("Relu", [f"h{layer}"], [value := f"y{layer}"], name=f"relu{layer}"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in (("x", 64), ("h2", 2))]
    graph = helper.make_graph(nodes[:NODES], "mlp", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def session(model, provider):
    """Open `model` on `provider` alone, with placement recorded and without ONNX Runtime's quiet second try."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    for key, value in CONFIG.items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider], enable_fallback=0)


@pytest.mark.webgpu
@pytest.mark.parametrize("items", [1, 64])
def test_the_adapter_takes_every_node_and_agrees_with_the_cpu(model, items):
    """The WebGPU provider has an adapter, is given the whole graph, and computes what the CPU computes."""
    x = np.random.default_rng(1).standard_normal((items, 64), dtype=np.float32)
    ours, reference = session(model, "WebGpuExecutionProvider"), session(model, "CPUExecutionProvider")
    placed = [
        (part.ep_name, node.name) for part in ours.get_provider_graph_assignment_info() for node in part.get_nodes()
    ]
    assert len(placed) == NODES
    assert {provider for provider, _ in placed} == {"WebGpuExecutionProvider"}
    np.testing.assert_allclose(ours.run(None, {"x": x})[0], reference.run(None, {"x": x})[0], atol=1e-5)


@pytest.mark.webgpu
def test_a_missing_adapter_is_an_error(model, tmp_path):
    """With no Vulkan driver, opening a session on WebGPU fails, once ONNX Runtime's fallback is off."""
    path = tmp_path / "mlp.onnx"
    path.write_bytes(model.SerializeToString())
    program = (
        "import sys, onnxruntime; onnxruntime.InferenceSession("
        "sys.argv[1], providers=['WebGpuExecutionProvider'], enable_fallback=0)"
    )
    bare = {**os.environ, "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    command = [sys.executable, "-c", program, str(path)]
    result = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "Failed to get a WebGPU adapter" in result.stderr


@pytest.mark.torch
def test_torch_runs_a_converted_model_and_agrees_with_onnx_runtime(model, monkeypatch):
    """onnx2torch, with an empty torchvision in place of the one that fits no CPU build, converts the network."""
    torchvision, ops = types.ModuleType("torchvision"), types.ModuleType("torchvision.ops")
    ops.roi_align = None  # the one name that onnx2torch imports; only RoiAlign nodes call it
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "torchvision.ops", ops)
    import onnx2torch
    import torch

    x = np.random.default_rng(1).standard_normal((8, 64), dtype=np.float32)
    with torch.inference_mode():
        ours = onnx2torch.convert(model)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(ours, session(model, "CPUExecutionProvider").run(None, {"x": x})[0], atol=1e-5)
