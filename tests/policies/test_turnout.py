"""Our policy: cheap machines first, the dear ones for what cannot wait, and the dearest work stands back in a rush."""

from __future__ import annotations

import numpy as np
import pytest

from tests.policies.views import TWO, choices, pools_of, replica, request, requests, runs, shown
from turnout import policies
from turnout.core.cost import Price
from turnout.core.policy import Hold
from turnout.core.standing import MAX_CREDIT, Standing

BILLED = {"gpu": {"price": Price(usd_per_s=0.5, billing="per_use")}}
"""A GPU that costs money only while it works, next to a CPU that is paid for anyway."""
OWNED = {"gpu": {"price": Price(usd_per_s=0.5 / 3600)}}


def test_the_cheaper_machine_that_is_in_time():
    """Small work goes to the CPU, work that only the GPU can finish to the GPU."""
    assert pools_of(choices("turnout", shown(TWO, [request(0, 2)], pools=OWNED))) == {0: {"cpu"}}
    assert pools_of(choices("turnout", shown(TWO, [request(0, 60)], pools=OWNED))) == {0: {"gpu"}}


def test_it_does_not_wait_where_waiting_saves_nothing():
    """On machines paid for anyway an idle GPU is used rather than a busy CPU waited for."""
    lanes = [replica("cpu", free_s=0.01, slots=0), replica("gpu")]
    assert pools_of(choices("turnout", shown(TWO, [request(0, 2)], lanes, pools=OWNED))) == {0: {"gpu"}}


def test_it_waits_for_the_machine_that_does_not_bill():
    """Where the GPU bills by use and the CPU is free in time, work is held, but not beyond the GPU's last chance."""
    lanes = [replica("cpu", free_s=0.01, slots=0), replica("gpu")]
    (hold,) = choices("turnout", shown(TWO, [request(0, 2)], lanes, pools=BILLED))
    assert isinstance(hold, Hold)
    assert 0.03 < hold.until_s < 0.05


def test_the_dear_machine_gets_the_largest_of_what_the_cheap_one_cannot_finish():
    """Of 12, 11 and 22 items the CPU has time for two, and the GPU bills by use: it gets one, the largest."""
    found = pools_of(choices("turnout", shown(TWO, requests([12, 11, 22]), pools=BILLED)))
    assert found[2] == {"gpu"}
    assert "gpu" not in found.get(0, set()) | found.get(1, set())


@pytest.mark.parametrize("credit", [0.0, -MAX_CREDIT])
def test_a_deficit_sends_more_to_the_dear_machine(credit):
    """The same waiting work: what the CPU can just do is left to it, unless too much has been missed of late."""
    standings = {"m": Standing(attainment=0.99, credit=credit)}
    view = shown(TWO, requests([8, 8, 8]), pools=BILLED, standings=standings)
    assert any("gpu" in used for used in pools_of(choices("turnout", view)).values()) == (credit < 0.0)


def test_in_a_rush_the_largest_stands_back():
    """One CPU, 40 ms: three of 10 items or one of 36 can be in time, and the one of 36 is the older."""
    view = shown({"cpu": TWO["cpu"]}, [request(0, 36, 0.04), *(request(i, 10, 0.04) for i in (1, 2, 3))])
    (parts,) = runs(choices("turnout", view)).values()
    assert 0 not in {part.rid for part in parts}


@pytest.mark.parametrize("credit", [1.0, -1.0])
def test_it_explores_only_where_that_is_safe_and_affordable(credit):
    """With nothing owed the second choice in time is tried; with a deficit, or where it would be late, it is not."""
    standings = {"m": Standing(attainment=0.99, credit=credit)}
    safe = shown(TWO, [request(0, 2)], pools=OWNED, standings=standings)
    tight = shown(TWO, [request(0, 2, due_s=0.008)], pools=OWNED, standings=standings)
    wanted = {"gpu"} if credit > 0.0 else {"cpu"}
    assert pools_of(choices("turnout", safe, explore_share=1.0)) == {0: wanted}
    assert pools_of(choices("turnout", tight, explore_share=1.0)) == {0: {"cpu"}}


def single(now_s: float, arrivals: int, lanes: int = 1):
    """One request that may not share a batch, on `lanes` CPUs and a GPU, after so many arrivals."""
    standing = Standing(attainment=0.99)
    for number in range(arrivals):
        standing.arrive(now_s - 0.001 * number, 1 + number % 60)
    return shown(
        TWO,
        [request(0, 2, due_s=now_s + 0.05)],
        [*(replica("cpu", i, now_s) for i in range(lanes)), replica("gpu", 0, now_s)],
        models={"m": {"mergeable": False}},
        standings={"m": standing},
        now_s=now_s,
    )


def test_shadow_prices_are_found_again_when_they_are_stale():
    """They live a second, and less where a replica came or went, or traffic doubled: state of the same call else."""
    decide = policies.load("turnout", {})
    rng = np.random.default_rng(0)
    _, first = decide(single(10.0, 100), None, rng)
    assert decide(single(10.5, 150), first, rng)[1]["prices"] == first["prices"]
    for later in (single(11.5, 150), single(10.5, 150, lanes=2), single(10.5, 250)):
        assert decide(later, first, rng)[1]["prices"]["at_s"] == later.now_s
