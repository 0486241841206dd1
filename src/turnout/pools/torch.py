"""Runs an ONNX model as a torch module (through onnx2torch) on CUDA or the CPU.

It is the CUDA path where torch is installed and ONNX Runtime has no CUDA build. Phases come from CUDA events. TF32 is
off: a comparison with the CPU in float32 must not hide a change of precision.

Options: `threads` (intra-op on the CPU; process-wide in torch, so set again before every run).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from turnout.errors import ConfigError, DeviceAbsentError, ExtraMissingError, ModelError, SilentFallbackError
from turnout.pools.base import Outcome, Tensors, TensorSpec, batch_axes

if "torchvision" not in sys.modules and find_spec("torchvision") is None:
    # onnx2torch imports torchvision for NonMaxSuppression and RoiAlign only, and torchvision pins an exact torch.
    # With empty modules in its place all other operators work, and a model with one of those two fails when it runs.
    sys.modules["torchvision"] = ModuleType("torchvision")
    sys.modules["torchvision.ops"] = ops = ModuleType("torchvision.ops")
    ops.roi_align = None  # type: ignore[attr-defined]

try:
    import onnx
    import torch
    from onnx2torch import convert
except ImportError as missing:
    raise ExtraMissingError(missing.name or "torch", "torch", "running models with torch") from missing

DATATYPES = {
    "float32": "FP32", "float64": "FP64", "float16": "FP16", "bool": "BOOL",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64", "uint8": "UINT8",
}  # fmt: skip
"""numpy's name -> Open Inference Protocol's."""


class TorchModel:
    """A torch module on one device. Not for several threads at once."""

    def __init__(
        self, module: Any, device: str, threads: int, specs: tuple[tuple[TensorSpec, ...], ...], load_s: float
    ) -> None:
        self._module = module
        self._device = device
        self._threads = threads
        self.inputs, self.outputs = specs
        self.placement: Mapping[str, int] = {}
        self.load_s = load_s

    def run(self, feeds: Tensors) -> Outcome:
        """Run one batch, host to host."""
        unknown = sorted({spec.name for spec in self.inputs} ^ set(feeds))
        if unknown:
            raise ModelError(f"the model's inputs are {[spec.name for spec in self.inputs]}, not {sorted(feeds)}")
        arrays = [feeds[spec.name] for spec in self.inputs]
        try:
            with torch.inference_mode():
                return self._run_cuda(arrays) if self._device == "cuda" else self._run_cpu(arrays)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AttributeError) as error:
            raise ModelError(f"the model does not run on these inputs: {error}") from error

    def _run_cpu(self, arrays: list[np.ndarray]) -> Outcome:
        """One call on the CPU; numpy arrays and tensors share their memory."""
        if self._threads and torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        start_s = time.perf_counter()
        results = self._call([torch.from_numpy(array) for array in arrays])
        outputs = [result.numpy() for result in results]
        return Outcome(outputs=self._named(outputs), service_s=time.perf_counter() - start_s)

    def _run_cuda(self, arrays: list[np.ndarray]) -> Outcome:
        """Copy in, compute, copy out, each closed by an event on the stream."""
        torch.cuda.reset_peak_memory_stats()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        start_s = time.perf_counter()
        marks[0].record()
        tensors = [torch.from_numpy(array).to("cuda") for array in arrays]
        marks[1].record()
        results = self._call(tensors)
        marks[2].record()
        outputs = [result.cpu().numpy() for result in results]
        marks[3].record()
        torch.cuda.synchronize()
        service_s = time.perf_counter() - start_s
        phases_s = [before.elapsed_time(after) / 1e3 for before, after in pairwise(marks)]
        if any(result.device.type != "cuda" for result in results):
            raise SilentFallbackError("the module returned tensors on the CPU although it was put on cuda")
        return Outcome(
            outputs=self._named(outputs),
            service_s=service_s,
            copy_in_s=phases_s[0],
            compute_s=phases_s[1],
            copy_out_s=phases_s[2],
            peak_bytes=int(torch.cuda.max_memory_allocated()),
        )

    def _call(self, tensors: list[Any]) -> list[Any]:
        """The module's outputs as a list, in the order of the graph's."""
        result = self._module(*tensors)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def _named(self, outputs: list[np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        return dict(zip((spec.name for spec in self.outputs), outputs, strict=True))

    def close(self) -> None:
        """Free the module and the memory torch holds for it."""
        self._module = None
        if self._device == "cuda":
            torch.cuda.empty_cache()


def load(source: str, device: str, options: Mapping[str, Any]) -> TorchModel:
    """Convert the ONNX file `source` and put it on `device`.

    Raises:
        ModelError: the file is missing or damaged, or onnx2torch does not know one of its operators.
        DeviceAbsentError: torch sees no such device.
        ConfigError: an unknown option.
    """
    if set(options) - {"threads"}:
        raise ConfigError(f"a torch pool takes the option threads, got {sorted(options)}")
    if device not in devices():
        raise DeviceAbsentError(f"torch {torch.__version__} here has {', '.join(devices())} and no {device}")
    if not Path(source).is_file():
        raise ModelError(f"{source} is not a file")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    start_s = time.perf_counter()
    try:
        proto = onnx.load(source)
        module = convert(proto).eval().to(device)
    except Exception as error:  # protobuf and onnx2torch raise what their passes raise
        raise ModelError(f"onnx2torch cannot convert {source}: {type(error).__name__}: {error}") from error
    weights = {value.name for value in proto.graph.initializer}
    specs = (
        describe([value for value in proto.graph.input if value.name not in weights]),
        describe(list(proto.graph.output)),
    )
    return TorchModel(module, device, int(options.get("threads", 0)), specs, time.perf_counter() - start_s)


def devices() -> tuple[str, ...]:
    """Devices that torch sees."""
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def describe(values: list[Any]) -> tuple[TensorSpec, ...]:
    """Describe a graph's inputs or outputs."""
    shapes = {v.name: tuple(d.dim_param or d.dim_value or None for d in v.type.tensor_type.shape.dim) for v in values}
    axes = batch_axes(shapes)
    return tuple(
        TensorSpec(
            name=value.name,
            datatype=DATATYPES.get(
                np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)).name, ""
            ),
            shape=tuple(d if isinstance(d, int) else -1 for d in shapes[value.name]),
            batch_axis=axes[value.name],
            symbols=tuple(d if isinstance(d, str) else "" for d in shapes[value.name]),
        )
        for value in values
    )
