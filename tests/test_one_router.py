"""One router, three drivers: whatever drove it, its log replays to the identical actions, for every policy."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from tests.fleets import arrived, configured, pool
from turnout import policies, replay, simulate, telemetry
from turnout.core import events as ev
from turnout.core.fleet import Limits
from turnout.core.router import Router

PARAMS = {"pinned": {"pools": ["gpu"]}, "threshold": {"items": 8}}

REQUESTS = st.lists(
    st.tuples(st.floats(0.0, 0.02), st.integers(1, 90), st.floats(0.001, 0.2), st.integers(1, 3)),
    min_size=1,
    max_size=60,
)
FAULTS = st.lists(
    st.tuples(st.floats(0.0, 0.4), st.sampled_from(["cpu-0", "cpu-1", "gpu-0"]), st.floats(0.001, 0.1)), max_size=4
)


def traffic(requests):
    """Arrivals from (gap, items, slack, parts)."""
    at_s, found = 0.0, []
    for rid, (gap_s, items, slack_s, parts) in enumerate(requests):
        at_s += gap_s
        found.append(arrived(rid, at_s=at_s, items=items, slack_s=slack_s, max_parts=parts))
    return found


def losses(faults):
    """Each replica is lost at its moment, and up again after a while."""
    events = []
    for at_s, name, away_s in faults:
        events.append(ev.ReplicaDown(at_s=at_s, replica=name, why="lost"))
        events.append(ev.ReplicaUp(at_s=at_s + away_s, replica=name, pool=name.split("-")[0]))
    return events


def simulated(config, requests, faults, observe):
    """One simulated run, seen by `observe`."""
    draws = {(name, "m"): simulate.from_model(model) for name, model in config.models[0].latency.items()}
    return simulate.run(config, traffic(requests), draws, policies.load, faults=losses(faults), observe=observe)


@pytest.mark.parametrize("policy", sorted(policies.POLICIES))
@given(requests=REQUESTS, faults=FAULTS, mergeable=st.booleans(), late=st.sampled_from(["reject", "serve"]))
@settings(max_examples=40, deadline=None)
def test_a_simulated_log_replays_identically(policy, requests, faults, mergeable, late):
    """For every policy of the registry, with lost replicas, splits and rejects, and every request answered once."""
    workload = {"mergeable": mergeable, "late": late}
    config = configured(policy=policy, params=PARAMS.get(policy, {}), limits=Limits(max_attempts=2), workload=workload)
    with TemporaryDirectory() as folder:
        writer = telemetry.LogWriter(Path(folder), "run")
        path = writer.start(config)
        answers = []

        def observe(event, actions):
            answers.extend(a.rid for a in actions if isinstance(a, ev.Reply | ev.Reject))
            if not isinstance(event, ev.Configured):
                writer.write([event, *actions])

        summary = simulated(config, requests, faults, observe)
        writer.close()
        assert sorted(answers) == list(range(len(requests)))
        assert summary.replies + sum(summary.rejects.values()) == len(requests)
        assert replay.verify(path, policies.load).identical


@given(requests=REQUESTS, faults=FAULTS, cut=st.integers(1, 200))
@settings(max_examples=40, deadline=None)
def test_a_segment_can_be_replayed_alone(requests, faults, cut):
    """A router started from the snapshot at any cut does, on the events after it, what the first one did."""
    config = configured(pool("cpu", replicas=2), pool("gpu", "cuda", 1))
    log = []
    simulated(config, requests, faults, lambda event, actions: log.append((event, actions)))
    first = Router(policies.load)
    for event, _ in log[:cut]:
        first.handle(event)
    fresh = Router(policies.load)
    assert fresh.handle(replace(config, snapshot=first.snapshot())) == []
    for event, actions in log[cut:]:
        assert fresh.handle(event) == actions
