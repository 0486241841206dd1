"""CPU-only or GPU-only: one kind of machine takes everything, batched and by earliest finish; the other idles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct
from numpy.random import Generator

from turnout.core.policy import Choice, Policy, PoolView, View, Waiting
from turnout.policies.batching import finish, greedy
from turnout.policies.quanta import SHARE


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`device` is the side that is used; `share` of the deadline is what a batch may take."""

    device: Literal["cpu", "gpu"]
    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy; it keeps no state and draws no randomness."""

    def allow(waiting: Waiting, pool: PoolView) -> bool:
        return (pool.spec.device == "cpu") == (params.device == "cpu")

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        return greedy(view, finish, allow, params.share), state

    return decide
