"""A router that learns, end to end: published service times, disturbed, and each predicted before it is known."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from turnout import policies, simulate
from turnout.core import events as ev
from turnout.demo.elsewhere import CPU, GPU, Setting, configured, profile, traffic

SETTING = Setting(model="ncf", deadline_s=0.006, rate_qps=300.0, count=9_000)
"""Published objective and a fifth: machines that are half as fast can still keep it, so a miss is one of learning."""

HALF_S = SETTING.count / SETTING.rate_qps / 2


def disturbed(pool, trouble):
    """The published times of a pool, under one kind of trouble; a draw is fixed by its key."""
    draw = simulate.from_profile(profile("ncf", pool))
    wrong = np.random.default_rng(len(pool)).uniform(0.7, 1.3, 11).tolist()

    def slowed(items, key, now_s):
        seconds = draw(items, key, now_s)
        luck = np.random.default_rng(key)
        if "wrong by size" in trouble:
            seconds *= wrong[items.bit_length()]
        if "noisy" in trouble:
            seconds *= float(luck.lognormal(0.0, 0.2))
        if "slow at times" in trouble and luck.random() < 0.02:
            seconds *= 3.5
        if "twice as slow" in trouble and now_s > HALF_S:
            seconds *= 2.0
        return seconds

    return slowed


def ran(trouble, known=1.0):
    """The summary of one run, requests in time and requests by second of arrival; `known` scales what is predicted."""
    arrived, met, open_requests = np.zeros(80), np.zeros(80), {}

    def observe(event, actions):
        if isinstance(event, ev.Arrived):
            open_requests[event.rid] = event
            arrived[int(event.at_s)] += 1
        for action in actions:
            if isinstance(action, ev.Reply):
                request = open_requests.pop(action.rid)
                met[int(request.at_s)] += event.at_s <= request.deadline_s

    draws = {(pool, "ncf"): disturbed(pool, trouble) for pool in (CPU, GPU)}
    head = configured(SETTING, 4, 2, "earliest", {})
    (workload,) = head.models
    told = {p: replace(m, knot_s=tuple(known * s for s in m.knot_s)) for p, m in workload.latency.items()}
    head = replace(head, models=(replace(workload, latency=told),))
    return simulate.run(head, traffic(SETTING), draws, policies.load, observe=observe), met, arrived


@pytest.mark.parametrize(
    "trouble",
    [
        ("none",),
        ("wrong by size",),
        ("noisy",),
        ("slow at times",),
        ("wrong by size", "noisy", "slow at times"),
        ("twice as slow",),
        ("wrong by size", "noisy", "twice as slow"),
    ],
    ids=", ".join,
)
def test_coverage_holds_in_a_running_router(trouble):
    """From 98 to 99.5 % of all batches take at most the p99 that was predicted when they were dispatched."""
    summary, _, _ = ran(trouble)
    assert summary.batches > 3000
    assert 0.98 <= summary.coverage_p99 <= 0.995


@pytest.mark.parametrize("trouble", [("twice as slow",), ("wrong by size", "twice as slow")], ids=", ".join)
def test_attainment_is_back_within_seconds_of_a_drift(trouble):
    """All machines become twice as slow half-way; five seconds later 99 % are in time again, as before."""
    _, met, arrived = ran(trouble)
    half, end = int(HALF_S), int(2 * HALF_S) - 1
    assert met[2:half].sum() / arrived[2:half].sum() >= 0.99
    assert met[half + 5 : end].sum() / arrived[half + 5 : end].sum() >= 0.99


def test_learning_a_drift_is_as_good_as_being_told():
    """From five seconds after the drift, as many are in time as with models that knew of it all along."""
    learnt, told = (ran(("noisy", "twice as slow"), known) for known in (1.0, 2.0))
    after = slice(int(HALF_S) + 5, int(2 * HALF_S) - 1)
    assert learnt[1][after].sum() == pytest.approx(told[1][after].sum(), rel=0.003)
