"""The seam between Turnout and whatever runs a model: load it on a device, run batches, close it.

A loaded model is used by one thread at a time and knows nothing of requests, queues or deadlines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

Tensors = Mapping[str, np.ndarray]


class TensorSpec(Struct, frozen=True, kw_only=True):
    """One input or output. `datatype` is the Open Inference Protocol's name (FP32, INT64, BYTES, …).

    `shape` has -1 for a variable dimension. `batch_axis` is the axis that counts items, None if the tensor is shared
    by the whole batch (such as a sampling rate).
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    batch_axis: int | None = 0
    symbols: tuple[str, ...] = ()


class Outcome(Struct, frozen=True, kw_only=True):
    """What one batch brought: the outputs, and seconds, by phase where the device can tell them apart.

    `peak_bytes` is the peak of the device's own memory, None where the device shares the host's or cannot tell.
    """

    outputs: dict[str, np.ndarray]
    service_s: float
    copy_in_s: float | None = None
    compute_s: float | None = None
    copy_out_s: float | None = None
    peak_bytes: int | None = None


class LoadedModel(Protocol):
    """A model on a device, ready to run.

    `placement` counts graph nodes by execution provider, empty where the runtime cannot tell. `load_s` is how long
    loading and compiling took.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    placement: Mapping[str, int]
    load_s: float

    def run(self, feeds: Tensors) -> Outcome:
        """Run one batch, host to host.

        Raises:
            ModelError: the runtime refuses the inputs; the message is its own.
        """

    def close(self) -> None:
        """Free the device."""


class Loader(Protocol):
    """Loads `source` (a path or `module:function`) on `device`.

    Raises:
        ModelError: the source is missing, damaged, or not a model.
        DeviceAbsentError: the device is not here.
        SilentFallbackError: the runtime would place work elsewhere than on `device`.
        ExtraMissingError: the runtime is not installed.
    """

    def __call__(self, source: str, device: str, options: Mapping[str, Any]) -> LoadedModel:
        """Load, compile, and check that the work is where it was asked to be."""


def batch_axes(shapes: Mapping[str, tuple[int | str | None, ...]]) -> dict[str, int | None]:
    """Which axis of each tensor counts items: the batch symbol's, else the first variable one.

    The batch symbol is the first variable axis of the first tensor that has one. A symbol that stands second or later
    elsewhere (a sequence length) does not count items.
    """
    batch: int | str | None = None
    lengths: set[int | str | None] = set()
    for shape in shapes.values():
        variable = [d for d in shape if not (isinstance(d, int) and d > 0)]
        batch = batch or next((d for d in variable[:1] if isinstance(d, str)), None)
        lengths.update(d for d in variable[1:] if isinstance(d, str))
    axes: dict[str, int | None] = {}
    for name, shape in shapes.items():
        variable_axes = [i for i, d in enumerate(shape) if not (isinstance(d, int) and d > 0)]
        named = [i for i in variable_axes if shape[i] == batch and batch is not None]
        free = [i for i in variable_axes if shape[i] not in lengths or shape[i] is None]
        axes[name] = next(iter(named or free), None)
    return axes
