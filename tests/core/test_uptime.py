"""Lives of replicas are counted once, whoever lost, restarted or removed them."""

from __future__ import annotations

from tests.fleets import configured, pool
from turnout.core import events as ev
from turnout.core.uptime import Uptime


def followed(*events):
    """The lives after these events."""
    found = Uptime()
    for event in events:
        found.follow(event)
    return found


def up(at_s, replica="cpu-0"):
    """It takes batches."""
    return ev.ReplicaUp(at_s=at_s, replica=replica, pool="cpu")


def test_a_life_ends_when_it_is_lost_and_a_second_begins():
    """Each life counts by itself; one that lasts counts until now; a second report of the same life changes nothing."""
    found = followed(up(1.0), up(1.5), ev.ReplicaDown(at_s=3.0, replica="cpu-0"), up(4.0))
    assert found.up_s("cpu", 10.0) == (2.0, 6.0)
    assert found.up() == {"cpu": {"cpu-0"}}


def test_a_restart_that_nobody_announced_ends_a_life():
    """What is starting is not up, and what it had in hand is lost."""
    found = followed(up(0.0))
    assert found.follow(ev.ReplicaStarting(at_s=2.0, replica="cpu-0", pool="cpu", ready_s=3.0)) == ["cpu-0"]
    assert found.up_s("cpu", 10.0) == (2.0,)
    assert found.up() == {"cpu": set()}


def test_a_segment_head_repeats_no_life():
    """The snapshot of a later segment names replicas that are up already; to a fresh reader they begin there."""
    head = configured(snapshot={"replicas": [{"name": "cpu-0", "pool": "cpu", "up": True}]})
    assert followed(up(0.0), head).up_s("cpu", 5.0) == (5.0,)
    assert followed(head).pool_of("cpu-0") == "cpu"


def test_a_removed_pool_ends_its_replicas():
    """They are lost, and their lives stay in the bill."""
    found = followed(up(0.0))
    assert found.follow(configured(pool("gpu", "cuda", 1))) == ["cpu-0"]
    assert found.up_s("cpu", 9.0) == (0.0,)
