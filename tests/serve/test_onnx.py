"""Real models behind the gateway: batches of many clients' requests, each answered as if it had been alone."""

import threading

import numpy as np
import pytest

from tests.gateways import in_thread
from tests.graphs import mlp
from turnout import policies, replay, store
from turnout.core.profile import Profile, Provenance, Samples
from turnout.pools.source import digest

pytest.importorskip("onnxruntime")
triton = pytest.importorskip("tritonclient.http")

CONFIG = """
[gateway]
port = 0
[[models]]
name = "mlp"
path = "mlp.onnx"
slo = {{ deadline_ms = 10000 }}
[[pools]]
name = "cpu"
models = ["mlp"]
replicas = 2
threads = 1
workers = "{workers}"
profile = {{ mlp = "cpu.json" }}
"""


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_every_client_gets_what_its_own_input_gives(tmp_path, workers):
    """Two replicas, six clients, requests of one to three items; the log replays."""
    path = mlp(tmp_path / "mlp.onnx")
    profile = Profile(
        model="mlp",
        model_digest=digest(str(path)),
        device="cpu",
        device_key="here",
        variant="fp32",
        provenance=Provenance(kind="modelled", source="made up for this test", date="", hardware=""),
        samples=(Samples(items=1, service_s=(0.001,)), Samples(items=16, service_s=(0.002,))),
    )
    store.save(profile, tmp_path / "cpu.json")
    (tmp_path / "turnout.toml").write_text(CONFIG.format(workers=workers))
    faults = []

    def client(port, name, reference, spec):
        rng = np.random.default_rng(name)
        with triton.InferenceServerClient(f"127.0.0.1:{port}") as server:
            for _ in range(25):
                x = rng.normal(size=(rng.integers(1, 4), *spec.shape[1:])).astype(np.float32)
                given = triton.InferInput(spec.name, x.shape, "FP32")
                given.set_data_from_numpy(x)
                answer = server.infer("mlp", [given])
                for output, value in reference(x).items():
                    if not np.allclose(answer.as_numpy(output), value, atol=1e-5):
                        faults.append((name, output))

    with in_thread(tmp_path / "turnout.toml") as gateway:
        from turnout.pools import onnx

        (spec,) = gateway.driver.models["mlp"].inputs
        clients = []
        for name in range(6):
            alone = onnx.load(str(path), "cpu", {"threads": 1})
            reference = lambda x, alone=alone: alone.run({spec.name: x}).outputs  # noqa: E731
            clients.append(threading.Thread(target=client, args=(gateway.port, name, reference, spec)))
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        assert gateway.driver.counters.requests == {("mlp", "met"): 150}
    assert not faults
    assert replay.verify(tmp_path / "log", policies.load).identical
