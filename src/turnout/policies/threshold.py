"""A size threshold: requests of at least `items` go to the accelerator, smaller ones to the CPU.

The rule most teams write by hand, and the scheduler of DeepRecSys (Gupta et al., ISCA 2020). It says nothing of load,
so the other side idles while one queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.policy import Choice, Policy, View, Waiting
from turnout.policies.batching import finish, greedy
from turnout.policies.quanta import SHARE
from turnout.policies.sides import sided

GRID = {"items": (32, 64, 100, 128, 150, 200, 256, 300, 400, 512, 600)}
"""Values that `turnout fit` tries."""


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`items` is the smallest request that goes to an accelerator (any pool whose device is not `cpu`).

    `share` of the deadline is what a batch may take.
    """

    items: int = 256
    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy for this threshold; what one side cannot take, the other does."""

    def accelerated(waiting: Waiting) -> bool:
        return waiting.items >= params.items

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        return greedy(view, finish, sided(view, accelerated), params.share), state

    return decide
