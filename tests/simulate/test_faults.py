"""Each fault does what it says, and nothing else; what is no fault is refused."""

from __future__ import annotations

import pytest

from tests.fleets import arrived, configured, pool
from turnout import policies, simulate
from turnout.core import events as ev
from turnout.core.fleet import Fleet
from turnout.core.latency import line
from turnout.errors import ConfigError
from turnout.simulate import faults

FLEET = Fleet(pools=(pool("cpu", replicas=2), pool("gpu", "cuda", 1)))
TEXTS = (
    "lost:cpu-0@1", "lost:cpu-0@1,back=2.5", "slow:cpu-1@1-2,factor=3", "drift:gpu@1,factor=2", "cold:gpu-0,start_s=2",
)  # fmt: skip


def seen(*texts, replicas=1):
    """A pool "cpu" of 0.01 s per request, one request every 0.05 s for 4 s, under these faults: summary and log."""
    config = configured(
        pool("cpu", replicas=replicas),
        latency={"cpu": line(0.01, 0.0)},
        workload={"mergeable": False, "late": "serve"},
    )
    fleet = config.fleet
    broken = [faults.parse(text, fleet) for text in texts]
    log = []
    draw = faults.drifted(simulate.from_model(line(0.01, 0.0)), "cpu", broken)
    summary = simulate.run(
        config,
        [arrived(i, at_s=i * 0.05, slack_s=0.02) for i in range(80)],
        {("cpu", "m"): draw},
        policies.load,
        faults=faults.events(broken, fleet),
        slow=faults.slow(broken),
        observe=lambda event, actions: log.append((event, tuple(actions))),
    )
    return summary, log


def services(log):
    """(second of its beginning, replica, seconds) of every batch that finished."""
    on = {a.batch: a.replica for _, actions in log for a in actions if isinstance(a, ev.Dispatch)}
    return [(e.at_s - e.service_s, on[e.batch], e.service_s) for e, _ in log if isinstance(e, ev.Finished)]


@pytest.mark.parametrize("text", TEXTS)
def test_faults_are_read_and_written(text):
    """What is read is written the same."""
    assert faults.text(faults.parse(text, FLEET)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [("broken:cpu-0@1", "none of: lost"), ("lost:cpu-0", "none of"), ("lost:cpu-7@1", "there are: cpu-0, cpu-1, gpu-0"),
     ("drift:cpu-0@1,factor=2", "there are: cpu, gpu"), ("lost:cpu-0@2,back=1", "before it is lost"),
     ("slow:cpu-0@2-1,factor=2", "ends before"), ("slow:cpu-0@1-2,factor=0", "above 0"), ("cold:cpu-0", "none of")],
)  # fmt: skip
def test_what_is_no_fault_is_refused(text, said):
    """The message says what is wrong, or what there is."""
    with pytest.raises(ConfigError, match=said):
        faults.parse(text, FLEET)


def test_a_lost_replica_runs_nothing_more():
    """From the loss on it has no batch, and the other has all."""
    summary, log = seen("lost:cpu-0@1", replicas=2)
    assert all(at_s < 1.0 for at_s, replica, _ in services(log) if replica == "cpu-0")
    assert summary.replies == 80


def test_a_lost_replica_comes_back_cold():
    """Down at once, starting meanwhile, up and at work again when it says; what waited is late."""
    summary, log = seen("lost:cpu-0@1,back=2")
    assert not [at_s for at_s, _, _ in services(log) if 1.0 <= at_s < 2.0 - 1e-9]
    assert [type(e).__name__ for e, _ in log if isinstance(e, ev.ReplicaDown | ev.ReplicaStarting | ev.ReplicaUp)] == [
        "ReplicaUp", "ReplicaDown", "ReplicaStarting", "ReplicaUp",
    ]  # fmt: skip
    assert summary.replies == 80
    assert summary.met < 65


def test_a_slow_replica_is_slow_then_and_there():
    """Batches that begin on it in that time take the factor, all others their usual time."""
    _, log = seen("slow:cpu-0@1.02-2.02,factor=3", replicas=2)
    rows = services(log)
    assert {round(s, 9) for at_s, r, s in rows if r == "cpu-0" and 1.02 <= at_s < 2.02} == {0.03}
    assert {round(s, 9) for at_s, r, s in rows if r == "cpu-1" or not 1.02 <= at_s < 2.02} == {0.01}


def test_a_drift_is_of_the_whole_pool_and_lasts():
    """Every batch that begins later takes the factor."""
    _, log = seen("drift:cpu@1.02,factor=1.5", replicas=2)
    assert {round(s, 9) for at_s, _, s in services(log) if at_s < 1.02} == {0.01}
    assert {round(s, 9) for at_s, _, s in services(log) if at_s >= 1.02} == {0.015}


def test_a_cold_replica_is_up_when_it_has_started():
    """Until then nothing runs there, nothing is billed, and requests wait for it rather than being refused."""
    summary, log = seen("cold:cpu-0,start_s=2")
    assert min(at_s for at_s, _, _ in services(log)) == pytest.approx(2.0)
    assert summary.pools[0].up_s == pytest.approx(summary.duration_s - 2.0, abs=1e-6)
    assert summary.replies == 80
    assert not summary.rejects
