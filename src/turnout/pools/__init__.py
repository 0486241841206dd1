"""Adapters that execute a batch. Each is named here by an import string and imported only when chosen."""

from __future__ import annotations

from importlib import import_module

from turnout.errors import ConfigError
from turnout.pools.base import LoadedModel, Loader, Outcome, TensorSpec

BACKENDS = {
    "onnx": "turnout.pools.onnx:load",
    "torch": "turnout.pools.torch:load",
    "callable": "turnout.pools.callable:load",
    "simulated": "turnout.pools.simulated:load",
}
"""Every backend: name -> "module:function" with the shape of `base.Loader`."""

__all__ = ["BACKENDS", "LoadedModel", "Loader", "Outcome", "TensorSpec", "loader"]


def loader(name: str) -> Loader:
    """The loader of the backend called `name`.

    Raises:
        ConfigError: there is no such backend.
        ExtraMissingError: its package is not installed.
    """
    if name not in BACKENDS:
        msg = f"no backend is called {name!r}; there are: {', '.join(BACKENDS)}"
        raise ConfigError(msg)
    module, _, attribute = BACKENDS[name].partition(":")
    load: Loader = getattr(import_module(module), attribute)
    return load
