"""The simulator is exact from a seed, lets the policy see predictions only, and models replicas as they are."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.test_latency import noisy, profile
from tests.fleets import arrived, configured, pool
from turnout import policies, simulate
from turnout.core import events as ev
from turnout.core.latency import fit, line
from turnout.errors import ArtefactError


def run(config, arrivals, **more):
    """Simulate with times drawn from each pool's own model."""
    draws = {(name, "m"): simulate.from_model(model) for name, model in config.models[0].latency.items()}
    return simulate.run(config, arrivals, draws, policies.load, **more)


def bursts(count=400, gap_s=0.003):
    """Steady arrivals of mixed sizes."""
    return [arrived(i, at_s=i * gap_s, items=1 + i % 9) for i in range(count)]


def test_the_same_seed_gives_the_same_run():
    """Everything is a function of config, arrivals and seed."""
    one, two = run(configured(seed=3), bursts()), run(configured(seed=3), bursts())
    assert one == two
    assert run(configured(seed=4), bursts()) != one


def test_a_single_server_is_the_textbook_queue():
    """M/D/1 without batching: the mean wait is that of Pollaczek and Khinchine."""
    rng = np.random.default_rng(2)
    service_s, load = 0.01, 0.7
    at_s = np.cumsum(rng.exponential(service_s / load, 40_000))
    config = configured(
        pool("cpu", replicas=1),
        latency={"cpu": line(service_s, 0.0)},
        workload={"mergeable": False, "late": "serve"},
    )
    summary = run(config, [arrived(i, at_s=float(t)) for i, t in enumerate(at_s)])
    wait_s = load * service_s / (2 * (1 - load))
    assert summary.latency_mean_s == pytest.approx(service_s + wait_s, rel=0.05)
    assert summary.pools[0].utilisation == pytest.approx(load, rel=0.03)


def test_batching_raises_capacity():
    """What a single request at a time cannot carry, merged batches can."""
    latency = {"cpu": line(0.010, 0.0001)}
    arrivals = bursts(500, gap_s=0.004)
    alone = run(configured(pool("cpu", replicas=1), latency=latency, workload={"mergeable": False}), arrivals)
    merged = run(configured(pool("cpu", replicas=1), latency=latency), arrivals)
    assert alone.attainment < 0.6
    assert merged.attainment > 0.99


def test_a_lost_replica_costs_attainment_and_loses_nothing():
    """Every request is answered although half the fleet goes away for good."""
    faults = [ev.ReplicaDown(at_s=0.3, replica="cpu-0", why="power")]
    config = configured(pool("cpu", replicas=2))
    whole, broken = run(config, bursts()), run(config, bursts(), faults=faults)
    assert broken.replies + sum(broken.rejects.values()) == 400
    assert broken.attainment < whole.attainment
    assert broken.retried_batches == 1


def test_a_hopeless_run_ends_early():
    """It ends with the tick in which more requests than may be have missed, and says so; a good one never does."""
    arrivals = bursts(400, gap_s=0.0001)
    whole = run(configured(), arrivals)
    missed = whole.requests - whole.met
    assert missed > 50
    stopped = run(configured(), arrivals, max_missed=20)
    assert stopped.stopped_early
    assert not whole.stopped_early
    assert stopped.requests - stopped.met > 20
    assert stopped.replies < whole.replies
    assert run(configured(), arrivals, max_missed=missed) == whole
    assert run(configured(), bursts(), max_missed=400) == run(configured(), bursts())


def test_draws_come_from_the_samples():
    """At a measured size only measured times occur; between sizes they lie between; beyond, it is an error."""
    measured = profile(noisy(lambda n: 0.001 * n, (4, 8), spread=0.1))
    draw = simulate.from_profile(measured)
    assert {draw(4, simulate.key(i), 0.0) for i in range(50)} <= set(measured.samples[0].service_s)
    low, high = min(measured.samples[0].service_s), max(measured.samples[1].service_s)
    assert all(low <= draw(6, simulate.key(i), 0.0) <= high for i in range(50))
    with pytest.raises(ArtefactError, match="beyond the profile"):
        draw(9, 0, 0.0)


def test_predictions_cover_what_they_promise():
    """With realised times from the profile itself, 98 to 100 % of batches keep their predicted p99."""
    times = noisy(lambda n: 0.002 + 0.0005 * n, (1, 2, 4, 8, 16, 32, 64), spread=0.1)
    measured = profile(times)
    config = configured(pool("cpu", replicas=2), latency={"cpu": fit(measured)})
    draws = {("cpu", "m"): simulate.from_profile(measured)}
    summary = simulate.run(config, bursts(3000), draws, policies.load)
    assert 0.98 <= summary.coverage_p99 <= 1.0


def test_no_policy_is_far_below_the_default_on_a_mixed_fleet():
    """The default meets at least what pinning to one pool or a size threshold does."""
    arrivals = bursts(800, gap_s=0.001)
    default = run(configured(), arrivals)
    for policy, params in (("pinned", {"pools": ["cpu"]}), ("pinned", {"pools": ["gpu"]}), ("threshold", {"items": 6})):
        assert run(configured(policy=policy, params=params), arrivals).attainment <= default.attainment + 0.01
