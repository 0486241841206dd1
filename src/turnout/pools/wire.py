"""Frames between the gateway and its worker processes: a msgpack header and raw tensors, over a pipe.

    u32 header bytes | header (msgpack) | the bytes of every tensor that the header lists, in its order

Little-endian, row-major, no padding. Tensors of strings travel as the Open Inference Protocol writes BYTES: each
element is its length (u32) and its bytes. Nothing is ever unpickled. A frame is one machine's own: both ends are of
the same version, since the gateway starts its workers from its own installation.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from turnout.errors import TurnoutError

_LENGTH = struct.Struct("<I")
_VECTORS = 64
"""Buffers per writev call; the system's bound (IOV_MAX) is 1024."""


class FrameError(TurnoutError):
    """The other end is gone in the middle of a frame, or did not send one."""


class Header(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """`kind` says what the frame is, `body` is its values, `tensors` lists (run, name, dtype, shape, nbytes)."""

    kind: str
    body: dict[str, Any] = {}
    tensors: list[tuple[int, str, str, list[int], int]] = []


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Header)


def send(fd: int, kind: str, body: dict[str, Any], runs: Sequence[Mapping[str, np.ndarray]] = ()) -> None:
    """Write one frame with the tensors of `runs`.

    Raises:
        OSError: the other end is gone.
    """
    header = Header(kind, body, [])
    buffers: list[memoryview] = []
    for run, tensors in enumerate(runs):
        for name, tensor in tensors.items():
            data = pack_bytes(tensor) if tensor.dtype == object else _flat(tensor)
            code = "O" if tensor.dtype == object else tensor.dtype.str
            header.tensors.append((run, name, code, list(tensor.shape), len(data)))
            if len(data):
                buffers.append(data)
    encoded = _ENCODER.encode(header)
    _write_all(fd, [memoryview(_LENGTH.pack(len(encoded)) + encoded), *buffers])


def receive(fd: int) -> tuple[str, dict[str, Any], list[dict[str, np.ndarray]]] | None:
    """Read one frame: kind, body and the tensors of each run. None at the end of the stream.

    Raises:
        FrameError: the stream ends inside a frame.
    """
    prefix = bytearray(_LENGTH.size)
    if not _read_into(fd, memoryview(prefix), at_boundary=True):
        return None
    encoded = bytearray(_LENGTH.unpack(prefix)[0])
    _read_into(fd, memoryview(encoded))
    try:
        header = _DECODER.decode(encoded)
    except msgspec.DecodeError as error:
        raise FrameError(f"not a frame: {error}") from error
    runs: list[dict[str, np.ndarray]] = []
    for run, name, code, shape, nbytes in header.tensors:
        if run == len(runs):
            runs.append({})
        runs[run][name] = _read_tensor(fd, code, shape, nbytes)
    return header.kind, header.body, runs


def _read_tensor(fd: int, code: str, shape: list[int], nbytes: int) -> np.ndarray:
    """One tensor, straight into its own memory."""
    if code == "O":
        data = bytearray(nbytes)
        _read_into(fd, memoryview(data))
        return unpack_bytes(memoryview(data), shape)
    tensor = np.empty(shape, dtype=code)
    assert tensor.nbytes == nbytes, "both ends are of the same version"
    if nbytes:
        _read_into(fd, _flat(tensor))
    return tensor


def _flat(tensor: np.ndarray) -> memoryview:
    """The bytes of a tensor, without a copy if it is contiguous."""
    contiguous = np.ascontiguousarray(tensor)
    return contiguous.reshape(-1).view(np.uint8).data if contiguous.size else memoryview(b"")


def _write_all(fd: int, buffers: list[memoryview]) -> None:
    """Write everything, however little the pipe takes at a time."""
    while buffers:
        written = os.writev(fd, buffers[:_VECTORS])
        while buffers and written >= len(buffers[0]):
            written -= len(buffers.pop(0))
        if written:
            buffers[0] = buffers[0][written:]


def _read_into(fd: int, view: memoryview, *, at_boundary: bool = False) -> bool:
    """Fill `view`; False if the stream ends before its first byte and that is a boundary between frames."""
    missing = view
    while missing:
        count = os.readv(fd, [missing])
        if not count:
            if at_boundary and len(missing) == len(view):
                return False
            raise FrameError("the other end closed the pipe inside a frame")
        missing = missing[count:]
    return True


def pack_bytes(tensor: np.ndarray) -> memoryview:
    """A tensor of bytes or str objects in the protocol's form: u32 length, then the bytes, of each element."""
    chunks: list[bytes] = []
    for element in tensor.reshape(-1):
        data = element.encode() if isinstance(element, str) else bytes(element)
        chunks.append(_LENGTH.pack(len(data)))
        chunks.append(data)
    return memoryview(b"".join(chunks))


def unpack_bytes(data: memoryview, shape: Sequence[int]) -> np.ndarray:
    """A tensor of bytes objects from the protocol's form.

    Raises:
        ValueError: the elements do not fill `data` exactly, or are not as many as `shape` says.
    """
    elements: list[bytes] = []
    position, end = 0, len(data)
    while position < end:
        if end - position < _LENGTH.size:
            raise ValueError(f"{end - position} bytes are left after element {len(elements)}, too few for a length")
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        if length > end - position:
            raise ValueError(f"element {len(elements)} says {length} bytes, and {end - position} are left")
        elements.append(bytes(data[position : position + length]))
        position += length
    count = 1
    for size in shape:
        count *= size
    if len(elements) != count:
        raise ValueError(f"there are {len(elements)} elements, and the shape says {count}")
    tensor = np.empty(count, dtype=object)
    tensor[:] = elements
    return tensor.reshape(tuple(shape))
