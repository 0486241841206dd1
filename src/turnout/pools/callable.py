"""Runs any Python function as a model: a transform, a tree model, a training step. It knows nothing of what is inside.

`module:function` names the function. How it is called depends on the attributes that it carries:

- none: `function(items)` does the work for a batch of that many items;
- `make_inputs(items, rng) -> dict of arrays`: `function(inputs)` gets what that returns, made outside the timing;
- `setup(device) -> function`: called once per load with "cpu" or "cuda", it returns the function to time, with its
  state (weights, optimiser) fresh and already on the device: a training step. The device must be among `devices`, a
  tuple of names; without `setup` a function runs on the CPU only.

It returns a dict of arrays, an array, a number or None; what it returns is compared between devices. On a device other
than the CPU it must wait for the device before it returns.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from turnout.errors import ConfigError, DeviceAbsentError, ModelError, TurnoutError
from turnout.pools.base import Outcome, Tensors, TensorSpec

ITEMS = "items"
"""The input that carries the batch size to a function without `make_inputs`."""


class CallableModel:
    """A function ready to be timed. Not for several threads at once."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    placement: Mapping[str, int] = {}

    def __init__(self, name: str, function: Callable[[Any], Any], load_s: float, maker: Any) -> None:
        self._name = name
        self._function = function
        self._maker = maker
        self.load_s = load_s

    def make_inputs(self, items: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Inputs for a batch of `items`: the function's own, or the number of items."""
        if self._maker is None:
            return {ITEMS: np.array(items)}
        try:
            return dict(self._maker(items, rng))
        except Exception as error:  # foreign code raises what it likes
            raise ModelError(f"make_inputs of {self._name} failed: {type(error).__name__}: {error}") from error

    def run(self, feeds: Tensors) -> Outcome:
        """Call the function once on `feeds`."""
        argument = dict(feeds) if self._maker is not None else int(feeds[ITEMS])
        start_s = time.perf_counter()
        try:
            result = self._function(argument)
        except TurnoutError:
            raise
        except Exception as error:  # foreign code raises what it likes
            raise ModelError(f"{self._name} failed: {type(error).__name__}: {error}") from error
        service_s = time.perf_counter() - start_s
        return Outcome(outputs=as_tensors(result, self._name), service_s=service_s)

    def close(self) -> None:
        """Let go of the function's state."""
        self._function = _closed


def load(source: str, device: str, options: Mapping[str, Any]) -> CallableModel:
    """Import `source` (`module:function`) and set it up on `device`; there are no options.

    Raises:
        ModelError: it cannot be imported, or its `setup` fails.
        DeviceAbsentError: it does not know `device`.
        ConfigError: an option was given.
    """
    if options:
        raise ConfigError(f"a callable takes no options, got {sorted(options)}")
    function = resolve(source)
    if device not in devices(function):
        raise DeviceAbsentError(f"{source} runs on {', '.join(devices(function))}, not on {device}")
    setup = getattr(function, "setup", None)
    start_s = time.perf_counter()
    try:
        ready = setup(device) if setup else function
    except Exception as error:  # foreign code raises what it likes
        raise ModelError(f"setup of {source} on {device} failed: {type(error).__name__}: {error}") from error
    load_s = time.perf_counter() - start_s
    return CallableModel(source, ready, load_s, getattr(function, "make_inputs", None))


def resolve(source: str) -> Callable[[Any], Any]:
    """The function that `module:function` names.

    Raises:
        ModelError: no such module or function, or its import fails.
    """
    module_name, separator, name = source.partition(":")
    if not (module_name and separator and name):
        raise ModelError(f"{source!r} is not module:function")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        raise ModelError(f"cannot import {module_name}: {error}; is it in this folder or installed?") from error
    except AttributeError as error:
        raise ModelError(f"module {module_name} has no {name}") from error
    except Exception as error:  # the module's own code runs on import
        raise ModelError(f"importing {module_name} failed: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ModelError(f"{source} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def devices(function: Callable[[Any], Any]) -> tuple[str, ...]:
    """Devices on which a function says that it runs."""
    return tuple(getattr(function, "devices", ("cpu",)))


def as_tensors(result: Any, name: str) -> dict[str, np.ndarray]:
    """What a function returned, as named arrays.

    Raises:
        ModelError: it is neither a dict of arrays, an array, a number nor None.
    """
    if result is None:
        return {}
    named = result if isinstance(result, Mapping) else {"output": result}
    try:
        arrays = {str(key): np.asarray(value) for key, value in named.items()}
    except Exception as error:  # a tensor on another device, a ragged list
        raise ModelError(f"what {name} returns cannot be read as arrays: {error}") from error
    return arrays


def _closed(_argument: Any) -> Any:
    """Stands where the function was."""
    raise ModelError("this model is closed")
