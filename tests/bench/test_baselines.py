"""The baselines of the routing bench do what their sources say, in the same router and with the same guarantees."""

from __future__ import annotations

from collections import Counter

import baselines
import hypothesis.strategies as st
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from tests.fleets import configured, pool
from tests.policies.views import pools_of, replica, requests, shown
from turnout import policies, simulate
from turnout.core import events as ev
from turnout.core.latency import line
from turnout.core.policy import InFlight, Run
from turnout.simulate import from_model

NAMES = sorted({*baselines.BASELINES, *policies.POLICIES} - {"pinned"})

CPU, GPU = line(0.001, 0.001), line(0.010, 0.0001)


def view(sizes, replicas=None, in_flight=(), due_s=0.1):
    """One CPU and one GPU pool, and requests of these sizes, all due at once and uncut."""
    seen = shown({"cpu": {"m": CPU}, "gpu": {"m": GPU}}, requests(sizes, due_s), replicas, slo_s=due_s)
    return msgspec.structs.replace(seen, in_flight=tuple(in_flight))


def chosen(name, seen, seed=0, **params):
    """What a contender chooses, fresh."""
    return baselines.load(name, params)(seen, None, np.random.default_rng(seed))[0]


def flying(name, parts, items=1):
    """A batch of so many requests that is on a replica."""
    return InFlight(
        batch=1,
        replica=name,
        pool=name.partition("-")[0],
        model="m",
        parts=tuple(ev.Part(100 + i, 0, items) for i in range(parts)),
        items=parts * items,
        dispatched_s=0.0,
        finish_s=0.01,
        p99_finish_s=0.01,
        deadline_s=1.0,
    )


@pytest.mark.parametrize(("name", "side"), [("cpu-only", "cpu"), ("gpu-only", "gpu")])
def test_one_side_leaves_the_other_alone(name, side):
    """However much waits, and though the other side is idle."""
    assert set().union(*pools_of(chosen(name, view([1, 5, 40, 300]))).values()) == {side}


def test_first_come_first_served_takes_what_is_free():
    """The GPU is faster for 50 items, but busy: the CPU has it at once, late or not."""
    busy = [replica("cpu"), replica("gpu", free_s=0.001, slots=0)]
    assert pools_of(chosen("fcfs", view([50], busy, due_s=0.04))) == {0: {"cpu"}}
    assert pools_of(chosen("fcfs", view([50]))) == {0: {"gpu"}}


def test_two_choices_takes_the_shorter_of_the_two():
    """With two replicas the draw is both, and the one with nothing on it wins whatever its speed."""
    replicas = [replica("cpu", slots=2), replica("gpu", slots=2)]
    for seed in range(10):
        assert pools_of(chosen("two-choices", view([1], replicas, [flying("cpu-0", 1)]), seed)) == {0: {"gpu"}}
        assert pools_of(chosen("two-choices", view([1], replicas, [flying("gpu-0", 1)]), seed)) == {0: {"cpu"}}


def test_two_choices_draws_every_pair():
    """Over many seeds each of four idle replicas gets the request about as often."""
    seen = view([1], [replica("cpu", i) for i in range(4)])
    found = Counter(choice.replica for seed in range(200) for choice in chosen("two-choices", seen, seed))
    assert len(found) == 4
    assert min(found.values()) > 25


def test_least_headroom_is_the_tightest_that_is_in_time():
    """20 items take 21 ms on the CPU and 12 on the GPU: the slower has less headroom, until it has none."""
    assert pools_of(chosen("least-headroom", view([20], due_s=0.1))) == {0: {"cpu"}}
    assert pools_of(chosen("least-headroom", view([20], due_s=0.02))) == {0: {"gpu"}}


def test_queue_depth_fills_the_accelerator_first():
    """The GPU up to its depth, then the CPU up to its own, and the rest waits."""
    found = pools_of(chosen("queue-depth", view([1] * 6), gpu_depth=3, cpu_depth=2))
    assert Counter(next(iter(side)) for side in found.values()) == {"gpu": 3, "cpu": 2}


def test_batch_spill_waits_for_the_accelerator_only_so_long():
    """A GPU that is free in 10 ms is waited for if a fifth of the deadline is patience, and not if a twentieth is."""
    busy = [replica("cpu"), replica("gpu", free_s=0.010, slots=0)]
    assert pools_of(chosen("batch-spill", view([5], busy), wait=0.2)) == {}
    assert pools_of(chosen("batch-spill", view([5], busy), wait=0.05)) == {0: {"cpu"}}


def test_cheapest_keeps_the_dearer_machine_free():
    """What the CPU does in time goes there, though the GPU would be sooner; what it cannot goes to the GPU."""
    assert pools_of(chosen("cheapest", view([50]))) == {0: {"cpu"}}
    assert pools_of(chosen("cheapest", view([200]))) == {0: {"gpu"}}


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_grid_is_a_policy(name):
    """What is tuned are parameters that the policy has."""
    for parameter, values in baselines.grid(name).items():
        for value in values:
            baselines.load(name, {parameter: value})


def test_an_unknown_name_or_parameter_is_refused():
    """The registry of the product answers for names that this folder does not have."""
    with pytest.raises(Exception, match="no-such-policy"):
        baselines.load("no-such-policy", {})
    with pytest.raises(msgspec.ValidationError, match="depth"):
        baselines.load("queue-depth", {"depth": 3})


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10)
@given(
    gaps=st.lists(st.floats(0.0, 0.02), min_size=1, max_size=40),
    sizes=st.lists(st.integers(1, 60), min_size=40, max_size=40),
    parts=st.integers(1, 4),
    mergeable=st.booleans(),
)
def test_each_request_is_answered_once_and_no_choice_is_refused(name, gaps, sizes, parts, mergeable):
    """Under any traffic, merged or not, cut or not: a contender loses to policies, never to rules."""
    config = configured(
        pool("cpu", replicas=2),
        pool("gpu", "cuda", 1, slots=1),
        latency={"cpu": CPU, "gpu": GPU},
        policy=name,
        workload={"mergeable": mergeable},
    )
    at_s, arrivals = 0.0, []
    for rid, (gap_s, items) in enumerate(zip(gaps, sizes, strict=False)):
        at_s += gap_s
        arrivals.append(ev.Arrived(at_s=at_s, rid=rid, model="m", items=items, deadline_s=at_s + 0.05, max_parts=parts))
    answers: Counter[int] = Counter()
    refused: list[ev.Refused] = []

    def observe(_event, actions):
        answers.update(a.rid for a in actions if isinstance(a, ev.Reply | ev.Reject))
        refused.extend(a for a in actions if isinstance(a, ev.Refused))

    draws = {("cpu", "m"): from_model(CPU), ("gpu", "m"): from_model(GPU)}
    simulate.run(config, arrivals, draws, baselines.load, observe=observe)
    assert answers == dict.fromkeys(range(len(arrivals)), 1)
    assert not refused


def test_choices_are_runs_or_waits():
    """A baseline that assigns leaves what its replica cannot begin yet in the queue, and does not bind it."""
    seen = view([5] * 3, [replica("cpu", free_s=0.01, slots=0), replica("gpu")])
    assert all(isinstance(choice, Run) for choice in chosen("two-choices", seen))
