"""What is to run, and the objective it must meet."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from turnout.core.latency import LatencyModel


class Slo(Struct, frozen=True, kw_only=True):
    """Latency objective: the share `attainment` of all requests that arrived is answered within `deadline_s`."""

    deadline_s: float
    attainment: float = 0.99


class Workload(Struct, frozen=True, kw_only=True):
    """An inference model as the router sees it.

    `latency` maps a pool's name to the model's predictor there; a pool that is not in it cannot serve the model.
    `mergeable`: items of several requests may share a batch. `late` says what becomes of a request that no replica
    can finish by its deadline any more: "reject" answers at once, "serve" runs it all the same (still a miss).
    `weights` is the number of its parameters, 0 if nobody said. `digest` identifies the model's weights, so that a log
    can be matched with the profiles behind it.
    """

    name: str
    slo: Slo
    latency: dict[str, LatencyModel]
    mergeable: bool = True
    late: Literal["reject", "serve"] = "reject"
    weights: int = 0
    digest: str = ""
