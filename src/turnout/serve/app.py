"""The infer route, a bare ASGI callable in front of the pages.

    POST /v2/models/{model}[/versions/1]/infer

Every error is JSON. The reason of a refusal decides its status (`STATUSES`), and `Retry-After` is set whenever trying
again makes sense.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from turnout.core.events import Reject
from turnout.errors import RequestError, TurnoutError, UnavailableError
from turnout.serve import protocol
from turnout.serve.driver import Answer, Submission
from turnout.serve.pages import VERSION, State, pages

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

STATUSES = {
    "unknown model": 404,
    "too large": 400,
    "deadline": 504,
    "queue full": 503,
    "no replica": 503,
    "closing": 503,
    "shed": 503,
    "failed": 500,
    "cancelled": 499,
}
"""Reason of a reject -> HTTP status; a policy's own reasons are 503."""

JSON = (b"content-type", b"application/json")
BINARY = (b"content-type", b"application/octet-stream")
WATCH_AFTER_S = 0.05
"""A client's disconnect is only watched for by requests that have waited this long: the watch costs a task."""


class AppOptions(Struct, frozen=True, kw_only=True):
    """Limits of the front; `priorities` and `max_parts` are by model. See `config.GatewayConfig`."""

    max_body_bytes: int
    body_timeout_s: float
    priorities: dict[str, int]
    max_parts: dict[str, int]


class StatusError(Exception):
    """An answer that is an error of HTTP's own; `message` goes to the client."""

    def __init__(self, status: int, message: str, retry_after_s: float = 0.0, headers: Headers | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.headers = headers or []


class App:
    """The ASGI application over `state`."""

    def __init__(self, state: State, options: AppOptions) -> None:
        self._state = state
        self._driver = state.driver
        self._options = options
        self._pages = pages(state)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one request."""
        if scope["type"] == "http":
            parts = scope["path"].split("/")
            if parts[-1] == "infer" and parts[:3] == ["", "v2", "models"] and len(parts) in {5, 7}:
                await self._infer(scope, receive, send, parts)
                return
        await self._pages(scope, receive, send)

    # ---- inference ---------------------------------------------------------------------------------------------------

    async def _infer(self, scope: Scope, receive: Receive, send: Send, parts: list[str]) -> None:
        """Answer one inference request, whatever happens, once."""
        rid_header: Headers = []
        try:
            status, headers, body = await self._answer(scope, receive, parts, rid_header)
        except StatusError as error:
            status, headers, body = _error(error.status, str(error), error.retry_after_s)
            headers += error.headers
        except UnavailableError as error:
            status, headers, body = _error(error.http_status, str(error), error.retry_after_s)
        except TurnoutError as error:
            status, headers, body = _error(error.http_status, str(error))
        except ClientGoneError:
            self._state.statuses[499] += 1
            return
        self._state.statuses[status] += 1
        headers += rid_header
        if self._state.unready:  # the client's next request belongs to another gateway
            headers.append((b"connection", b"close"))
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(
        self, scope: Scope, receive: Receive, parts: list[str], rid_header: Headers
    ) -> tuple[int, Headers, bytes]:
        """Status, headers and body of the answer."""
        if scope["method"] != "POST":
            raise StatusError(405, "inference requests are sent by POST", headers=[(b"allow", b"POST")])
        if self._state.draining:
            raise UnavailableError("this gateway is shutting down", retry_after_s=1.0)
        model = parts[3]
        version = _version(parts[4:-1])
        inputs, outputs = self._state.tensors(model, version)
        headers = dict(scope["headers"])
        body = await self._body(headers, receive)
        call = protocol.decode(body, _json_bytes(headers), inputs, outputs)
        answer = await self._run(model, call, receive, rid_header)
        if answer.reject is not None:
            raise _refusal(answer.reject)
        assert answer.outputs is not None
        encoded, json_bytes = protocol.encode(model, call.id, call.wanted, answer.outputs, outputs)
        if json_bytes is None:
            return 200, [JSON], encoded
        return 200, [BINARY, (b"inference-header-content-length", str(json_bytes).encode())], encoded

    async def _run(self, model: str, call: protocol.Call, receive: Receive, rid_header: Headers) -> Answer:
        """Hand the request to the driver and wait for its answer, or for the client to go away."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        submission = Submission(
            model=model,
            tensors=call.tensors,
            items=call.items,
            outputs=tuple(wanted.name for wanted in call.wanted),
            nbytes=call.nbytes,
            timeout_s=call.timeout_s,
            priority=call.priority - 1 if call.priority else self._options.priorities[model],
            max_parts=self._options.max_parts[model],
            client_id=call.id,
        )
        rid = self._driver.submit(submission, partial(_settle, future))
        rid_header.append((b"turnout-request-id", b"turnout-%d" % rid))
        watch = _Watch(loop, receive, lambda: self._driver.cancel(rid))
        try:
            answer = await future
        finally:
            watch.stop()
        if answer.reject is not None and answer.reject.reason == "cancelled":
            raise ClientGoneError
        return answer

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """The request's body, decompressed, never longer than allowed."""
        most = self._options.max_body_bytes
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise StatusError(413, f"the body has {int(declared)} bytes, and {most} are allowed")
        message = await receive()
        if message.get("more_body"):
            try:
                async with asyncio.timeout(self._options.body_timeout_s):
                    body = await self._rest(message, receive)
            except TimeoutError as error:
                said = f"the body did not come within {self._options.body_timeout_s:g} seconds"
                raise StatusError(408, said) from error
        elif message["type"] == "http.disconnect":
            raise ClientGoneError
        else:
            body = message.get("body", b"")
        if len(body) > most:
            raise StatusError(413, f"the body has {len(body)} bytes, and {most} are allowed")
        encoding = headers.get(b"content-encoding", b"identity").lower()
        return body if encoding == b"identity" else _decompress(body, encoding, most)

    async def _rest(self, message: MutableMapping[str, Any], receive: Receive) -> bytes:
        """The rest of a body that comes in several messages."""
        chunks, size = [message.get("body", b"")], len(message.get("body", b""))
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._options.max_body_bytes:
                raise StatusError(413, f"the body has more than {self._options.max_body_bytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)


def _settle(future: asyncio.Future[Answer], answer: Answer) -> None:
    """Wake the request up, unless its task was cancelled meanwhile."""
    if not future.done():
        future.set_result(answer)


class ClientGoneError(Exception):
    """Nobody is left to answer."""


class _Watch:
    """Calls `gone` when the client disconnects, from `WATCH_AFTER_S` on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive, gone: Callable[[], None]) -> None:
        self._receive = receive
        self._gone = gone
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._timer = loop.call_later(WATCH_AFTER_S, self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone()

    def stop(self) -> None:
        """The answer is there."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


def _refusal(reject: Reject) -> StatusError:
    """A reject of the router as an answer."""
    status = STATUSES.get(reject.reason, 503)
    detail = f"{reject.reason}: {reject.detail}" if reject.detail else reject.reason
    retry_after_s = reject.retry_after_s or (1.0 if status == 503 else 0.0)
    return StatusError(status, detail, retry_after_s)


def _error(status: int, message: str, retry_after_s: float = 0.0) -> tuple[int, Headers, bytes]:
    """An error in the protocol's form; `Retry-After` is in whole seconds, at least one."""
    headers = [JSON]
    if retry_after_s > 0.0:
        headers.append((b"retry-after", str(math.ceil(retry_after_s)).encode()))
    return status, headers, msgspec.json.encode({"error": message})


def _version(between: list[str]) -> str:
    """The version in the path, between the model and the verb."""
    if not between:
        return VERSION
    if between[0] != "versions":
        raise StatusError(404, "there is no such path")
    return between[1]


def _json_bytes(headers: dict[bytes, bytes]) -> int | None:
    """The header of the binary extension."""
    text = headers.get(b"inference-header-content-length")
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise RequestError(f"Inference-Header-Content-Length is a number of bytes, not {text.decode('latin-1')!r}")
    return int(text)


def _decompress(body: bytes, encoding: bytes, most: int) -> bytes:
    """A gzip or deflate body, never longer than `most`."""
    if encoding not in {b"gzip", b"deflate"}:
        raise StatusError(415, f"Content-Encoding is gzip or deflate here, not {encoding.decode('latin-1')!r}")
    machine = zlib.decompressobj(zlib.MAX_WBITS | 32 if encoding == b"gzip" else zlib.MAX_WBITS)
    try:
        plain = machine.decompress(body, most)
    except zlib.error as error:
        raise RequestError(f"the body is not {encoding.decode()}: {error}") from error
    if machine.unconsumed_tail:
        raise StatusError(413, f"the body has more than {most} bytes when decompressed")
    if not machine.eof:
        raise RequestError(f"the {encoding.decode()} body is cut short")
    return plain
