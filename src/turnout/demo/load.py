"""An open-loop client of the V2 protocol, run as a process of its own.

Requests leave at the times of the trace whether or not earlier ones are answered, and latency counts from the time at
which a request should have left, so a slow server cannot hide its queue. Reads a `Plan` on stdin, writes progress
lines and then one `Result` to stdout, as JSON lines.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter

import msgspec
import numpy as np
from msgspec import Struct


class Plan(Struct, frozen=True, kw_only=True):
    """What to send: at `at_s[i]`, rows `row[i]`… (`items[i]` of them, cyclically) of the array in `inputs`.

    `inputs` is an .npy of int32 [n, width]; `input_name` and `output_name` are the model's. Each request is due
    within `deadline_s`, and may take `timeout_s` before the client counts it as lost.
    """

    port: int
    model: str
    inputs: str
    input_name: str
    output_name: str
    deadline_s: float
    at_s: tuple[float, ...]
    row: tuple[int, ...]
    items: tuple[int, ...]
    timeout_s: float = 60.0


class Result(Struct, frozen=True, kw_only=True):
    """What came back, by request: HTTP status (0: no answer), seconds from the intended start, and class counts."""

    status: tuple[int, ...]
    latency_s: tuple[float, ...]
    classes: dict[int, int]
    late_start_s: float


class _Connections:
    """Keep-alive connections to one port; as many as are needed at once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send one request and read its answer: status, headers, body."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return int(head[0].split()[1]), headers, body

    def close(self) -> None:
        """Hang up."""
        for _, writer in self._idle:
            writer.close()


def encode(plan: Plan, number: int, rows: np.ndarray) -> bytes:
    """Request `number` with a binary input and a binary output."""
    data = np.ascontiguousarray(rows).tobytes()
    tensor = {
        "name": plan.input_name,
        "shape": list(rows.shape),
        "datatype": "INT32",
        "parameters": {"binary_data_size": len(data)},
    }
    parameters = {"binary_data_output": True, "timeout": round(plan.deadline_s * 1e6)}
    body = msgspec.json.encode({"id": f"demo-{number}", "inputs": [tensor], "parameters": parameters})
    head = (
        f"POST /v2/models/{plan.model}/infer HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"inference-header-content-length: {len(body)}\r\ncontent-length: {len(body) + len(data)}\r\n\r\n"
    )
    return head.encode() + body + data


def classes(headers: dict[str, str], body: bytes, output: str) -> np.ndarray:
    """The most likely class of each item of an answer; int [items]."""
    length = int(headers["inference-header-content-length"])
    described = msgspec.json.decode(body[:length])["outputs"]
    offset = length
    for tensor in described:
        size = tensor["parameters"]["binary_data_size"]
        if tensor["name"] == output:
            scores: np.ndarray = np.frombuffer(body[offset : offset + size], np.float32).reshape(tensor["shape"])
            return np.asarray(scores.argmax(axis=1))
        offset += size
    raise KeyError(output)


async def send(plan: Plan) -> Result:
    """Send the whole plan."""
    inputs = np.load(plan.inputs)
    pool = _Connections(plan.port)
    status = [0] * len(plan.at_s)
    latency_s = [0.0] * len(plan.at_s)
    counts: Counter[int] = Counter()
    late_s = 0.0
    begin_s = time.perf_counter()

    async def one(number: int, due_s: float) -> None:
        rows = inputs[(plan.row[number] + np.arange(plan.items[number])) % len(inputs)]
        try:
            async with asyncio.timeout(plan.timeout_s):
                code, headers, body = await pool.ask(encode(plan, number, rows))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            code, headers, body = 0, {}, b""
        latency_s[number] = time.perf_counter() - due_s
        status[number] = code
        if code == 200:
            counts.update(map(int, classes(headers, body, plan.output_name)))

    async with asyncio.TaskGroup() as group:
        for number, at_s in enumerate(plan.at_s):
            due_s = begin_s + at_s
            await asyncio.sleep(max(due_s - time.perf_counter(), 0.0))
            late_s = max(late_s, time.perf_counter() - due_s)
            group.create_task(one(number, due_s))
            if number % 20 == 0:
                say({"sent": number + 1, "answered": sum(map(bool, status))})
    pool.close()
    return Result(status=tuple(status), latency_s=tuple(latency_s), classes=dict(counts), late_start_s=late_s)


def say(line: object) -> None:
    """One JSON line."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Read the plan, send it, say the result."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    say(asyncio.run(send(plan)))
