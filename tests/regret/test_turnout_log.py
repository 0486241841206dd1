"""A log of Turnout's own says what was run, and what became of every request."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from msgspec.structs import replace

from tests.regret.requests import CURVES, of_curves
from turnout import policies, regret, simulate
from turnout.core import events as ev
from turnout.regret.own import Objective
from turnout.regret.turnout_log import is_turnout_log, read
from turnout.telemetry import LogWriter


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A simulated run of a GPU and a CPU, as a log, and what it came to."""
    own = of_curves(CURVES, 0.06, merged=True)
    head = replace(own.head, policy="earliest")
    rng = np.random.default_rng(2)
    at_s = np.cumsum(rng.exponential(0.005, 1500))
    arrivals = [
        ev.Arrived(at_s=float(t), rid=i, model="m", items=int(n), deadline_s=float(t) + 0.06)
        for i, (t, n) in enumerate(zip(at_s, rng.choice([1, 16, 64], 1500), strict=True))
    ]
    folder = tmp_path_factory.mktemp("log")
    writer = LogWriter(folder, "run")
    path = writer.start(head)

    def observe(event, actions):
        if not isinstance(event, ev.Configured):  # which `start` wrote
            writer.write([event, *actions])

    summary = simulate.run(head, arrivals, own.draws, policies.load, observe=observe)
    writer.close()
    return path, summary


def test_attainment_and_latency_are_those_of_the_run(recorded):
    """Counted from the log as the account counted them when it was written."""
    path, summary = recorded
    traffic, own = read(path, Objective())
    assert traffic.met.mean() == pytest.approx(summary.attainment)
    assert traffic.observed(0.99) == pytest.approx(summary.latency_p99_s, rel=0.0026)
    assert own.head.policy == "earliest"
    assert own.as_recorded
    assert is_turnout_log(path)
    assert is_turnout_log(path.parent)
    assert read(path.parent, Objective(deadline_s=9.0))[0].met.mean() >= traffic.met.mean()


def test_its_regret(recorded):
    """The recorded policy is run again for the calibration, and comes out as it was."""
    answer = regret.run(*read(recorded[0], Objective()), now=datetime(2026, 3, 2, tzinfo=UTC))
    assert answer.calibration.trusted
    assert answer.calibration.how == "the recorded policy, earliest"
    assert answer.theirs.policy == "earliest"
    assert answer.best_fleet is None or answer.bound.usd_per_h <= answer.best_fleet.usd_per_h


def test_other_logs_are_not_taken_for_one(tmp_path):
    """An access log of JSON lines is none, and a missing file is left to whoever reads it."""
    (tmp_path / "a.jsonl").write_text('{"type": "request", "ts": 1}\n')
    assert not is_turnout_log(tmp_path / "a.jsonl")
    assert not is_turnout_log(tmp_path / "b.jsonl")
