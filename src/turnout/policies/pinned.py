"""Only these pools: everything goes to the named pools, whatever else is there. "CPU only" and "GPU only" are this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.policy import Choice, Policy, PoolView, View, Waiting
from turnout.policies.batching import finish, greedy
from turnout.policies.quanta import SHARE


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`pools` are the names of the pools that may be used; `share` of the deadline is what a batch may take."""

    pools: tuple[str, ...]
    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy for these pools; work that none of them serves waits until its deadline."""

    def allow(waiting: Waiting, pool: PoolView) -> bool:
        return pool.spec.name in params.pools

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        return greedy(view, finish, allow, params.share), state

    return decide
