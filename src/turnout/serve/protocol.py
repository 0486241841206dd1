"""The Open Inference Protocol (V2 REST) with the binary tensor extension: bytes to tensors and back.

Framework-free: nothing here knows of HTTP beyond the one header that says where the JSON ends. Everything is checked
against the model's own tensors before memory is taken for it: names, datatypes, shapes, byte sizes. A message says
what is wrong and where. JSON has no NaN, no infinity and no 16-bit floats: those travel as binary only.

Source: kserve/open-inference-protocol, and Triton's extension_binary_data.md for the binary form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import orjson
from msgspec import Struct

from turnout.errors import RequestError
from turnout.pools.base import TensorSpec
from turnout.pools.wire import pack_bytes, unpack_bytes

Tensors = Mapping[str, np.ndarray]

DTYPES = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype("O"),
}
"""Every datatype of the protocol but BF16, which numpy has no type for."""

BINARY_ONLY = frozenset({"FP16"})

MAX_TIMEOUT_US = 24 * 3600 * 1_000_000

Parameters = dict[str, bool | int | float | str]


class _Input(Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: msgspec.Raw = msgspec.Raw()


class _Output(Struct):
    name: str
    parameters: Parameters = {}


class _Request(Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[_Output] = []


class Wanted(Struct, frozen=True):
    """One output of the answer, and whether it is to be binary."""

    name: str
    binary: bool


class Call(Struct, frozen=True, kw_only=True):
    """A decoded request.

    `items` is the size along the batch axes (1 if the model has none). `timeout_s` is None if the client set none.
    `priority` is the protocol's: 0 is the default, 1 the highest.
    """

    id: str
    tensors: dict[str, np.ndarray]
    items: int
    wanted: tuple[Wanted, ...]
    nbytes: int
    timeout_s: float | None = None
    priority: int = 0


_REQUEST = msgspec.json.Decoder(_Request)


def decode(
    body: bytes | bytearray | memoryview,
    json_bytes: int | None,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
) -> Call:
    """Decode the body of an infer request for a model with these tensors.

    `json_bytes` is the header `Inference-Header-Content-Length`: None if the whole body is JSON, 0 if all of it is
    the one input's raw bytes.

    Raises:
        RequestError: anything about the body is wrong.
    """
    view = memoryview(body)
    if json_bytes == 0:
        return _decode_raw(view, inputs, outputs)
    if json_bytes is None:
        json_bytes = len(view)
    if json_bytes > len(view):
        raise RequestError(f"Inference-Header-Content-Length is {json_bytes}, and the body has {len(view)} bytes")
    request = _parse(view[:json_bytes])
    tensors, nbytes = _decode_inputs(request.inputs, view[json_bytes:], inputs)
    return Call(
        id=request.id,
        tensors=tensors,
        items=count_items(tensors, inputs),
        wanted=_wanted(request, outputs),
        nbytes=nbytes,
        timeout_s=_timeout_s(request.parameters),
        priority=_whole(request.parameters, "priority", 0, 1 << 32) or 0,
    )


def count_items(tensors: Tensors, inputs: Sequence[TensorSpec]) -> int:
    """The size along the batch axes; 1 if there is none.

    Raises:
        RequestError: two inputs disagree, or there are no items.
    """
    sizes = {s.name: tensors[s.name].shape[s.batch_axis] for s in inputs if s.batch_axis is not None}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise RequestError(f"the inputs disagree on how many items there are: {said}")
    items = next(iter(sizes.values()), 1)
    if items < 1:
        raise RequestError(f"input {next(iter(sizes))} has no items: its batch dimension is {items}")
    return int(items)


def _parse(text: memoryview) -> _Request:
    """The JSON part of a request."""
    try:
        return _REQUEST.decode(text)
    except msgspec.ValidationError as error:
        raise RequestError(f"the request is not an inference request: {error}") from error
    except msgspec.DecodeError as error:
        hint = ""
        if b"NaN" in bytes(text) or b"Infinity" in bytes(text):
            hint = "; NaN and Infinity have no JSON form: send that tensor as binary"
        raise RequestError(f"the request is not JSON: {error}{hint}") from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise RequestError(f"the request is not JSON that can be read: {error}") from error


def _decode_inputs(
    given: list[_Input], raw: memoryview, specs: Sequence[TensorSpec]
) -> tuple[dict[str, np.ndarray], int]:
    """Every input as a tensor, and the bytes they take."""
    known = {spec.name: spec for spec in specs}
    tensors: dict[str, np.ndarray] = {}
    position = 0
    for tensor in given:
        spec = known.get(tensor.name)
        if spec is None:
            raise RequestError(f"the model has no input {tensor.name!r}; it has: {', '.join(known)}")
        if tensor.name in tensors:
            raise RequestError(f"input {tensor.name} is given twice")
        count = _check(tensor, spec)
        size = _whole(tensor.parameters, "binary_data_size", 0, 1 << 62, f"input {tensor.name}: ")
        if size is None:
            tensors[tensor.name] = _from_json(tensor, count)
            continue
        if len(tensor.data):
            raise RequestError(f"input {tensor.name} has both data and binary_data_size")
        if size > len(raw) - position:
            raise RequestError(
                f"input {tensor.name} says {size} binary bytes, and {len(raw) - position} are left in the body"
            )
        tensors[tensor.name] = _from_binary(spec, tensor.shape, count, raw[position : position + size])
        position += size
    if position < len(raw):
        raise RequestError(f"{len(raw) - position} bytes of the body belong to no input")
    missing = [name for name in known if name not in tensors]
    if missing:
        raise RequestError(f"missing: input {', '.join(missing)}")
    return tensors, sum(tensor.nbytes for tensor in tensors.values())


def _check(tensor: _Input, spec: TensorSpec) -> int:
    """Compare one input with the model's; the number of elements that its shape says."""
    if tensor.datatype != spec.datatype:
        raise RequestError(f"input {spec.name} is {spec.datatype}, and the request has {tensor.datatype}")
    if "shared_memory_region" in tensor.parameters:
        raise RequestError(f"input {spec.name}: shared memory is not supported")
    if any(size < 0 for size in tensor.shape):
        raise RequestError(f"input {spec.name}: shape {tensor.shape} has a negative dimension")
    fits = len(tensor.shape) == len(spec.shape) and all(
        want in (-1, got) for want, got in zip(spec.shape, tensor.shape, strict=True)
    )
    if not fits:
        raise RequestError(f"input {spec.name} has shape {list(spec.shape)}, and the request has {tensor.shape}")
    return math.prod(tensor.shape)  # Python's integers do not overflow


def _from_binary(spec: TensorSpec, shape: list[int], count: int, data: memoryview) -> np.ndarray:
    """A tensor over the request's own bytes, without a copy where they are aligned as numpy needs them."""
    if spec.datatype == "BYTES":
        try:
            return unpack_bytes(data, shape)
        except ValueError as error:
            raise RequestError(f"input {spec.name}: {error}") from error
    dtype = DTYPES[spec.datatype]
    if len(data) != count * dtype.itemsize:
        raise RequestError(
            f"input {spec.name}: {spec.datatype} of shape {shape} takes {count * dtype.itemsize} bytes, "
            f"and binary_data_size is {len(data)}"
        )
    if spec.datatype == "BOOL":
        octets = np.frombuffer(data, dtype=np.uint8)
        if octets.size and octets.max() > 1:
            raise RequestError(f"input {spec.name}: a BOOL is one byte of 0 or 1, and there is a {octets.max()}")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


_ELEMENT: dict[str, Any] = {"BOOL": bool, "BYTES": str, "FP32": float, "FP64": float}
_DATA: dict[tuple[Any, int], msgspec.json.Decoder[Any]] = {}
"""Decoders of lists of each element type, by how deep they nest."""


def _from_json(tensor: _Input, count: int) -> np.ndarray:
    """A tensor from flat or nested lists."""
    name, datatype = tensor.name, tensor.datatype
    if datatype in BINARY_ONLY:
        raise RequestError(f"input {name}: {datatype} has no JSON form: send it as binary")
    if not len(tensor.data):
        raise RequestError(f"input {name} has no data")
    values, depth = _lists(tensor)
    try:
        with np.errstate(over="ignore"):  # an infinity that comes of it is found below
            array = np.array(values, dtype=DTYPES[datatype]) if datatype != "BYTES" else _strings(values, depth)
    except OverflowError as error:
        raise RequestError(f"input {name}: a value is out of the range of {datatype}: {error}") from error
    except ValueError as error:
        raise RequestError(f"input {name}: the nested lists are not of equal lengths") from error
    if array.size != count or (depth > 1 and list(array.shape) != tensor.shape):
        raise RequestError(
            f"input {name}: shape {tensor.shape} takes {count} values, and data has shape {list(array.shape)}"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(f"input {name}: a value is out of the range of {datatype}")
    return array.reshape(tensor.shape)


def _lists(tensor: _Input) -> tuple[Any, int]:
    """The lists in `data`, and how deep they nest: 1 if flat, else the rank (a bare value counts as flat)."""
    text = bytes(tensor.data).lstrip()
    depth = 0
    while text[depth : depth + 1] == b"[" and depth <= len(tensor.shape):
        depth += 1
        text = text[:depth] + text[depth:].lstrip()
    if depth not in {1, len(tensor.shape)}:
        raise RequestError(
            f"input {tensor.name}: data is a flat list, or lists nested {len(tensor.shape)} deep as its shape is"
        )
    element = _ELEMENT.get(tensor.datatype, int)
    decoder = _DATA.get((element, depth))
    if decoder is None:
        kind: Any = element
        for _ in range(depth):
            kind = list[kind]
        decoder = _DATA[element, depth] = msgspec.json.Decoder(kind)
    try:
        values = decoder.decode(text)
    except msgspec.DecodeError as error:
        raise RequestError(f"input {tensor.name}: {error}") from error
    return ([values], 1) if depth == 0 else (values, depth)


def _strings(values: Any, depth: int) -> np.ndarray:
    """Nested lists of text as a tensor of bytes objects."""
    nested = np.array(values, dtype=object)
    if nested.ndim != depth and nested.size:
        raise ValueError
    flat = np.empty(nested.size, dtype=object)
    flat[:] = [text.encode() for text in nested.reshape(-1)]
    return flat.reshape(nested.shape)


def _decode_raw(view: memoryview, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Call:
    """A body that is nothing but the bytes of the only input: one item, at most one further variable dimension."""
    if len(inputs) != 1:
        raise RequestError(f"a body of raw bytes fits a model with one input, and this one has {len(inputs)}")
    (spec,) = inputs
    shape = [1 if axis == spec.batch_axis and size < 0 else size for axis, size in enumerate(spec.shape)]
    if spec.datatype == "BYTES":
        shape = [1 for _ in shape]
    free = [axis for axis, size in enumerate(shape) if size < 0]
    if len(free) > 1:
        raise RequestError(f"a body of raw bytes cannot say the shape {list(spec.shape)} of input {spec.name}")
    if free:
        row_bytes = DTYPES[spec.datatype].itemsize * math.prod(size for size in shape if size >= 0)
        shape[free[0]] = len(view) // row_bytes if row_bytes else 0
    tensor = _from_binary(spec, shape, math.prod(shape), view)
    return Call(
        id="",
        tensors={spec.name: tensor},
        items=count_items({spec.name: tensor}, inputs),
        wanted=tuple(Wanted(output.name, binary=True) for output in outputs),
        nbytes=tensor.nbytes,
    )


def _wanted(request: _Request, outputs: Sequence[TensorSpec]) -> tuple[Wanted, ...]:
    """The outputs to answer with: those asked for, else all; each binary if it says so, else as the request says."""
    known = {spec.name: spec for spec in outputs}
    default = _flag(request.parameters, "binary_data_output", "parameters") or False
    asked = request.outputs or [_Output(spec.name) for spec in outputs]
    wanted: dict[str, Wanted] = {}
    for output in asked:
        spec = known.get(output.name)
        if spec is None:
            raise RequestError(f"the model has no output {output.name!r}; it has: {', '.join(known)}")
        if output.name in wanted:
            raise RequestError(f"output {output.name} is asked for twice")
        for unsupported in ("classification", "shared_memory_region"):
            if output.parameters.get(unsupported):
                raise RequestError(f"output {output.name}: {unsupported} is not supported")
        binary = _flag(output.parameters, "binary_data", f"output {output.name}")
        wanted[output.name] = Wanted(output.name, default if binary is None else binary)
        if spec.datatype in BINARY_ONLY and not wanted[output.name].binary:
            raise RequestError(f"output {output.name}: {spec.datatype} has no JSON form: ask for it as binary")
    return tuple(wanted.values())


def _flag(parameters: Parameters, name: str, where: str) -> bool | None:
    """A boolean parameter, None if it is not there."""
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{where}: {name} is true or false, not {value!r}")
    return value


def _whole(parameters: Parameters, name: str, least: int, most: int, where: str = "") -> int | None:
    """A whole-number parameter, None if it is not there."""
    value = parameters.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RequestError(f"{where}parameter {name} is a whole number from {least} to {most}, not {value!r}")
    return value


def _timeout_s(parameters: Parameters) -> float | None:
    """The request's time budget; the protocol says microseconds, and 0 is none."""
    timeout_us = _whole(parameters, "timeout", 0, MAX_TIMEOUT_US)
    return timeout_us / 1e6 if timeout_us else None


# ---- answers ---------------------------------------------------------------------------------------------------------


def encode(
    model: str, request_id: str, wanted: Sequence[Wanted], outputs: Tensors, specs: Sequence[TensorSpec]
) -> tuple[bytes, int | None]:
    """The body of an answer, and the bytes of its JSON part if raw tensors follow (None if it is all JSON).

    Raises:
        RequestError: an output that was asked for as JSON holds a value that JSON cannot say.
    """
    datatypes = {spec.name: spec.datatype for spec in specs}
    described: list[dict[str, Any]] = []
    raw: list[bytes | memoryview] = []
    for output in wanted:
        tensor, datatype = outputs[output.name], datatypes[output.name]
        entry: dict[str, Any] = {"name": output.name, "datatype": datatype, "shape": list(tensor.shape)}
        if output.binary:
            data = _to_binary(tensor, datatype)
            entry["parameters"] = {"binary_data_size": len(data)}
            raw.append(data)
        else:
            entry["data"] = _to_json(output.name, tensor, datatype)
        described.append(entry)
    document: dict[str, Any] = {"model_name": model, "model_version": "1"}
    if request_id:
        document["id"] = request_id
    document["outputs"] = described
    header = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    if not raw:
        return header, None
    return b"".join([header, *raw]), len(header)


def _to_binary(tensor: np.ndarray, datatype: str) -> memoryview:
    """A tensor's bytes, row-major and little-endian."""
    if datatype == "BYTES":
        return pack_bytes(tensor)
    plain = np.ascontiguousarray(tensor, dtype=DTYPES[datatype])
    return plain.reshape(-1).view(np.uint8).data if plain.size else memoryview(b"")


def _to_json(name: str, tensor: np.ndarray, datatype: str) -> Any:
    """A tensor's values as a flat list, or as an array that the encoder takes for one."""
    if datatype == "BYTES":
        try:
            return [e if isinstance(e, str) else bytes(e).decode() for e in tensor.reshape(-1)]
        except UnicodeDecodeError as error:
            raise RequestError(f"output {name} is not text: ask for it as binary") from error
    flat = np.ascontiguousarray(tensor, dtype=DTYPES[datatype]).reshape(-1)
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        raise RequestError(f"output {name} has NaN or infinity, which JSON cannot say: ask for it as binary")
    return flat
