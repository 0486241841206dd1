"""A size threshold: requests of at least `items` go to the accelerator, smaller ones to the CPU.

The rule most teams write by hand, and the scheduler of DeepRecSys (Gupta et al., ISCA 2020). It says nothing of load,
so the other side idles while one queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.policy import Choice, Policy, PoolView, View, Waiting
from turnout.policies.batching import finish, greedy


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`items` is the smallest request that goes to an accelerator (any pool whose device is not `cpu`)."""

    items: int = 256


GRID = {"items": (32, 64, 100, 128, 150, 200, 256, 300, 400, 512, 600)}
"""Values that `turnout fit` tries."""


def policy(params: Params) -> Policy:
    """The policy for this threshold; where only one side serves a model, that side takes everything."""

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        devices = {
            model: {p.spec.device != "cpu" for p in view.pools.values() if p.serves(model)} for model in view.workloads
        }

        def allow(waiting: Waiting, pool: PoolView) -> bool:
            wants_accelerator = waiting.items >= params.items
            return wants_accelerator == (pool.spec.device != "cpu") or len(devices[waiting.model]) == 1

        return greedy(view, finish, allow), state

    return decide
