"""The verdict calls what the samples show, leaves open what they do not, and never recommends a wrong answer."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.duels import DISAGREES, PRICES, SIZES, entry, judge, price
from turnout.measure import prices, verdict, words
from turnout.measure.artefact import Branching, Refusal, Stop


def cpu(**more):
    """A CPU that takes 1 ms per item."""
    return entry("cpu fp32", lambda n: 1e-3 * n, threads=1, parity=None, **more)


def gpu(a=8e-3, b=1e-5, **more):
    """A GPU with a fixed cost of eight items: the lines cross between 8 and 16."""
    return entry("cuda fp32", lambda n: a + b * n, **more)


def crossover(found, criterion):
    """The crossover by one criterion."""
    return next(c for c in found.crossovers if c.criterion == criterion)


def test_both_crossovers_are_found_where_the_lines_cross():
    """Faster from 8 items on, cheaper at ten times the price only from about 87: beyond 64, so never in the range."""
    found = judge(cpu(), gpu())
    faster = crossover(found, "seconds")
    assert faster.state == "at"
    assert faster.low <= 8.08 * 1.1
    assert faster.high >= 8.08 * 0.9
    assert faster.low <= faster.items <= faster.high
    assert crossover(found, "usd").state == "never"
    assert crossover(judge(cpu(), gpu(), prices=(price("cpu", 0.1, 1), price("cuda", 0.3))), "usd").items > faster.items


def test_always_and_never_are_said_as_that():
    """A device ahead, or behind, at every size has no crossing to report."""
    assert crossover(judge(cpu(), gpu(a=1e-5)), "seconds").state == "always"
    assert crossover(judge(cpu(), gpu(a=1.0)), "seconds").state == "never"


def test_equal_times_are_too_close_to_call():
    """Noise about equality is not an answer, in the comparisons or in the crossover."""
    found = judge(cpu(), entry("cuda fp32", lambda n: 1e-3 * n, noise=0.3))
    assert crossover(found, "seconds").state in {"too_close", "at"}
    uncalled = [c for c in found.comparisons if c.criterion == "seconds" and not c.winner]
    assert len(uncalled) >= len(SIZES) - 2


def test_too_few_rounds_call_nothing():
    """Under six rounds even a tenfold difference is shown and not called."""
    found = judge(cpu(rounds=3), gpu(a=1e-6, rounds=3))
    assert not any(c.winner for c in found.comparisons)
    assert crossover(found, "seconds").state == "too_close"


def test_a_contender_that_disagrees_is_never_compared():
    """However fast, wrong answers are shown, warned of, and never win."""
    found = judge(cpu(), entry("cpu int8", lambda n: 1e-6 * n, parity=DISAGREES))
    assert not found.comparisons
    assert "int8" not in found.headline
    assert any("never routed to" in warning for warning in found.warnings)
    assert not next(row for row in found.rows if row.label == "cpu int8").routable


def test_agreement_on_random_inputs_is_not_taken_for_more():
    """int8 may agree on noise and be wrong on real inputs: that is said, unless the user gave the inputs."""
    rivals = cpu(), entry("cpu int8", lambda n: 1e-6 * n)
    (warning,) = judge(*rivals, random_inputs=True).warnings
    assert "--inputs" in warning
    assert not judge(*rivals).warnings


def test_an_emulated_device_has_no_price():
    """A software device is labelled and its cost is not priced even when a price is given."""
    found = judge(
        cpu(), entry("webgpu fp32 (software)", lambda n: 1.0 * n, software=True), prices=(*PRICES, price("webgpu", 1))
    )
    assert crossover(found, "usd").state == "not_priced"
    assert "software" in crossover(found, "seconds").text
    assert any("emulated" in warning for warning in found.warnings)


def test_without_an_accelerator_the_cpu_variants_are_compared_and_that_is_said():
    """Only CPU variants: the headline says so, and each is compared with the reference."""
    found = judge(cpu(), entry("cpu fp32 threads=2", lambda n: 6e-4 * n, threads=1))
    assert found.headline.startswith("No accelerator")
    assert found.crossovers == ()
    assert {c.winner for c in found.comparisons} == {"cpu fp32 threads=2"}


def test_a_single_thread_bears_its_share_of_the_price():
    """On two cores one thread costs half: twice the threads at the same speed is twice as dear."""
    two = entry("cpu fp32 threads=2", lambda n: 1e-3 * n, threads=2)
    rows = {r.label: r for r in judge(cpu(), two, prices=(price("cpu", 0.1, 2),)).rows if r.items == 8}
    ratio = rows["cpu fp32 threads=2"].usd_per_million.mid / rows["cpu fp32"].usd_per_million.mid
    assert ratio == pytest.approx(2.0, rel=0.1)
    assert rows["cpu fp32 threads=2"].usd_per_million.mid == pytest.approx(0.1 / 3600 * 1e-3 * 1e6, rel=0.1)


def test_the_ends_of_the_path_bound_the_gain():
    """Amdahl: a model that takes half of the request can at most double its speed, whatever the device."""
    path = {"pre": {1: (5e-4,) * 40}, "post": {1: (5e-4,) * 40}}
    found = judge(cpu(), path=path)
    assert found.path[0].model_share.mid == pytest.approx(0.5, abs=0.02)
    assert found.path[0].most_gain == pytest.approx(2.0, abs=0.1)
    assert "more than 2" in found.bottleneck or "more than 1.9" in found.bottleneck


def test_branching_work_is_named_in_the_bottleneck():
    """Operators that follow data are named with their share; a small share is not worth a sentence."""
    branching = Branching(share=0.4, operators={"If": 0.3, "Gather": 0.1}, tensor={"Conv": 0.6}, source="test")
    assert "If 30%" in judge(cpu(), branching=branching).bottleneck
    small = Branching(share=0.1, operators={"If": 0.1}, tensor={"Conv": 0.9}, source="test")
    assert "If" not in judge(cpu(), branching=small).bottleneck


def test_whatever_limits_the_figures_is_said():
    """Noise, a stale price and a refusal each become a sentence."""
    said = " ".join(
        judge(
            cpu(),
            prices=(price("cpu", 0.1, 1, stale=True),),
            stops=(Stop(items=4, rounds=320, why="noisy"),),
            refusals=(Refusal(label="cuda fp32", reason="9 nodes on the CPU"),),
        ).warnings
    )
    assert "batch 4 the machine is too noisy" in said
    assert "price of cpu is stale" in said
    assert "cuda fp32 was not timed: 9 nodes on the CPU" in said


def test_the_same_seed_gives_the_same_verdict():
    """The bootstrap has no randomness of its own."""
    assert judge(cpu(), gpu()) == judge(cpu(), gpu())


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=50), st.integers(0, 9))
def test_an_interval_holds_its_median(values, seed):
    """Its ends are in order, within the range of the values."""
    found = verdict.interval(values, np.random.default_rng(seed))
    assert min(values) <= found.low <= found.mid <= found.high <= max(values)


@given(st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=1, max_size=6))
def test_a_crossing_is_where_the_rival_stays_ahead(logs):
    """Beyond the crossing the rival is ahead at every size; -inf and +inf mean all sizes and none."""
    sizes = [2**i for i in range(len(logs))]
    found = verdict.crossing(sizes, np.asarray(logs))
    for draw in range(4):
        ahead = [row[draw] < 0.0 for row in logs]
        beyond = [a for size, a in zip(sizes, ahead, strict=True) if size > found[draw]]
        assert all(beyond)
        assert (found[draw] == np.inf) == (not ahead[-1])
        assert (found[draw] == -np.inf) == all(ahead)


@given(st.floats(1e-9, 1e4))
def test_durations_read_with_a_unit(seconds):
    """Three figures and a unit, and the value survives."""
    number, unit = words.duration(seconds).split()
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
    assert float(number) * scale == pytest.approx(seconds, rel=0.01)


def test_the_card_prices_by_core_and_goes_stale():
    """A CPU costs per vCPU of the host, a GPU by its name; 18 months later the price is used and said to be stale."""
    today = date(2026, 12, 1)
    two, four = (prices.tag("cpu", "", cores, {}, today) for cores in (2, 4))
    assert four.usd_per_h == pytest.approx(2 * two.usd_per_h)
    assert (
        prices.tag("cuda", "NVIDIA L40S", 4, {}, today).usd_per_h
        != prices.tag("cuda", "NVIDIA L4", 4, {}, today).usd_per_h
    )
    assert prices.tag("cuda", "NVIDIA H200", 4, {}, today).usd_per_h == pytest.approx(63.296 / 8)
    assert prices.tag("cuda", "unheard of", 4, {}, today) is None
    assert not two.stale
    assert prices.tag("cpu", "", 2, {}, date(2028, 6, 1)).stale
    assert prices.tag("cpu", "", 2, {"cpu": 0.3}, today).usd_per_h == 0.3
