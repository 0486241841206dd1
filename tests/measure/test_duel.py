"""The loop is fair, stops when it knows, and says when it does not. Time is a number here: nothing waits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.measure import duel
from turnout.pools.base import Outcome


class Clock:
    """A clock that moves only when a contender runs."""

    now_s = 0.0

    def __call__(self):
        """Tell the time."""
        return self.now_s


class Runner:
    """A contender that takes `seconds(rng)` by the fake clock and remembers when it ran."""

    rival = True

    def __init__(self, label, clock, seconds, log):
        self.label = label
        self.clock = clock
        self.seconds = seconds
        self.log = log

    def run(self, items):
        """Take the time drawn."""
        self.log.append((self.label, items))
        took_s = self.seconds() * items
        self.clock.now_s += took_s
        return Outcome(outputs={}, service_s=took_s)


def fight(seconds, sizes=(1,), budget_s=1e9, seed=0):
    """Run a duel between contenders given as label -> seconds(rng)."""
    clock, log = Clock(), []
    noise = np.random.default_rng(seed)
    runners = [Runner(label, clock, lambda draw=draw: draw(noise), log) for label, draw in seconds.items()]
    lanes = dict.fromkeys(sizes, runners)
    timings, closed = duel.fight(lanes, budget_s=budget_s, clock=clock, rng=np.random.default_rng(seed))
    return timings, closed, log, clock


def test_a_clear_order_settles_early():
    """A contender twice as slow is told apart long before the last look."""
    draw = {"a": lambda r: r.lognormal(0, 0.05), "b": lambda r: r.lognormal(math.log(2), 0.05)}
    _, closed, _, _ = fight(draw)
    assert [(c.why, c.rounds) for c in closed] == [("settled", duel.ENOUGH)]


def test_equal_contenders_are_settled_as_a_tie_or_called_noisy():
    """Pure noise about the same median never becomes an order."""
    steady = {"a": lambda r: r.lognormal(0, 0.001), "b": lambda r: r.lognormal(0, 0.001)}
    assert fight(steady)[1][0].why == "settled"
    wild = {"a": lambda r: r.lognormal(0, 1.0), "b": lambda r: r.lognormal(0, 1.0)}
    _, closed, _, _ = fight(wild)
    assert [(c.why, c.rounds) for c in closed] == [("noisy", duel.LOOKS[-1])]


def test_pure_noise_rarely_makes_an_order():
    """Looking again and again does not raise the error beyond what was promised."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(300):
        a, b = rng.lognormal(0, 0.5, (2, duel.LOOKS[-1]))
        wrong += any(duel.settled({"a": a[:look], "b": b[:look]}) for look in duel.LOOKS)
    assert wrong / 300 <= duel.ALPHA


def test_every_round_runs_everyone_once():
    """Drift hits all alike: in each round of a size every contender runs exactly once, in changing order."""
    draw = {name: lambda r: 1.0 + r.random() for name in "abc"}
    _, _, log, _ = fight(draw, budget_s=100.0)
    rounds = [tuple(label for label, _ in log[i : i + 3]) for i in range(0, len(log), 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 1


def test_large_batches_do_not_starve_small_ones():
    """The open size with least time goes next, so a size a hundred times as slow gets about equal time."""
    wild = {"a": lambda r: r.lognormal(0, 1.0), "b": lambda r: r.lognormal(0, 1.0)}
    timings, closed, _, _ = fight(wild, sizes=(1, 100), budget_s=3000.0, seed=3)
    assert len(timings["a"][1]) >= 10 * len(timings["a"][100])
    assert [c.items for c in closed] == [1, 100]


def test_the_budget_is_kept_and_a_size_without_enough_rounds_says_so():
    """Time over before the first look is "budget", and the duel ends within one round of its budget."""
    _, closed, _, clock = fight({"a": lambda _: 1.0, "b": lambda _: 1.5}, budget_s=6.0)
    assert closed[0].why == "budget"
    assert clock.now_s <= 6.0 + 2.5


def test_one_contender_alone_is_timed_without_an_order():
    """There is nothing to settle, and still enough rounds for a profile."""
    timings, closed, _, _ = fight({"a": lambda _: 1.0})
    assert closed[0].why == "alone"
    assert len(timings["a"][1]) >= duel.LOOKS[0]


def test_what_is_not_a_rival_is_timed_and_not_ranked():
    """The ends of a request path run in every round and cannot keep the order from settling."""
    clock, log = Clock(), []
    fast, end = (Runner(label, clock, lambda: 1.0, log) for label in ("fast", "pre"))
    end.rival = False
    timings, closed = duel.fight({1: [fast, end]}, budget_s=1e9, clock=clock, rng=np.random.default_rng(0))
    assert closed[0].why == "alone"
    assert len(timings["pre"][1]) == len(timings["fast"][1])


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=60), st.floats(1e-6, 0.5))
def test_the_median_interval_holds_the_median(values, alpha):
    """The order statistics enclose the sample's median, and too few values give the whole line."""
    low, high = duel.median_interval(values, alpha)
    assert low <= float(np.median(values)) <= high
    if 2.0 * 0.5 ** len(values) > alpha:
        assert (low, high) == (-math.inf, math.inf)


@pytest.mark.parametrize(("count", "k"), [(10, 2), (20, 6), (40, 14)])
def test_the_interval_is_the_textbook_one(count, k):
    """At 95 % the ranks are those of the tables for the sign test (Conover, Practical Nonparametric Statistics)."""
    assert duel.median_interval(list(range(1, count + 1)), 0.05) == (k, count + 1 - k)
