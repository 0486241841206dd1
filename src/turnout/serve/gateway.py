"""The gateway's life: bind the port, load the models, serve, drain.

The port is bound before anything is loaded, so that a port in use is said at once. While models load the gateway is
live and not ready. A drain turns it unready first, refuses new requests, waits for those under way, closes the log, and
ends with exit code 0; a second signal ends it at once with the signal's own code (130 or 143).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnout import policies, store
from turnout.config import Config, PoolConfig, Resolved, resolve
from turnout.core.events import Configured
from turnout.core.profile import Profile
from turnout.core.router import Router
from turnout.errors import ConfigError
from turnout.pools.replica import LocalEngine, Replica, ReplicaSpec, Source
from turnout.pools.source import digest
from turnout.pools.worker import ProcessEngine
from turnout.serve.app import App, AppOptions
from turnout.serve.driver import Driver
from turnout.serve.pages import State
from turnout.serve.receipts import Receipts
from turnout.telemetry import Counters, LogWriter

BACKLOG = 2048
KEEP_ALIVE_S = 60
"""An idle connection is kept for longer than most clients' own limit, so that it is the client who closes it."""
STOP_S = 10.0
"""How long replicas may take to end after a drain; then, and after anything but a drain, processes are killed."""


class _Server(uvicorn.Server):
    """Uvicorn without its signal handlers: this module has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Capture none."""
        yield


class _Protocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1, with two things mended.

    Its own error is in the form that all errors have here. And when a connection is lost, every request on it is told:
    uvicorn tells the last one only, and an earlier one of a pipeline then fails on the closed socket.
    """

    _open: tuple[Any, ...] = ()

    def on_headers_complete(self) -> None:
        """One more request on this connection."""
        super().on_headers_complete()
        self._open = (*(cycle for cycle in self._open if not cycle.response_complete), self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is left to answer."""
        for cycle in self._open:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """A request that is not HTTP."""
        body = msgspec.json.encode({"error": msg})
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


class Gateway:
    """A gateway that runs: where it is, and what it consists of."""

    def __init__(self, *, app: App, state: State, replicas: list[Replica], address: tuple[str, int]) -> None:
        self.app = app
        self.state = state
        self.driver = state.driver
        self.replicas = replicas
        self.host, self.port = address
        self.log_path: Path | None = None

    @property
    def url(self) -> str:
        """Where clients reach it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def drain(self, grace_s: float, delay_s: float = 0.0) -> None:
        """Turn unready, then refuse new requests, then wait until every request under way has its answer."""
        self.state.unready = True
        await asyncio.sleep(delay_s)
        self.state.draining = True
        self.driver.close(grace_s)
        await self.driver.idle()


@contextlib.asynccontextmanager
async def running(config: Config) -> AsyncIterator[Gateway]:
    """A gateway that serves while the context is open; leaving it drains.

    Raises:
        ConfigError: the config cannot be served, or the port is taken.
        TurnoutError: a model cannot be loaded.
    """
    policies.load(config.policy.name, config.policy.params)
    listener = _bind(config.gateway.host, config.gateway.port)
    with listener:
        resolved = resolve(config, _load_profile, digest)
        gateway, log = _build(config, resolved, listener)
        server = _Server(_uvicorn_config(gateway.app))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        patience_s = 0.0
        try:
            await _load(gateway)
            yield gateway
            await gateway.drain(config.gateway.grace_s, config.gateway.drain_delay_s)
            patience_s = STOP_S
        finally:
            server.should_exit = True
            server.force_exit = not patience_s
            try:
                await serving
                await _stop(gateway.replicas, patience_s)
            finally:
                if log is not None:
                    log.close()


def run(config: Config, announce: Callable[[Gateway], None]) -> int:
    """Serve until SIGTERM or SIGINT; the process's exit code. `announce` is called once the gateway is ready."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, announce))


async def _serve(config: Config, announce: Callable[[Gateway], None]) -> int:
    """Serve until a signal; 0 after a drain, else the code of the signal that cut it short."""
    loop = asyncio.get_running_loop()
    stop, ready = asyncio.Event(), asyncio.Event()
    main = asyncio.current_task()
    assert main is not None
    code = 0

    def on_signal(number: int) -> None:
        nonlocal code
        if stop.is_set() or not ready.is_set():  # nothing to drain yet, or no patience for it
            code = 128 + number
            main.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    try:
        async with running(config) as gateway:
            ready.set()
            gateway.driver.on_change = lambda: stop.set() if gateway.driver.broken else None
            announce(gateway)
            await stop.wait()
    except asyncio.CancelledError:
        return code
    if gateway.driver.broken is not None:
        raise gateway.driver.broken
    return 0


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"gateway.host: cannot listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)  # now: two sockets may bind one port as long as neither listens
    except OSError as error:
        listener.close()
        raise ConfigError(f"gateway.port: cannot listen on {host} port {port}: {error.strerror}") from error
    return listener


def _uvicorn_config(app: App) -> uvicorn.Config:
    """Uvicorn as the front: httptools, no access log, no lifespan protocol, of its own messages only the errors."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=5,
    )


def _build(config: Config, resolved: Resolved, listener: socket.socket) -> tuple[Gateway, LogWriter | None]:
    """Everything that is there before a model is loaded."""
    now = dt.datetime.now(dt.UTC)
    began_s = time.monotonic()
    settings = config.gateway
    log = None
    if settings.log is not None:
        run_name = now.strftime("%Y%m%dT%H%M%S.%fZ")
        log = LogWriter(settings.log, run_name, segment_bytes=settings.log_segment_bytes, fsync=settings.log_fsync)
    loop = asyncio.get_running_loop()
    counters = Counters()
    driver = Driver(
        router=Router(policies.load),
        clock=lambda: time.monotonic() - began_s,
        loop=loop,
        log=log,
        receipts=Receipts(settings.receipts, counters),
        counters=counters,
        batch_axes={model.name: model.batch_axes for model in config.models},
    )
    log_path = driver.start(
        Configured(
            at_s=0.0,
            fleet=resolved.fleet,
            models=resolved.workloads,
            policy=config.policy.name,
            params=config.policy.params,
            seed=settings.seed,
            limits=resolved.limits,
            epoch=now.isoformat(),
            origin="live",
        )
    )
    options = AppOptions(
        max_body_bytes=settings.max_body_bytes,
        body_timeout_s=settings.body_timeout_s,
        priorities={model.name: model.priority for model in config.models},
        max_parts={model.name: model.max_parts for model in config.models},
    )
    replicas = _replicas(config, resolved, driver, loop)
    driver.runners = {replica.spec.name: replica for replica in replicas}
    state = State(driver)
    gateway = Gateway(app=App(state, options), state=state, replicas=replicas, address=listener.getsockname()[:2])
    gateway.log_path = log_path
    return gateway, log


def _replicas(config: Config, resolved: Resolved, driver: Driver, loop: asyncio.AbstractEventLoop) -> list[Replica]:
    """Every replica of every pool, not yet started."""
    replicas = []
    for pool, spec in zip(config.pools, resolved.fleet.pools, strict=True):
        for number in range(pool.replicas):
            wanted = ReplicaSpec(
                name=f"{pool.name}-{number}",
                pool=pool.name,
                backend=pool.backend,
                device=pool.device,
                models={name: _source(config, resolved, pool, name) for name in pool.models},
                start_s=spec.start_p50_s,
            )
            engine = ProcessEngine(wanted) if pool.workers == "process" else LocalEngine(wanted)
            replicas.append(Replica(wanted, engine, driver, loop.call_soon_threadsafe))
    return replicas


def _source(config: Config, resolved: Resolved, pool: PoolConfig, name: str) -> Source:
    """What a replica of `pool` loads as the model `name`; a simulated one takes as long as is predicted of it."""
    options = dict(pool.options)
    if pool.threads is not None:
        options["threads"] = pool.threads
    if pool.backend == "simulated" and not options.keys() & {"a_s", "b_s_per_item", "latency"}:
        workload = next(w for w in resolved.workloads if w.name == name)
        options["latency"] = msgspec.to_builtins(workload.latency[pool.name])
    path = next(model.path for model in config.models if model.name == name)
    return Source(source=path, options=options)


def _load_profile(path: Path) -> Profile:
    return store.load(path, Profile)


async def _load(gateway: Gateway) -> None:
    """Start every replica and wait until all are up; the first that does not come up ends it."""
    changed = asyncio.Event()
    driver = gateway.driver
    driver.on_change = changed.set
    for replica in gateway.replicas:
        replica.start()
    while driver.replicas_up < len(gateway.replicas):
        await changed.wait()
        changed.clear()
        if driver.faults:
            raise driver.faults[0]
    driver.loading = False
    driver.on_change = lambda: None


async def _stop(replicas: list[Replica], patience_s: float) -> None:
    """End every replica, and reap its process."""
    for replica in replicas:
        replica.close()
    ended = await asyncio.gather(*(asyncio.to_thread(replica.join, patience_s) for replica in replicas))
    for replica, done in zip(replicas, ended, strict=True):
        if not done:
            sys.stderr.write(f"turnout: {replica.spec.name} is still computing, and is abandoned\n")
