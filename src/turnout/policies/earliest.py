"""Earliest predicted finish: whatever answers first by prediction, at any price. The usual baseline.

It is what a queue-length or least-loaded router becomes once it knows how long work takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.policy import Choice, Policy, View
from turnout.policies.batching import finish, greedy
from turnout.policies.quanta import SHARE


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the deadline is what a batch may take."""

    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy; it keeps no state and draws no randomness."""

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        return greedy(view, finish, share=params.share), state

    return decide
