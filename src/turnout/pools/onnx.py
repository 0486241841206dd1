"""Runs an ONNX model through ONNX Runtime on one execution provider. The gateway and `measure` load through here alike.

ONNX Runtime answers a provider that it cannot have with a session on the CPU and a line on stderr. Here that is an
error: the providers got are compared with those asked for, and the nodes placed on the CPU are counted.

Options (all optional): `threads` (intra-op, default every core), `allow_spinning` (default False: spinning threads
steal the cores of the other sessions on this machine), `variant` ("fp32" or "int8"), `allow_partial` (default False:
accept a graph that is partly on the CPU; it is labelled so), `profile_prefix` (write ONNX Runtime's profile there).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError, DeviceAbsentError, ExtraMissingError, ModelError, SilentFallbackError
from turnout.pools.base import Outcome, Tensors, TensorSpec, batch_axes

try:
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as ort_state
except ImportError as missing:
    raise ExtraMissingError("onnxruntime", "onnx", "running ONNX models") from missing

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "webgpu": "WebGpuExecutionProvider"}
"""Device kind -> ONNX Runtime's name for it."""

CPU = PROVIDERS["cpu"]

PACKAGES = {"cuda": "onnxruntime-gpu", "webgpu": "onnxruntime-webgpu"}
"""Which package brings a provider; each replaces the module `onnxruntime`, so each needs its own environment."""

DATATYPES = {
    "tensor(float)": ("FP32", "float32"),
    "tensor(double)": ("FP64", "float64"),
    "tensor(float16)": ("FP16", "float16"),
    "tensor(int8)": ("INT8", "int8"),
    "tensor(int16)": ("INT16", "int16"),
    "tensor(int32)": ("INT32", "int32"),
    "tensor(int64)": ("INT64", "int64"),
    "tensor(uint8)": ("UINT8", "uint8"),
    "tensor(uint16)": ("UINT16", "uint16"),
    "tensor(uint32)": ("UINT32", "uint32"),
    "tensor(uint64)": ("UINT64", "uint64"),
    "tensor(bool)": ("BOOL", "bool"),
    "tensor(string)": ("BYTES", "object"),
}
"""ONNX Runtime's type -> (Open Inference Protocol's name, numpy's name)."""

_RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(c for c in vars(ort_state).values() if isinstance(c, type) and issubclass(c, Exception)),
    RuntimeError,
    ValueError,
    TypeError,
)
_OPTIONS = {"threads", "allow_spinning", "variant", "allow_partial", "profile_prefix"}
_TRANSPARENT = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
_QUIET = (
    4  # the fatal only: its errors come as exceptions too, and the fallbacks it warns of are checked and raised here
)


class OnnxModel:
    """A session on one device. Not for several threads at once."""

    def __init__(self, session: Any, device: str, placement: dict[str, int], load_s: float) -> None:
        self._session = session
        self._device = device
        self.placement = placement
        self.load_s = load_s
        self.inputs = specs(session.get_inputs())
        self.outputs = specs(session.get_outputs())
        self._names = [spec.name for spec in self.outputs]

    def run(self, feeds: Tensors) -> Outcome:
        """Run one batch, host to host; by phases on CUDA, where the provider lends its memory."""
        try:
            return self._run_bound(feeds) if self._device == "cuda" else self._run_whole(feeds)
        except _RUNTIME_ERRORS as error:
            raise ModelError(f"the model does not run on these inputs: {_first_line(error)}") from error

    def _run_whole(self, feeds: Tensors) -> Outcome:
        """One call that copies, computes and copies back."""
        start_s = time.perf_counter()
        outputs = self._session.run(self._names, feeds)
        service_s = time.perf_counter() - start_s
        return Outcome(outputs=dict(zip(self._names, outputs, strict=True)), service_s=service_s)

    def _run_bound(self, feeds: Tensors) -> Outcome:
        """Inputs and outputs bound to device memory, so that copies and computation are timed apart."""
        binding = self._session.io_binding()
        start_s = time.perf_counter()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, self._device, 0))
        for name in self._names:
            binding.bind_output(name, self._device, 0)
        binding.synchronize_inputs()
        copied_s = time.perf_counter()
        self._session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        computed_s = time.perf_counter()
        outputs = binding.copy_outputs_to_cpu()
        end_s = time.perf_counter()
        return Outcome(
            outputs=dict(zip(self._names, outputs, strict=True)),
            service_s=end_s - start_s,
            copy_in_s=copied_s - start_s,
            compute_s=computed_s - copied_s,
            copy_out_s=end_s - computed_s,
        )

    def end_profiling(self) -> Path:
        """Stop ONNX Runtime's profiler and say where its JSON is; only with the option `profile_prefix`."""
        return Path(self._session.end_profiling())

    def close(self) -> None:
        """Free the session's memory."""
        self._session = None


def load(source: str, device: str, options: Mapping[str, Any]) -> OnnxModel:
    """Load the ONNX file `source` on `device` and check that its nodes are there.

    Raises:
        ModelError: no such file, or ONNX Runtime refuses it.
        DeviceAbsentError: this ONNX Runtime has no such device.
        SilentFallbackError: the session, or part of its graph, is on the CPU instead.
        ExtraMissingError: int8 was asked for, and the package onnx is not installed.
        ConfigError: an unknown option or variant.
    """
    check_options(options)
    require_provider(device)
    model = read(source, str(options.get("variant", "fp32")))
    start_s = time.perf_counter()
    try:
        with _muted():
            session = ort.InferenceSession(model, session_options(options), providers=[PROVIDERS[device]])
    except _RUNTIME_ERRORS as error:
        raise ModelError(f"ONNX Runtime cannot load {source}: {_first_line(error)}") from error
    load_s = time.perf_counter() - start_s
    placement = check_placement(session, device, allow_partial=bool(options.get("allow_partial")))
    return OnnxModel(session, device, placement, load_s)


def devices() -> tuple[str, ...]:
    """The device kinds that this ONNX Runtime was built for; whether the hardware is here shows on loading."""
    available = ort.get_available_providers()
    return tuple(device for device, provider in PROVIDERS.items() if provider in available)


def versions() -> dict[str, str]:
    """The version of ONNX Runtime, under the name of the module."""
    return {"onnxruntime": str(ort.__version__)}


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options and variants that nothing here reads."""
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise ConfigError(f"unknown options of an onnx pool: {unknown}; there are: {sorted(_OPTIONS)}")
    if options.get("variant", "fp32") not in {"fp32", "int8"}:
        raise ConfigError(f"an onnx pool's variant is fp32 or int8, not {options['variant']!r}")


def require_provider(device: str) -> None:
    """Refuse a device that this ONNX Runtime was not built for."""
    if device not in PROVIDERS:
        raise ConfigError(f"no ONNX device is called {device!r}; there are: {', '.join(PROVIDERS)}")
    if device not in devices():
        raise DeviceAbsentError(
            f"ONNX Runtime {ort.__version__} here has no {PROVIDERS[device]} (it has {ort.get_available_providers()}): "
            f"install {PACKAGES.get(device, 'onnxruntime')} in an environment of its own"
        )


def read(source: str, variant: str) -> str | bytes:
    """What the session is built from: the path itself, or the bytes of the quantised model."""
    if not Path(source).is_file():
        raise ModelError(f"{source} is not a file; give an ONNX model, or module:function for a callable")
    if variant == "int8":
        from turnout.pools.int8 import quantise

        return quantise(Path(source))
    return source


def session_options(options: Mapping[str, Any]) -> Any:
    """Session options with every choice explicit: ONNX Runtime's own default of threads ignores cgroup limits."""
    chosen = ort.SessionOptions()
    chosen.log_severity_level = _QUIET
    chosen.intra_op_num_threads = int(options.get("threads") or len(os.sched_getaffinity(0)))
    chosen.inter_op_num_threads = 1
    spinning = "1" if options.get("allow_spinning") else "0"
    chosen.add_session_config_entry("session.intra_op.allow_spinning", spinning)
    chosen.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if options.get("profile_prefix"):
        chosen.enable_profiling = True
        chosen.profile_file_prefix = str(options["profile_prefix"])
    return chosen


def check_placement(session: Any, device: str, *, allow_partial: bool = False) -> dict[str, int]:
    """Compare where the session is with `device`; return its node counts by provider.

    WebGPU's provider does not record all of its own nodes (seen in 1.27.0), but those left to the CPU are complete,
    and they decide.

    Raises:
        SilentFallbackError: the provider was not taken, or some nodes are on the CPU and `allow_partial` is False.
    """
    operators: dict[str, Counter[str]] = {}
    for group in session.get_provider_graph_assignment_info():
        operators.setdefault(group.ep_name, Counter()).update(node.op_type for node in group.get_nodes())
    placement = {provider: counts.total() for provider, counts in operators.items()}
    got, asked = session.get_providers(), PROVIDERS[device]
    if asked not in got:
        raise SilentFallbackError(
            f"asked ONNX Runtime for {asked} and got {got}: all {placement.get(CPU, 0)} nodes are on the CPU. "
            f"Is the {device} driver installed, and is an adapter visible?"
        )
    on_cpu = operators.get(CPU, Counter())
    if device != "cpu" and on_cpu and not allow_partial:
        named = ", ".join(f"{operator} {count}" for operator, count in on_cpu.most_common(6))
        raise SilentFallbackError(
            f"{asked} leaves {on_cpu.total()} nodes of the graph on the CPU ({named}), so its time would not be that "
            f"of {device}; allow it by name (--allow-partial) to measure the mixture, labelled as such"
        )
    return placement


def specs(arguments: Any) -> tuple[TensorSpec, ...]:
    """Describe a session's inputs or outputs, with the axis of each that counts items."""
    shapes = {argument.name: tuple(argument.shape) for argument in arguments}
    axes = batch_axes(shapes)
    return tuple(
        TensorSpec(
            name=argument.name,
            datatype=DATATYPES.get(argument.type, (argument.type, ""))[0],
            shape=tuple(d if isinstance(d, int) and d > 0 else -1 for d in argument.shape),
            batch_axis=axes[argument.name],
            symbols=tuple(d if isinstance(d, str) else "" for d in argument.shape),
        )
        for argument in arguments
    )


def index_limits(source: Path) -> dict[str, int]:
    """Rows of the table that each integer input looks up, where the graph shows it: larger indices would crash a run.

    Only inputs that reach the indices of a Gather through shape and type changes are found; without the package onnx
    none are.
    """
    try:
        import onnx
    except ImportError:
        return {}
    graph = onnx.load(source, load_external_data=False).graph
    rows = {table.name: tuple(table.dims) for table in graph.initializer}
    origin = {value.name: value.name for value in graph.input}
    limits: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _TRANSPARENT and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type == "Gather" and node.input[0] in rows and node.input[1] in origin:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            name = origin[node.input[1]]
            limits[name] = min(rows[node.input[0]][axis], limits.get(name, rows[node.input[0]][axis]))
    return limits


def _first_line(error: Exception) -> str:
    """The runtime's message, innermost where it nests them, without its stack of source lines."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rsplit("Status Message: ", 1)[-1]


@contextlib.contextmanager
def _muted() -> Any:
    """Keep the runtime's fallback banner off stdout, where the result goes: what it says is checked and raised here."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):  # noqa: PTH123
        yield
