"""A second device for real: WebGPU, on a software GPU where the machine has none. Needs an environment of its own."""

import os
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.graphs import mlp
from turnout import measure
from turnout.measure import parity
from turnout.pools import loader

pytestmark = pytest.mark.webgpu


@pytest.fixture
def model(tmp_path):
    """Path of a small MLP."""
    return mlp(tmp_path / "mlp.onnx", (64, 64, 8))


@pytest.mark.parametrize("items", [1, 7, 64])
def test_the_second_device_agrees_with_the_cpu(model, items):
    """Real buffers and real copies give the reference's outputs, at any batch size."""
    feeds = {"x": np.random.default_rng(items).standard_normal((items, 64)).astype(np.float32)}
    reference = loader("onnx")(model, "cpu", {"threads": 1}).run(feeds).outputs
    loaded = loader("onnx")(model, "webgpu", {"threads": 1})
    assert parity.compare(loaded.run(feeds).outputs, reference, "fp32").ok
    assert "CPUExecutionProvider" not in loaded.placement


def test_a_missing_adapter_is_refused_with_the_node_count(model):
    """With its driver taken away the provider falls back in silence; the command says so, and exits with 4."""
    bare = {**os.environ, "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    command = [sys.executable, "-m", "turnout", "measure", model, "--devices", "cpu,webgpu"]
    result = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert result.returncode == 4
    assert "all 3 nodes are on the CPU" in result.stderr
    assert result.stdout == ""


def test_the_verdict_on_a_software_gpu_is_the_cpu(model):
    """An emulated GPU is labelled so, has no price, and loses to the CPU it runs on at every batch size."""
    options = measure.Options(sizes=(1, 8), budget_s=5.0, int8=False, devices=("cpu", "webgpu"))
    duel = measure.run(model, options, now=datetime(2026, 12, 1, tzinfo=UTC), environ=os.environ)
    states = {(c.criterion, c.state) for c in duel.verdict.crossovers}
    assert states == {("seconds", "never"), ("usd", "not_priced")}
    emulated = [e for e in duel.entries if e.profile.device == "webgpu"]
    assert emulated[0].label.endswith("(software)")
    assert emulated[0].profile.provenance.software_device
    against = [c for c in duel.verdict.comparisons if c.rival == emulated[0].label]
    assert [c.items for c in against] == [1, 8]
    assert all(c.winner.startswith("cpu") for c in against)
