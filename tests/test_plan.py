"""The search finds the cheapest whole-number fleet of each kind, if fleets that are larger never meet less."""

from __future__ import annotations

from types import SimpleNamespace

import hypothesis.strategies as st
from hypothesis import given

from turnout import plan


def fluid(need, cpu_rate, gpu_rate):
    """A stand-in for a simulation: a fleet meets the objective if its rates add up to the need."""
    return lambda cpu, gpu: SimpleNamespace(attainment=1.0 if cpu * cpu_rate + gpu * gpu_rate >= need else 0.5)


def exhaustive(offer, attempt, attainment):
    """The cheapest price of each kind by trying every fleet."""
    best = {}
    for cpu in range(offer.cpu_max + 1):
        for gpu in range(offer.gpu_max + 1):
            if cpu + gpu and attempt(cpu, gpu).attainment >= attainment:
                kind = "hybrid" if cpu and gpu else "cpu-only" if cpu else "gpu-only"
                best[kind] = min(best.get(kind, 1e9), offer.usd_per_h(cpu, gpu))
    return best


@given(st.floats(0.1, 60), st.floats(0.1, 5), st.floats(0.1, 20), st.floats(0.01, 1), st.floats(0.01, 3))
def test_the_search_agrees_with_trying_everything(need, cpu_rate, gpu_rate, cpu_usd, gpu_usd):
    """Same cheapest price per kind as an exhaustive search, and in order of price."""
    offer = plan.Offer(cpu_usd_per_h=cpu_usd, gpu_usd_per_h=gpu_usd, cpu_max=9, gpu_max=4)
    attempt = fluid(need, cpu_rate, gpu_rate)
    found = plan.quotes(offer, attempt, 0.99)
    best = exhaustive(offer, attempt, 0.99)
    prices = {q.kind: q.usd_per_h for q in found}
    assert prices == best
    assert [q.usd_per_h for q in found] == sorted(q.usd_per_h for q in found)


def test_nothing_is_quoted_where_nothing_meets_the_objective():
    """An empty answer, not the least bad fleet."""
    offer = plan.Offer(cpu_usd_per_h=0.1, gpu_usd_per_h=0.5, cpu_max=3, gpu_max=1)
    assert plan.quotes(offer, fluid(100, 1, 1), 0.99) == []
