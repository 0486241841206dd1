"""Models in a process of their own: the engine that starts and drives it, and the program that runs in it.

The process speaks `wire` frames over its standard input and output, and is started as `python -m turnout.pools.worker`
from this very installation. What it prints goes to standard error. It dies with its parent: at the end of its input,
and (Linux) by signal, should it be computing. It ignores SIGINT and SIGTERM, since a terminal or a supervisor sends
these to the whole group, and the gateway still wants the answers that are under way.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from turnout import errors
from turnout.errors import ModelError, TurnoutError
from turnout.pools import wire
from turnout.pools.base import LoadedModel
from turnout.pools.replica import EngineGoneError, ModelIo, ReplicaSpec, Task, describe, load_models

STOP_S = 5.0
"""How long a process may take to end by itself after its input is closed."""

_PIPE_BYTES = 1 << 20
_PR_SET_PDEATHSIG = 1


class ProcessEngine:
    """Starts the process, sends it batches, and says when it is gone."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self._spec = spec
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return self._process.pid if self._process is not None else None

    def open(self) -> dict[str, ModelIo]:
        """Start a process and have it load every model."""
        self.close()
        process = subprocess.Popen(  # our own module by our own interpreter
            [sys.executable, "-m", "turnout.pools.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._process = process
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):  # a bound on pipe memory (pipe-user-pages-soft) costs speed, no more
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        kind, body, _ = self._ask("load", msgspec.to_builtins(self._spec), ())
        if kind == "error":
            self.close()
            raise _error(body)
        return msgspec.convert(body, dict[str, ModelIo])

    def run(self, task: Task) -> list[dict[str, np.ndarray]]:
        """Send one batch and wait for its outputs."""
        kind, body, outputs = self._ask("run", {"model": task.model}, task.runs)
        if kind == "error":
            raise _error(body)
        return outputs

    def watch(self, gone: Callable[[str], None]) -> None:
        """Wait for the end of the process in a thread of its own."""
        process = self._process
        assert process is not None

        def wait() -> None:
            process.wait()
            gone(_ended(process))

        threading.Thread(target=wait, name=f"watch {self._spec.name}", daemon=True).start()

    def close(self) -> None:
        """Let the process end, and make it end if it does not; it is reaped on return."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def kill(self) -> None:
        """The thread that waits for the process sees its end."""
        process = self._process
        if process is not None:
            process.kill()

    def _ask(
        self, kind: str, body: dict[str, Any], runs: tuple[Any, ...]
    ) -> tuple[str, dict[str, Any], list[dict[str, np.ndarray]]]:
        """One frame there, one frame back."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            wire.send(process.stdin.fileno(), kind, body, runs)
            answer = wire.receive(process.stdout.fileno())
        except (OSError, wire.FrameError):
            answer = None
        if answer is None:
            process.kill()  # it may have closed its pipe and live on, of no more use
            process.wait()
            raise EngineGoneError(_ended(process))
        return answer


def _ended(process: subprocess.Popen[bytes]) -> str:
    """How a process ended, in words."""
    code = process.returncode
    if code < 0:
        return f"replica died: process {process.pid} was ended by {signal.Signals(-code).name}"
    return f"replica died: process {process.pid} exited with {code}"


def _error(body: dict[str, Any]) -> TurnoutError:
    """The error that the process reports, as the class it was there."""
    known: type[TurnoutError] = {
        "ModelError": ModelError,
        "ConfigError": errors.ConfigError,
        "DeviceAbsentError": errors.DeviceAbsentError,
        "SilentFallbackError": errors.SilentFallbackError,
        "ExtraMissingError": errors.CapabilityError,
    }.get(body["class"], TurnoutError)
    return known(body["message"] if known is not TurnoutError else f"{body['class']}: {body['message']}")


# ---- in the process --------------------------------------------------------------------------------------------------


def main() -> int:
    """Load what the first frame says, then run batches until the input ends."""
    source, sink = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # a library that prints must not write into the frames
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent()
    models: dict[str, LoadedModel] = {}
    try:
        while (frame := wire.receive(source)) is not None:
            wire.send(sink, *_answer(models, *frame))
    except (BrokenPipeError, wire.FrameError):
        return 1  # the parent is gone: nobody is left to tell
    finally:
        for model in models.values():
            model.close()
    return 0


def _answer(
    models: dict[str, LoadedModel], kind: str, body: dict[str, Any], runs: list[dict[str, np.ndarray]]
) -> tuple[str, dict[str, Any], list[dict[str, np.ndarray]]]:
    """Do what a frame asks; the frame to send back."""
    try:
        if kind == "load":
            models.update(load_models(msgspec.convert(body, ReplicaSpec)))
            described = {name: describe(model) for name, model in models.items()}
            return "loaded", msgspec.to_builtins(described), []
        model = models[body["model"]]
        return "ran", {}, [model.run(feeds).outputs for feeds in runs]
    except Exception as error:  # noqa: BLE001  # the parent decides what an error means
        return "error", {"class": type(error).__name__, "message": str(error)}, []


def _die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
