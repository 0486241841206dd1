"""The examples run as their readers would run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.gateways import in_process
from turnout import policies, replay

ROOT = Path(__file__).resolve().parent.parent


def test_the_router_in_a_program_of_ones_own():
    """examples/embed.py needs nothing but the core, and says what its traffic came to."""
    done = subprocess.run([sys.executable, ROOT / "examples/embed.py"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1.0000 met; items by pool: {'cpu': ")
    assert done.stderr == ""


def test_silero_vad_is_measured_and_served(tmp_path):
    """The commands in examples/serve/silero_vad.toml, in its own folders: two streams get what they get alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    triton = pytest.importorskip("tritonclient.http")
    wheel = find_spec("silero_vad")
    if wheel is None:
        pytest.skip("silero-vad is not installed")
    model = tmp_path / "out/silero_vad/silero_vad.onnx"
    model.parent.mkdir(parents=True)
    shutil.copy(Path(wheel.submodule_search_locations[0]) / "data/silero_vad.onnx", model)
    config = tmp_path / "examples/serve/silero_vad.toml"
    shutil.copytree(ROOT / "examples/serve", config.parent)
    measure = "measure out/silero_vad/silero_vad.onnx --devices cpu --threads 1 --no-int8 --batch 1,4 --budget-s 1"
    subprocess.run([sys.executable, "-m", "turnout", *measure.split()], cwd=tmp_path, capture_output=True, check=True)

    rng = np.random.default_rng(0)
    sound, state = rng.standard_normal((2, 512), np.float32), rng.standard_normal((2, 2, 128), np.float32)
    rate = np.array(16_000)
    alone = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    with in_process(config, "--port", "0") as (process, ready):
        with triton.InferenceServerClient(f"127.0.0.1:{ready['port']}") as client:
            inputs = [triton.InferInput("input", [2, 512], "FP32"), triton.InferInput("state", [2, 2, 128], "FP32")]
            inputs.append(triton.InferInput("sr", [], "INT64"))
            for tensor, value in zip(inputs, (sound, state, rate), strict=True):
                tensor.set_data_from_numpy(value)
            answer = client.infer("silero_vad", inputs, timeout=10_000_000)
        process.terminate()
        assert process.wait(30) == 0
    for row in range(2):
        output, after = alone.run(None, {"input": sound[row : row + 1], "state": state[:, row : row + 1], "sr": rate})
        np.testing.assert_allclose(answer.as_numpy("output")[row : row + 1], output, atol=1e-5)
        np.testing.assert_allclose(answer.as_numpy("stateN")[:, row : row + 1], after, atol=1e-5)
    assert replay.verify(Path(ready["log"]), policies.load).identical
