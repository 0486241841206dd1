"""Digests: equal for equal weights, wherever they lie."""

from turnout.pools.source import digest


def test_external_data_counts(tmp_path):
    """The weights beside an ONNX file are part of it."""
    model = tmp_path / "m.onnx"
    model.write_bytes(b"graph")
    alone = digest(str(model))
    assert alone.startswith("sha256:")
    (tmp_path / "m.onnx.data").write_bytes(b"weights")
    assert digest(str(model)) != alone


def test_functions_and_nothing():
    """A function's module is digested; what is neither file nor module has none."""
    assert digest("json:loads") == digest("json:dumps") != digest("json.decoder:x")
    assert digest("no_such_module:x") == digest("no.such:x") == digest("/no/such/file") == digest("") == ""
