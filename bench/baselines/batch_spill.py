"""Batches on the accelerator, what it cannot do in time on the CPU: after MArk (Zhang et al., ATC 2019).

MArk batches onto accelerators and spills to instances that are ready at once. Here the accelerator is preferred, busy
or not, as long as the deadline is kept; what it would miss goes to the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.events import Option
from turnout.core.policy import Choice, Policy, View
from turnout.policies.batching import greedy
from turnout.policies.quanta import SHARE


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the deadline is what a batch may take."""

    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy; it keeps no state and draws no randomness."""

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        slow = {name for name, pool in view.pools.items() if pool.spec.device == "cpu"}

        def rank(option: Option) -> tuple[bool, bool, float]:
            finish_s = option.start_s + option.mean_s
            return not option.feasible, option.feasible and option.pool in slow, finish_s

        return greedy(view, rank, share=params.share), state

    return decide
