"""A backend without hardware: it takes as long as a latency model says, and returns its inputs.

It is a real backend, loaded and driven like any other, so that a whole fleet of devices that are not here can be
served, routed and tested. Outputs are the inputs that count items, each under its name with `_out` behind: a row that
went to the wrong request is seen at once. What it cannot do is stand for accuracy, memory or real time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from turnout.core.latency import LatencyModel, line
from turnout.errors import ConfigError
from turnout.pools.base import LoadedModel, Outcome, Tensors, TensorSpec

DEFAULT_INPUTS = (TensorSpec(name="x", datatype="FP32", shape=(-1, 4)),)


class SimulatedOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a simulated model takes and how long.

    Either `latency` (a whole model, as a fitted profile gives it) or the line `a_s` + `b_s_per_item` · n. The actual
    time is the mean times a ratio drawn from the model's own, with `seed`. `start_s` is the cold start.
    """

    latency: LatencyModel | None = None
    a_s: float = 0.0
    b_s_per_item: float = 0.0
    start_s: float = 0.0
    seed: int = 0
    inputs: tuple[TensorSpec, ...] = DEFAULT_INPUTS


class SimulatedModel:
    """See the module; `load_s` is the cold start it was asked for."""

    def __init__(self, options: SimulatedOptions) -> None:
        self.inputs = options.inputs
        self.outputs = tuple(
            msgspec.structs.replace(spec, name=f"{spec.name}_out")
            for spec in options.inputs
            if spec.batch_axis is not None
        )
        self.placement: Mapping[str, int] = {}
        self.load_s = options.start_s
        self._latency = options.latency or line(options.a_s, options.b_s_per_item)
        self._rng = np.random.default_rng(options.seed)

    def run(self, feeds: Tensors) -> Outcome:
        """Sleep for the time that the batch takes, and return its rows."""
        started_s = time.perf_counter()
        items = next(
            (feeds[spec.name].shape[spec.batch_axis] for spec in self.inputs if spec.batch_axis is not None), 1
        )
        ratios = self._latency.bucket_ratios(items)
        time.sleep(self._latency.mean_s(items) * ratios[self._rng.integers(len(ratios))])
        outputs = {spec.name: feeds[spec.name.removesuffix("_out")] for spec in self.outputs}
        return Outcome(outputs=outputs, service_s=time.perf_counter() - started_s)

    def close(self) -> None:
        """Nothing to free."""


def load(source: str, device: str, options: Mapping[str, Any]) -> LoadedModel:
    """A model that takes the time that `options` says (`SimulatedOptions`); `source` and `device` are only names.

    Raises:
        ConfigError: an option is unknown or of the wrong type.
    """
    try:
        parsed = msgspec.convert(dict(options), SimulatedOptions)
    except msgspec.ValidationError as error:
        msg = f"options of a simulated pool: {error}"
        raise ConfigError(msg) from error
    time.sleep(parsed.start_s)
    return SimulatedModel(parsed)
