"""What a choice costs depends on how its machine is paid for."""

from __future__ import annotations

import pytest

from turnout.core.cost import Price, Usage, bill_usd, effective_usd_per_million


def test_a_sunk_machine_costs_nothing_more_to_use():
    """List price does not enter; what the machine would earn elsewhere does."""
    assert Price(usd_per_s=1.0).marginal_usd(5.0) == 0.0
    assert Price(usd_per_s=1.0, outside_value_usd_per_s=0.1).marginal_usd(5.0) == pytest.approx(0.5)


@pytest.mark.parametrize("billing", ["elastic", "per_use"])
def test_a_machine_billed_by_use_costs_its_list_price(billing):
    """Where using the machine changes the bill, its price is the marginal cost."""
    assert Price(usd_per_s=2.0, billing=billing).marginal_usd(5.0) == 10.0


def test_bills_count_whole_replicas_minimum_times_or_use():
    """Sunk and elastic bill the time that replicas are up, elastic at least its minimum per start, per-use its use."""
    usage = Usage(up_s=(100.0, 10.0), busy_s=30.0)
    assert bill_usd(Price(usd_per_s=1.0), usage) == 110.0
    assert bill_usd(Price(usd_per_s=1.0, billing="elastic", min_billed_s=60.0), usage) == 160.0
    assert bill_usd(Price(usd_per_s=1.0, billing="per_use"), usage) == 30.0


def test_effective_cost_counts_only_what_met_its_objective():
    """Misses cost as much as hits and buy nothing."""
    assert effective_usd_per_million([1.0, 1.0], 1000) == 2000.0
    assert effective_usd_per_million([1.0], 0) == float("inf")
