"""One replica: a thread that owns a loaded model, drains its queue, and brings the model back when it dies.

The model is in this process (`LocalEngine`: its runtime must drop the interpreter's lock while it computes) or in a
process of its own (`worker.ProcessEngine`: a crash costs one batch and not the gateway). Everything that happens is
told to one `Listener` through `post`, which carries a call into the caller's event loop; nothing else is shared
between the threads. A replica knows no requests and no policy, and reads only the clock that measures a batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from msgspec import Struct

from turnout.errors import ModelError, TurnoutError
from turnout.pools import loader
from turnout.pools.base import LoadedModel, TensorSpec

Feeds = Mapping[str, np.ndarray]
Post = Callable[..., object]
"""`post(function, *arguments)` has the loop call `function`; `loop.call_soon_threadsafe` is one."""

BACKOFF_FIRST_S = 0.1
BACKOFF_MOST_S = 10.0
KILL_S = 2.0
"""How long a killed engine may take to be gone."""
STABLE_S = 30.0
"""A replica that lived this long starts again without the back-off of its earlier deaths."""


_LOADING = threading.Lock()
"""Runtimes are safe to run from several threads, and not to load: sessions made in parallel, streams redirected."""


class Source(Struct, frozen=True, kw_only=True):
    """One model to load: where from (see `base.Loader`), and the backend's options."""

    source: str
    options: dict[str, Any] = {}


class ReplicaSpec(Struct, frozen=True, kw_only=True):
    """What to load where; `start_s` is how long that should take."""

    name: str
    pool: str
    backend: str
    device: str
    models: dict[str, Source]
    start_s: float = 0.0


class ModelIo(Struct, frozen=True, kw_only=True):
    """What a loaded model says of itself."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    placement: dict[str, int]
    load_s: float


class Task(Struct, frozen=True, kw_only=True):
    """One batch: tensors that go together in one call, or several calls where their shapes keep them apart."""

    batch: int
    model: str
    runs: tuple[Feeds, ...]


class EngineGoneError(TurnoutError):
    """The process behind an engine died; its model is lost and what it was doing too."""


class Engine(Protocol):
    """Where the models of a replica live. Used by the replica's thread only, but for `watch`'s callback."""

    def open(self) -> dict[str, ModelIo]:
        """Load every model, anew if need be.

        Raises:
            TurnoutError: one cannot be loaded, or the process died over it.
        """

    def run(self, task: Task) -> list[dict[str, np.ndarray]]:
        """The outputs of every run of `task`.

        Raises:
            ModelError: the runtime refuses the inputs.
            EngineGoneError: the process died.
        """

    def watch(self, gone: Callable[[str], None]) -> None:
        """Call `gone(why)`, from any thread, when the engine dies with nobody asking it anything."""

    def close(self) -> None:
        """Free everything; waits until it is free."""

    def kill(self) -> None:
        """From any thread: end what `open` or `run` is doing, as far as that is possible."""


class Listener(Protocol):
    """Who wants to know. All calls are made in the event loop."""

    def replica_starting(self, replica: str, pool: str, ready_in_s: float) -> None:
        """It should be up in `ready_in_s` seconds."""

    def replica_up(self, replica: str, pool: str, models: dict[str, ModelIo]) -> None:
        """It takes batches."""

    def replica_down(self, replica: str, why: str, error: TurnoutError | None, ready_in_s: float) -> None:
        """It is gone with everything on it, and starts again; `error` is why a start failed."""

    def batch_finished(self, batch: int, outputs: Sequence[dict[str, np.ndarray]], service_s: float) -> None:
        """`outputs` of each run, after `service_s` from the start of the first to the end of the last."""

    def batch_failed(self, batch: int, kind: str, *, retryable: bool) -> None:
        """The batch has no outputs, and the replica lives on."""


class LocalEngine:
    """Loads the models in this process."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._models: dict[str, LoadedModel] = {}

    def open(self) -> dict[str, ModelIo]:
        """Load every model of the pool."""
        with _LOADING:
            self._models = load_models(self._spec)
        return {name: describe(model) for name, model in self._models.items()}

    def run(self, task: Task) -> list[dict[str, np.ndarray]]:
        """Run the task here and now."""
        model = self._models[task.model]
        return [model.run(feeds).outputs for feeds in task.runs]

    def watch(self, gone: Callable[[str], None]) -> None:
        """A thread does not die on its own."""

    def close(self) -> None:
        """Close every model."""
        while self._models:
            self._models.popitem()[1].close()

    def kill(self) -> None:
        """A thread cannot be ended from outside; it does not keep the process alive."""


def load_models(spec: ReplicaSpec) -> dict[str, LoadedModel]:
    """Load every model of `spec` in this process; on an error, none stays loaded."""
    load = loader(spec.backend)
    loaded: dict[str, LoadedModel] = {}
    try:
        for name, source in spec.models.items():
            loaded[name] = load(source.source, spec.device, source.options)
    except BaseException:
        for model in loaded.values():
            model.close()
        raise
    return loaded


def describe(model: LoadedModel) -> ModelIo:
    """The tensors of `model`, as a value that travels."""
    return ModelIo(
        inputs=tuple(model.inputs),
        outputs=tuple(model.outputs),
        placement=dict(model.placement),
        load_s=model.load_s,
    )


class _Gone(Struct, frozen=True):
    """In the queue: the engine died by itself, in the life numbered `life`."""

    life: int
    why: str


class Replica:
    """Runs the batches it is given, one after the other, for as long as it is not closed."""

    def __init__(self, spec: ReplicaSpec, engine: Engine, listener: Listener, post: Post) -> None:
        self.spec = spec
        self._engine = engine
        self._listener = listener
        self._post = post
        self._queue: SimpleQueue[Task | _Gone | None] = SimpleQueue()
        self._closing = threading.Event()
        self._cancelled: set[int] = set()
        self._thread = threading.Thread(target=self._live, name=f"replica {spec.name}", daemon=True)

    def start(self) -> None:
        """Begin to load; `Listener.replica_up` follows."""
        self._thread.start()

    def submit(self, task: Task) -> None:
        """Queue a batch; `batch_finished`, `batch_failed` or `replica_down` follows."""
        self._queue.put(task)

    def cancel(self, batch: int) -> None:
        """Do not begin with `batch` if it has not begun; `batch_failed` follows then."""
        self._cancelled.add(batch)

    def close(self) -> None:
        """Stop after the batch that is running; returns at once."""
        self._closing.set()
        self._queue.put(None)

    def join(self, patience_s: float) -> bool:
        """Wait for `patience_s` until the thread and its engine are gone, then end them; False if that fails."""
        if self._thread.ident is not None:
            self._thread.join(patience_s)
            if self._thread.is_alive():
                self._engine.kill()
                self._thread.join(KILL_S)
        return not self._thread.is_alive()

    def _tell(self, function: Callable[..., None], *arguments: object) -> None:
        """Post a call, unless the loop is closed already, when nobody is left to listen."""
        try:
            self._post(function, *arguments)
        except RuntimeError:
            self._closing.set()

    def _fail(self, batch: int, kind: str, *, retryable: bool) -> None:
        self._tell(partial(self._listener.batch_failed, batch, kind, retryable=retryable))

    def _live(self) -> None:
        """The thread: start, serve, and start again after every death."""
        deaths = life = 0
        self._tell(self._listener.replica_starting, self.spec.name, self.spec.pool, self.spec.start_s)
        try:
            while not self._closing.is_set():
                life += 1
                began_s = time.monotonic()
                why, error = self._one_life(life)
                if self._closing.is_set():
                    break
                deaths = 1 if time.monotonic() - began_s >= STABLE_S else deaths + 1
                pause_s = backoff_s(deaths)
                self._tell(self._listener.replica_down, self.spec.name, why, error, pause_s + self.spec.start_s)
                self._closing.wait(pause_s)
        finally:
            self._engine.close()

    def _one_life(self, life: int) -> tuple[str, TurnoutError | None]:
        """Load, serve until the end; why it ended, and the error if it never began."""
        try:
            models = self._engine.open()
        except TurnoutError as error:
            return f"did not start: {error}", error
        except Exception as error:  # noqa: BLE001  # a runtime's own fault ends this life and not the gateway
            return f"did not start: {error}", ModelError(f"replica {self.spec.name}: {error}")
        self._engine.watch(lambda why: self._queue.put(_Gone(life, why)))
        self._tell(self._listener.replica_up, self.spec.name, self.spec.pool, models)
        return self._serve(life), None

    def _serve(self, life: int) -> str:
        """Run what is queued until the engine dies or the replica is closed; why."""
        while (entry := self._queue.get()) is not None:
            if isinstance(entry, _Gone):
                if entry.life == life:
                    return entry.why
                continue
            try:
                self._run(entry)
            except EngineGoneError as error:
                return str(error)
        return "closed"

    def _run(self, task: Task) -> None:
        """Run one batch and tell how it went."""
        if task.batch in self._cancelled:
            self._cancelled.discard(task.batch)
            self._fail(task.batch, "cancelled", retryable=False)
            return
        began_s = time.perf_counter()
        try:
            outputs = self._engine.run(task)
        except EngineGoneError:
            raise
        except ModelError as error:
            self._fail(task.batch, str(error), retryable=False)
        except Exception as error:  # noqa: BLE001  # whatever a runtime raises costs a batch, not the replica
            self._fail(task.batch, f"{type(error).__name__}: {error}", retryable=True)
        else:
            service_s = time.perf_counter() - began_s
            self._tell(self._listener.batch_finished, task.batch, outputs, service_s)
        self._cancelled.discard(task.batch)


def backoff_s(deaths: int) -> float:
    """Seconds to wait before the start that follows `deaths` deaths in a row: 0.1, 0.2, 0.4, … at most 10."""
    return float(min(BACKOFF_FIRST_S * 2.0 ** (deaths - 1), BACKOFF_MOST_S))
