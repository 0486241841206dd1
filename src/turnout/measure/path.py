"""The ends of a request path around the model: `pre` makes its inputs, `post` reads its outputs, both on the CPU.

Conventions: `pre(raw) -> dict of the model's inputs`, where `raw` is what its attribute `make_inputs(items, rng)`
returns, or the generated inputs where it has none; `post(outputs) -> anything`, given a dict of the model's outputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from turnout.errors import ModelError
from turnout.pools.base import Outcome, Tensors
from turnout.pools.callable import resolve


class End:
    """One end, timed along in every round and not ranked."""

    rival = False

    def __init__(self, label: str, source: str) -> None:
        self.label = label
        self.source = source
        self._function = resolve(source)
        self._arguments: dict[int, Any] = {}

    def give(self, items: int, argument: Any) -> Any:
        """Fix the argument at a batch size and return what the function makes of it."""
        self._arguments[items] = argument
        return self.call(items)

    def call(self, items: int) -> Any:
        """Call the function once.

        Raises:
            ModelError: it raises; the message has its error.
        """
        try:
            return self._function(self._arguments[items])
        except Exception as error:  # foreign code raises what it likes
            raise ModelError(f"--{self.label} {self.source} failed: {type(error).__name__}: {error}") from error

    def raw(self, items: int, seed: int, fallback: Callable[[int], Mapping[str, np.ndarray]]) -> Any:
        """Raw items for `pre`: its own, else the model's generated inputs."""
        make = getattr(self._function, "make_inputs", None)
        return make(items, np.random.default_rng([seed, items])) if make else fallback(items)

    def run(self, items: int) -> Outcome:
        """Time one call."""
        start_s = time.perf_counter()
        self.call(items)
        return Outcome(outputs={}, service_s=time.perf_counter() - start_s)


def as_feeds(made: Any, source: str) -> Tensors:
    """Check that `pre` made a dict of arrays.

    Raises:
        ModelError: it did not.
    """
    if not isinstance(made, Mapping) or not all(isinstance(value, np.ndarray) for value in made.values()):
        raise ModelError(f"--pre {source} must return a dict of the model's inputs as arrays")
    return {str(name): value for name, value in made.items()}
