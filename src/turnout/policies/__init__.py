"""The policies, one small file each, named here by import strings. `load` makes one from its parameters.

A policy's module has `Params` (a frozen struct; every field has a unit or a meaning in its docstring) and
`policy(params)`, which returns the pure function of `core.policy.Policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from turnout.core.policy import Policy
from turnout.errors import ConfigError

POLICIES = {
    "turnout": "turnout.policies.turnout",
    "kairos": "turnout.policies.kairos",
    "static": "turnout.policies.static",
    "earliest": "turnout.policies.earliest",
    "threshold": "turnout.policies.threshold",
    "pinned": "turnout.policies.pinned",
}
"""Every policy: name -> module."""

DEFAULT = "turnout"


def load(name: str, params: Mapping[str, Any]) -> Policy:
    """The policy called `name` with these parameters.

    Raises:
        ConfigError: no such policy, or a parameter that it does not have or cannot take.
    """
    if name not in POLICIES:
        msg = f"no policy is called {name!r}; there are: {', '.join(POLICIES)}"
        raise ConfigError(msg)
    module = import_module(POLICIES[name])
    try:
        values = msgspec.convert(dict(params), module.Params)
    except msgspec.ValidationError as error:
        msg = f"policy {name}: {error}; its parameters are: {', '.join(module.Params.__struct_fields__) or 'none'}"
        raise ConfigError(msg) from error
    made: Policy = module.policy(values)
    return made
