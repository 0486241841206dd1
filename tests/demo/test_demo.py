"""The whole demo, shortened: real model, real files, real processes, a real kill, and its own proofs."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("magika")

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(240)]


def test_the_demo_loses_nothing_and_leaves_what_it_says(tmp_path):
    """Every request is answered though a worker dies, the log replays, and the artefacts are all there."""
    from turnout import demo, store

    found = demo.run(
        tmp_path,
        now=datetime.now(UTC),
        environ=os.environ,
        progress=lambda _what, _share: None,
        seconds=4.0,
        duel_budget_s=4.0,
        queries=200,
    )
    assert found.here.traffic.lost == 0
    assert found.here.traffic.answered == found.here.traffic.requests
    assert found.here.replay.identical
    assert "SIGKILL" in found.here.killed
    assert found.advice.sentence
    assert store.load(tmp_path / "demo.json", demo.Demo).here.traffic == found.here.traffic
    for name in ("report.html", "serve.toml", "measure/duel.json", "measure/report.html", "gateway.stderr"):
        assert (tmp_path / name).exists()
