"""Least headroom, as in llm-d's predicted-latency scorer: the replica that will be just in time.

Headroom is the deadline less the predicted finish. Among replicas with some, the least (best fit: roomier ones stay
free for what needs them); if none has any, the one that is late by least.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from numpy.random import Generator

from baselines.assigned import Load, assigning
from turnout.core.policy import Policy, View, Waiting
from turnout.policies.quanta import SHARE

GRID = {"guard": (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)}


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the deadline is what a batch may take; `guard` is the share of it that headroom must exceed."""

    share: float = SHARE
    guard: float = 0.1


def policy(params: Params) -> Policy:
    """The policy."""

    def pick(view: View, w: Waiting, loads: Sequence[Load], rng: Generator) -> Load | None:
        def headroom_s(load: Load) -> float:
            pool = load.lane.pool
            done_s = load.seconds + pool.p99_s(w.model, min(w.items, pool.spec.max_items))
            return w.deadline_s - view.now_s - done_s - params.guard * (w.deadline_s - w.arrived_s)

        def order(load: Load) -> tuple[bool, float]:
            room_s = headroom_s(load)
            return room_s < 0.0, abs(room_s)

        return min(loads, key=order) if loads else None

    return assigning(pick, params.share)
