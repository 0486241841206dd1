"""Every route but the infer route, on Starlette: health, metadata, receipts, metrics. Every error is JSON.

    GET /v2   /v2/models   /v2/models/{model}[/versions/1][/ready]
    GET /v2/health/live   /v2/health/ready   /v2/turnout/decisions/{request}   /metrics

Not ready is 503. The gateway is ready while every model has a replica that is up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnout import __version__
from turnout.errors import TurnoutError, UnavailableError, UnknownModelError
from turnout.pools.base import TensorSpec
from turnout.serve import metrics
from turnout.serve.driver import Driver

EXTENSIONS = ["binary_tensor_data", "parameters", "schedule_policy"]
VERSION = "1"
"""The one version that every model has."""


class State:
    """What the routes share: `draining` refuses new requests, `unready` only says so to load balancers.

    `statuses` counts the answers of the infer route.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.draining = False
        self.unready = False
        self.statuses: Counter[int] = Counter()

    @property
    def ready(self) -> bool:
        """Whether every model has a replica, and nobody has told the gateway to stop."""
        return not (self.unready or self.draining) and all(map(self.driver.serves, self.driver.workloads))

    def check(self, model: str, version: str) -> None:
        """Refuse a model or version that is not here.

        Raises:
            UnknownModelError: it is not.
        """
        if model not in self.driver.workloads:
            raise UnknownModelError(f"no model is called {model!r}; there are: {', '.join(self.driver.workloads)}")
        if version != VERSION:
            raise UnknownModelError(f"model {model} has version {VERSION} only, not {version!r}")

    def tensors(self, model: str, version: str) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """The inputs and outputs of a model.

        Raises:
            UnknownModelError: there is no such model or version.
            UnavailableError: no replica of it was up so far, so its tensors are not known.
        """
        self.check(model, version)
        io = self.driver.models.get(model)
        if io is None:
            raise UnavailableError(f"model {model} is still loading", retry_after_s=1.0)
        return io.inputs, io.outputs


class _Pages:
    """One method per route."""

    def __init__(self, state: State) -> None:
        self._state = state

    def server(self, request: Request) -> Response:
        """Server metadata."""
        return _json({"name": "turnout", "version": __version__, "extensions": EXTENSIONS})

    def live(self, request: Request) -> Response:
        """Whether the process serves at all."""
        return _json({"live": True})

    def ready(self, request: Request) -> Response:
        """Whether every model can be served."""
        return _json({"ready": self._state.ready}, 200 if self._state.ready else 503)

    def models(self, request: Request) -> Response:
        """The models' names."""
        return _json({"models": list(self._state.driver.workloads)})

    def model(self, request: Request) -> Response:
        """A model's tensors."""
        name = request.path_params["model"]
        inputs, outputs = self._state.tensors(name, request.path_params.get("version", VERSION))
        document = {"name": name, "versions": [VERSION], "platform": "turnout"}
        return _json(document | {"inputs": _described(inputs), "outputs": _described(outputs)})

    def model_ready(self, request: Request) -> Response:
        """Whether a replica has the model."""
        name = request.path_params["model"]
        self._state.check(name, request.path_params.get("version", VERSION))
        up = self._state.driver.serves(name) and not (self._state.unready or self._state.draining)
        return _json({"name": name, "ready": up}, 200 if up else 503)

    def decision(self, request: Request) -> Response:
        """The receipt of one request."""
        name = request.path_params["request"]
        receipt = self._state.driver.receipts.find(name, self._state.driver.now_s())
        if receipt is None:
            raise HTTPException(404, f"there is no receipt of {name!r}: it never came, or is too long ago")
        return _json(receipt)

    def metrics(self, request: Request) -> Response:
        """What Prometheus scrapes."""
        body = metrics.render(self._state.driver.counters, self._state.statuses)
        return Response(body, media_type=metrics.CONTENT_TYPE)


def pages(state: State) -> Starlette:
    """The application of these routes."""
    here = _Pages(state)
    versioned = "/v2/models/{model}/versions/{version}"
    return Starlette(
        routes=[
            _on("/v2", here.server),
            _on("/v2/", here.server),
            _on("/v2/health/live", here.live),
            _on("/v2/health/ready", here.ready),
            _on("/v2/models", here.models),
            _on("/v2/models/{model}", here.model),
            _on("/v2/models/{model}/ready", here.model_ready),
            _on(versioned, here.model),
            _on(f"{versioned}/ready", here.model_ready),
            _on("/v2/turnout/decisions/{request}", here.decision),
            _on("/metrics", here.metrics),
        ],
        exception_handlers={HTTPException: _http_error, TurnoutError: _turnout_error, Exception: _unexpected},
    )


def _on(path: str, page: Callable[[Request], Response]) -> Route:
    """A GET route. Starlette would run a plain function in a thread."""

    async def endpoint(request: Request) -> Response:
        return page(request)

    return Route(path, endpoint, methods=["GET"])


def _described(specs: Iterable[TensorSpec]) -> list[dict[str, Any]]:
    """Tensors as the protocol's metadata."""
    return [{"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)} for spec in specs]


def _json(document: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(document), status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own errors, such as an unknown path."""
    assert isinstance(error, HTTPException)
    detail = f"there is no {request.url.path}" if error.detail == "Not Found" else error.detail
    return _json({"error": detail}, error.status_code, dict(error.headers or {}))


async def _turnout_error(request: Request, error: Exception) -> Response:
    """Errors of the tree."""
    assert isinstance(error, TurnoutError)
    headers = {}
    if isinstance(error, UnavailableError) and error.retry_after_s:
        headers["retry-after"] = str(math.ceil(error.retry_after_s))
    return _json({"error": str(error)}, error.http_status, headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    """A fault of ours; the traceback goes to standard error."""
    return _json({"error": "internal error"}, 500)
