"""A static rule: the size, the deadline and the model's weights decide, whatever the load. What many teams start from.

Batches below 8 go to the CPU, above 256 to the GPU; then deadlines under 50 ms to the CPU, models over 10 billion
weights to the GPU, and the rest to the CPU. What one side cannot take, the other does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.policy import Choice, Policy, View, Waiting
from turnout.policies.batching import finish, greedy
from turnout.policies.sides import sided


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`small` and `large` are in items, `tight_s` in seconds, `weights` in parameters of the model."""

    small: int = 8
    large: int = 256
    tight_s: float = 0.050
    weights: int = 10_000_000_000


def policy(params: Params) -> Policy:
    """The policy; it keeps no state and draws no randomness."""

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        def accelerated(waiting: Waiting) -> bool:
            if waiting.items < params.small:
                return False
            if waiting.items > params.large:
                return True
            large = view.workloads[waiting.model].weights > params.weights
            return large and waiting.deadline_s - waiting.arrived_s >= params.tight_s

        return greedy(view, finish, sided(view, accelerated)), state

    return decide
