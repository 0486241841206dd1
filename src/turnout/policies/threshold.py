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
from turnout.policies.batching import finish, greedy, one_sided
from turnout.policies.quanta import SHARE

GRID = {"items": (32, 64, 100, 128, 150, 200, 256, 300, 400, 512, 600)}
"""Values that `turnout fit` tries."""


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`items` is the smallest request that goes to an accelerator (any pool whose device is not `cpu`).

    `share` of the deadline is what a batch may take.
    """

    items: int = 256
    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy for this threshold; where only one side serves a model, that side takes everything."""

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        forced = one_sided(view)

        def allow(waiting: Waiting, pool: PoolView) -> bool:
            return waiting.model in forced or (waiting.items >= params.items) == (pool.spec.device != "cpu")

        return greedy(view, finish, allow, params.share), state

    return decide
