"""Queue depths, as in WindVE (2025): the accelerator takes requests until its queue is full, then the CPU, then none.

The paper fits a depth per device in a stress test and answers "busy" when both are full; here such requests wait, and
are refused by the same admission as everyone's.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from numpy.random import Generator

from baselines.assigned import Load, assigning
from turnout.core.policy import Policy, View, Waiting
from turnout.policies.quanta import SHARE

GRID = {"gpu_depth": (1, 2, 3, 4, 6, 9, 14, 20), "cpu_depth": (1, 2, 3, 4, 6)}


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """Depths are in requests per replica, what it runs included; `share` of the deadline is what a batch may take."""

    gpu_depth: int = 4
    cpu_depth: int = 2
    share: float = SHARE


def policy(params: Params) -> Policy:
    """The policy."""

    def pick(view: View, w: Waiting, loads: Sequence[Load], rng: Generator) -> Load | None:
        for accelerated, depth in ((True, params.gpu_depth), (False, params.cpu_depth)):
            side = [load for load in loads if (load.lane.pool.spec.device != "cpu") == accelerated]
            least = min(side, key=lambda load: load.requests, default=None)
            if least is not None and least.requests < depth:
                return least
        return None

    return assigning(pick, params.share)
