"""First come, first served: the oldest waiting request goes to an idle replica at once, whichever it is.

Of several idle ones it takes the fastest for it. It never waits for a better one, which is what makes it weak: a large
request lands on whatever is free. With one deadline for all, the order of deadline is that of arrival.
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
        return greedy(view, _idle_first, share=params.share), state

    return decide


def _idle_first(option: Option) -> tuple[bool, float]:
    return option.busy, option.mean_s
