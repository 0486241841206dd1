"""Which axis of each tensor counts items, and when that is too unsure to cut a batch's outputs by it.

A model says its shapes and hardly ever which axis is the batch. A loader guesses; a wrong guess would hand one client
another's rows whenever the sizes happen to agree, so a guess that could be wrong must be confirmed in the config.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnout.pools.base import TensorSpec
from turnout.pools.replica import ModelIo

SHARED = -1
"""In the config: a tensor that the whole batch shares."""


def with_axes(io: ModelIo, axes: Mapping[str, int]) -> ModelIo:
    """The model's tensors with the batch axes that the config names."""

    def changed(spec: TensorSpec) -> TensorSpec:
        if spec.name not in axes:
            return spec
        axis = axes[spec.name]
        return msgspec.structs.replace(spec, batch_axis=None if axis == SHARED else axis)

    return msgspec.structs.replace(io, inputs=tuple(map(changed, io.inputs)), outputs=tuple(map(changed, io.outputs)))


def doubt(io: ModelIo, axes: Mapping[str, int]) -> str:
    """What is wrong or unsure about the batch axes, or "".

    An output's axis is sure if the config names it, if it is the only dimension that varies, or if it carries the
    same symbol as the batch axis of an input.
    """
    specs = (*io.inputs, *io.outputs)
    for name, axis in axes.items():
        spec = next((spec for spec in specs if spec.name == name), None)
        if spec is None:
            return f"batch_axes names {name!r}, and the model has: {', '.join(spec.name for spec in specs)}"
        if not SHARED <= axis < len(spec.shape):
            return f"batch_axes.{name} is {axis}, and the shape is {list(spec.shape)}"
    symbols = {_symbol(spec) for spec in io.inputs} - {""}
    for spec in io.outputs:
        sure = (
            spec.name in axes
            or (spec.batch_axis is not None and [n for n, d in enumerate(spec.shape) if d < 0] == [spec.batch_axis])
            or _symbol(spec) in symbols
        )
        if not sure:
            return (
                f"which axis of output {spec.name} {list(spec.shape)} counts items cannot be told: "
                f"set batch_axes = {{ {spec.name} = AXIS }} for this model ({SHARED} if none), or mergeable = false"
            )
    return ""


def _symbol(spec: TensorSpec) -> str:
    """The name of the batch dimension, where the model gives it one."""
    if spec.batch_axis is None or spec.batch_axis >= len(spec.symbols):
        return ""
    return spec.symbols[spec.batch_axis]
