"""The cut of a log: what each side has, and which replicas a simulation of it starts without."""

from __future__ import annotations

import pytest

from tests.fit.logs import write_log
from turnout.core import events as ev
from turnout.fit import recorded


def test_the_cut_keeps_every_request_and_batch_once(tmp_path):
    """The parts follow one another, and together are the run."""
    run = recorded.read(write_log(tmp_path))
    early, late = run.fitting, run.held_out
    assert [a.rid for a in (*early.arrivals, *late.arrivals)] == list(range(1500))
    assert len(early.arrivals) == pytest.approx(recorded.FIT_SHARE * 1500, abs=1)
    assert all(b.at_s < run.split_s for row in early.batches.values() for b in row)
    assert all(b.at_s >= run.split_s for row in late.batches.values() for b in row)
    items = sum(b.items for part in (early, late) for row in part.batches.values() for b in row)
    answered = sum(a.items for part in (early, late) for a in part.arrivals)
    assert items == pytest.approx(answered, rel=0.02)


def test_a_replica_that_was_down_at_the_cut_is_down_in_the_second_part(tmp_path):
    """What was lost before the cut is lost when the simulation of the rest begins, and comes back when it did."""
    faults = [
        ev.ReplicaDown(at_s=1.0, replica="cpu-0", why="power"),
        ev.ReplicaUp(at_s=7.5, replica="cpu-0", pool="cpu"),
    ]
    run = recorded.read(write_log(tmp_path, faults=faults))
    assert 1.0 < run.split_s < 7.5
    assert [type(e) for e in run.fitting.faults] == [ev.ReplicaDown]
    down, up = run.held_out.faults
    assert (down.at_s, down.replica) == (run.split_s, "cpu-0")
    assert up == faults[1]


def test_a_long_log_is_simulated_around_the_cut(tmp_path, monkeypatch):
    """Only so many requests of each part are simulated; every batch is still fitted to."""
    path = write_log(tmp_path)
    whole = recorded.read(path)
    monkeypatch.setattr(recorded, "MOST_SIMULATED", 200)
    run = recorded.read(path)
    assert [a.rid for a in run.fitting.arrivals] == list(range(850, 1050))
    assert [a.rid for a in run.held_out.arrivals] == list(range(1050, 1250))
    assert run.fitting.configured.at_s == run.fitting.arrivals[0].at_s
    assert (run.requests, run.split_s) == (1500, whole.split_s)
    assert run.fitting.batches == whole.fitting.batches
