"""Power of two choices: of two replicas at random, the one with the shorter queue. The default of Ray Serve.

Source: Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12 (2001). Blind to how fast a
replica is.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from numpy.random import Generator

from baselines.assigned import Load, assigning
from turnout.core.policy import Policy, View, Waiting
from turnout.policies.quanta import SHARE


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the deadline is what a batch may take."""

    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy."""
    return assigning(_pick, params.share)


def _pick(view: View, w: Waiting, loads: Sequence[Load], rng: Generator) -> Load | None:
    if len(loads) < 2:
        return loads[0] if loads else None
    first, second = (int(i) for i in rng.choice(len(loads), 2, replace=False))
    return loads[first] if loads[first].requests <= loads[second].requests else loads[second]
