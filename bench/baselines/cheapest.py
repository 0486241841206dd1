"""Cheapest feasible, with batching: of the batches that keep every deadline in them, the least dollars per item.

On machines already paid for all marginal costs are equal (see `core.cost`); then an idle replica comes before a busy
one, since waiting saves nothing, then the smaller list price per item, which keeps the dearer machine free for what
only it can do, and then the earlier finish. If nothing keeps the deadline, the earliest finish is the best left.
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
        return greedy(view, _cost, share=params.share), state

    return decide


def _cost(option: Option) -> tuple[bool, float, bool, float, float]:
    finish_s = option.start_s + option.mean_s
    if not option.feasible:
        return True, finish_s, option.busy, 0.0, 0.0
    return False, option.marginal_usd / option.items, option.busy, option.list_usd / option.items, finish_s
