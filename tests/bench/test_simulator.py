"""The SimPy program that our engine is timed against simulates the same thing."""

from __future__ import annotations

import pytest

pytest.importorskip("simpy", reason="SimPy is the bench's peer; the environment of the WebGPU tests goes without it")

import simulator  # it imports simpy


def test_simpy_and_our_engine_come_to_the_same_summary():
    """So the ratio of their times compares engines, and nothing else."""
    assert simulator.Program().run(simulator.stream(400)) == simulator.ours(400)


def test_the_events_of_a_run_are_all_that_router_and_account_need():
    """Fed from a list they count the same run, so what that takes less is the driver's."""
    assert simulator.fed(simulator.recorded(300)) == simulator.ours(300)


def test_pieces_make_one_stream(monkeypatch):
    """Requests are numbered through, in order of time, and due their deadline after they arrive."""
    monkeypatch.setattr(simulator, "PIECE", 7)
    found = list(simulator.stream(20))
    assert [event.rid for event in found] == list(range(20))
    assert [event.at_s for event in found] == sorted(event.at_s for event in found)
    assert all(abs(event.deadline_s - event.at_s - 0.025) < 1e-9 for event in found)
