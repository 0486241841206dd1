"""Routers that others use, in the form of this package's policies: the contenders of `bench/routing.py`.

Each module has `Params` and `policy(params)` like those of `turnout.policies`, runs in the same Router with the same
admission, and fills its batches with the same loop, so that only the choice of the replica differs. `GRID` are the
values that are tried when a policy is tuned. Where the published rule leaves something open, the stronger reading is
taken. `load` knows these and the product's own policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from turnout import policies
from turnout.core.policy import Policy

BASELINES = {
    "cpu-only": "baselines.one_sided",
    "gpu-only": "baselines.one_sided",
    "fcfs": "baselines.fcfs",
    "two-choices": "baselines.two_choices",
    "least-headroom": "baselines.least_headroom",
    "queue-depth": "baselines.queue_depth",
    "batch-spill": "baselines.batch_spill",
    "cheapest": "baselines.cheapest",
}
"""Every baseline that the product does not have: name -> module."""

SHARES = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7, 0.85)
"""Shares of the deadline that a batch may take, tried for every policy."""


def load(name: str, params: Mapping[str, Any]) -> Policy:
    """The policy called `name`, of this folder or of the product."""
    if name not in BASELINES:
        return policies.load(name, params)
    module = import_module(BASELINES[name])
    fixed = {"device": name.removesuffix("-only")} if name in {"cpu-only", "gpu-only"} else {}
    made: Policy = module.policy(msgspec.convert({**params, **fixed}, module.Params))
    return made


def grid(name: str) -> dict[str, tuple[Any, ...]]:
    """Parameter -> values to try, in the order in which they are tuned; none for a policy without parameters."""
    module = import_module(BASELINES.get(name) or policies.POLICIES[name])
    found: dict[str, tuple[Any, ...]] = dict(getattr(module, "GRID", {}))
    if "share" in module.Params.__struct_fields__:
        found["share"] = SHARES
    return found
