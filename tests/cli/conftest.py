"""What the commands are given."""

from __future__ import annotations

import pytest

from tests.graphs import mlp


@pytest.fixture
def model(tmp_path):
    """Path of a small MLP."""
    return mlp(tmp_path / "mlp.onnx")
