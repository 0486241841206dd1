"""Earliest predicted finish: time decides, whatever it costs."""

from __future__ import annotations

from tests.policies.views import TWO, choices, pools_of, replica, request, shown
from turnout.core.cost import Price


def test_the_faster_machine_at_any_price():
    """20 items are in time on both; the GPU is faster and bills $9 a second."""
    dear = {"gpu": {"price": Price(usd_per_s=9.0, billing="per_use")}}
    assert pools_of(choices("earliest", shown(TWO, [request(0, 20)], pools=dear))) == {0: {"gpu"}}


def test_waiting_counts():
    """The GPU is 11 ms faster at 20 items, and busy for 15: the CPU answers first."""
    lanes = [replica("cpu"), replica("gpu", free_s=0.015, slots=0)]
    assert pools_of(choices("earliest", shown(TWO, [request(0, 20)], lanes))) == {0: {"cpu"}}
