"""Batches on the accelerator, what it cannot do soon enough on the CPU: after MArk (Zhang et al., ATC 2019).

MArk batches onto accelerators and spills to instances that are ready at once. Here the accelerator is preferred, busy
or not, as long as the deadline is kept and the wait is not too long; what it would do later goes to the CPU.
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

GRID = {"wait": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)}


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the deadline is what a batch may take; `wait` that for which work waits for the accelerator."""

    share: float = SHARE
    wait: float = 0.2


def policy(params: Params) -> Policy:
    """The policy; it keeps no state and draws no randomness."""

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        slow = {name for name, pool in view.pools.items() if pool.spec.device == "cpu"}
        tightest_s = min(workload.slo.deadline_s for workload in view.workloads.values())
        latest_s = view.now_s + params.wait * tightest_s

        def rank(option: Option) -> tuple[bool, bool, bool, float]:
            finish_s = option.start_s + option.mean_s
            preferred = option.pool not in slow and option.start_s <= latest_s
            return not option.feasible, option.feasible and not preferred, option.busy and not preferred, finish_s

        return greedy(view, rank, share=params.share), state

    return decide
