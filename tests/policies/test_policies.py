"""Each shipped policy does what its page says, and none keeps or changes what it is given."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from msgspec.structs import replace

from tests.fleets import CPU_LATENCY, GPU_LATENCY, configured, pool
from turnout import policies
from turnout.core.cost import Price
from turnout.core.latency import Calibration
from turnout.core.policy import Hold, PoolView, ReplicaView, Run, View, Waiting
from turnout.core.standing import Standing
from turnout.errors import ConfigError

PARAMS = {"pinned": {"pools": ["gpu"]}}


def view(*items, slack_s=0.05, cpu_free_s=0.0, cpu_slots=1, gpu_price=None):
    """A CPU replica and a GPU replica, and requests of so many items due in `slack_s`."""
    specs = (pool("cpu"), pool("gpu", "cuda", price=gpu_price or Price(usd_per_s=0.5 / 3600)))
    models = {"cpu": CPU_LATENCY, "gpu": GPU_LATENCY}
    return View(
        now_s=0.0,
        waiting=tuple(
            Waiting(rid=i, start=0, items=n, model="m", arrived_s=0.0, deadline_s=slack_s) for i, n in enumerate(items)
        ),
        replicas=(
            ReplicaView(replica="cpu-0", pool="cpu", free_s=cpu_free_s, slots_left=cpu_slots),
            ReplicaView(replica="gpu-0", pool="gpu", free_s=0.0, slots_left=2),
        ),
        pools={s.name: PoolView(s, {"m": Calibration(models[s.name])}) for s in specs},
        workloads={w.name: w for w in configured().models},
        standings={"m": Standing(attainment=0.99)},
        in_flight=(),
        hedges_left=0.0,
    )


def runs(name, seen, **params):
    """The batches that a policy starts: replica -> requests."""
    choices, _ = policies.load(name, params)(seen, None, np.random.default_rng(0))
    return {c.replica: [p.rid for p in c.parts] for c in choices if isinstance(c, Run)}


def test_turnout_takes_the_cheaper_machine_that_is_in_time():
    """Small work goes to the CPU, work that only the GPU can finish to the GPU."""
    assert runs("turnout", view(2)) == {"cpu-0": [0]}
    assert runs("turnout", view(60)) == {"gpu-0": [0]}


def test_turnout_does_not_wait_where_waiting_saves_nothing():
    """On machines paid for anyway an idle GPU is used rather than a busy CPU waited for."""
    assert runs("turnout", view(2, cpu_free_s=0.01, cpu_slots=0)) == {"gpu-0": [0]}


def test_turnout_waits_for_the_machine_that_does_not_bill():
    """Where the GPU bills by use and the CPU is free in time, work is held, but not beyond the GPU's last chance."""
    seen = view(2, cpu_free_s=0.01, cpu_slots=0, gpu_price=Price(usd_per_s=0.5, billing="per_use"))
    choices, _ = policies.load("turnout", {})(seen, None, np.random.default_rng(0))
    (hold,) = choices
    assert isinstance(hold, Hold)
    assert 0.03 < hold.until_s < 0.05


def test_earliest_takes_the_faster_machine():
    """Price does not matter to it."""
    assert runs("earliest", view(20, gpu_price=Price(usd_per_s=9.0, billing="per_use"))) == {"gpu-0": [0]}


def test_threshold_goes_by_size_alone():
    """From the threshold on the accelerator, below it the CPU."""
    assert runs("threshold", view(9, 10), items=10) == {"cpu-0": [0], "gpu-0": [1]}


def test_pinned_uses_its_pools_only():
    """Whatever else is idle."""
    assert runs("pinned", view(1, 1), pools=["gpu"]) == {"gpu-0": [0, 1]}


@pytest.mark.parametrize("name", sorted(policies.POLICIES))
def test_policies_are_pure(name):
    """Deciding twice on the same view gives the same choices and leaves the view as it was."""
    decide = policies.load(name, PARAMS.get(name, {}))
    seen = view(1, 5, 30, 60)
    before = copy.copy(seen.waiting), copy.copy(seen.replicas)
    first, second = (decide(seen, None, np.random.default_rng(1)) for _ in range(2))
    assert first == second
    assert (seen.waiting, seen.replicas) == before


def test_an_unknown_policy_or_parameter_is_said_with_what_there_is():
    """The message lists the policies, or the parameters."""
    with pytest.raises(ConfigError, match="there are: turnout"):
        policies.load("fastest", {})
    with pytest.raises(ConfigError, match="its parameters are: items"):
        policies.load("threshold", {"size": 3})


@pytest.mark.parametrize("name", sorted(policies.POLICIES))
def test_a_tick_without_a_free_slot_does_not_look_at_the_queue(name):
    """Under overload that is the usual tick, and a long queue must not make it dear."""

    class Untouched(tuple):
        __slots__ = ()

        def __iter__(self):
            raise AssertionError("the queue was read")

    seen = view(1, cpu_slots=0)
    busy = tuple(replace(r, slots_left=0) for r in seen.replicas)
    seen = replace(seen, waiting=Untouched(seen.waiting), replicas=busy)
    choices, _ = policies.load(name, PARAMS.get(name, {}))(seen, None, np.random.default_rng(0))
    assert choices == []
