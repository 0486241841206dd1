"""`turnout serve` as it is typed: what it refuses before it serves."""

from __future__ import annotations

import pytest

from tests.cli.commands import turnout
from turnout import store
from turnout.core.profile import Profile, Provenance, Samples

SERVED = """
[gateway]
port = 0
log = ""
[[models]]
name = "mlp"
path = "mlp.onnx"
slo = { deadline_ms = 100 }
[[pools]]
name = "cpu"
models = ["mlp"]
profile = { mlp = "cpu.json" }
"""


@pytest.mark.parametrize(
    ("change", "profile", "says"),
    [
        (("port", "prot"), None, "gateway.prot: there is no such key; did you mean port?"),
        (("mlp.onnx", "none.onnx"), "", "none.onnx is not a file"),
        (("", ""), None, "pools[0].profile.mlp: cpu.json does not exist"),
        (("", ""), b"", "cpu.json is empty"),
        (("", ""), b'{"schema_version":1,"ki', "cpu.json is damaged or cut short"),
        (("", ""), b'{"schema_version":1,"kind":"profile","body":NaN}', "cpu.json is damaged"),
        (("", ""), "sha256:0", "was measured on other weights than those of mlp.onnx"),
        (('["mlp"]', '["mlp"]\nbackend = "onxx"'), "", "no backend is called 'onxx'"),
        (('["mlp"]', '["mlp"]\ndevice = "cuda"'), "", "cpu.json is of device cpu, and the pool is on cuda"),
    ],
)
def test_what_serve_refuses_before_it_serves(tmp_path, model, change, profile, says):
    """A config, model or profile that is wrong is said once, with exit code 2 and no word of a restart."""
    if isinstance(profile, str):
        store.save(made_up(profile), tmp_path / "cpu.json")
    elif profile is not None:
        (tmp_path / "cpu.json").write_bytes(profile)
    (tmp_path / "turnout.toml").write_text(SERVED.replace(*change, 1) if change[0] else SERVED)
    result = turnout("serve", "turnout.toml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count(says) == 1
    assert "starts again" not in result.stderr
    assert "Traceback" not in result.stderr


def made_up(digest):
    """A profile of two batch sizes."""
    provenance = Provenance(kind="modelled", source="made up for this test", date="", hardware="")
    samples = (Samples(items=1, service_s=(0.001,)), Samples(items=8, service_s=(0.002,)))
    return Profile(
        model="mlp",
        model_digest=digest,
        device="cpu",
        device_key="k",
        variant="fp32",
        provenance=provenance,
        samples=samples,
    )
