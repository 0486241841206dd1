"""The demo's two processes: the gateway, started as a user would, and the client that sends it a plan."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from turnout.demo import load
from turnout.errors import CheckFailedError

STOP_S = 60.0
"""How long a drain may take."""


class Gateway:
    """`turnout serve CONFIG` as a context: started and ready inside, drained on the way out.

    `log` is its event log; `said` is the progress of the plan being sent; `killed` says what was done to a worker.
    """

    def __init__(self, config: Path, folder: Path, environ: Mapping[str, str]) -> None:
        """Nothing is started yet; `folder` takes what the gateway complains of."""
        self._config = config
        self._stderr = folder / "gateway.stderr"
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._port = 0
        self.log = ""
        self.said = ""
        self.killed = ""

    def __enter__(self) -> Self:
        """Start it and wait until it is ready.

        Raises:
            CheckFailedError: it does not start; the message is its own.
        """
        with self._stderr.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603  # this very program
                [sys.executable, "-m", "turnout", "serve", str(self._config)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environ,
                start_new_session=True,  # Ctrl-C is for the demo, which ends its processes itself
            )
        try:
            self._await_ready(self._process)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Read the line that says where it is."""
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise CheckFailedError(f"the gateway did not start: {self._stderr.read_text(errors='replace').strip()}")
        ready = msgspec.json.decode(line)
        self._url, self._port, self.log = ready["url"], ready["port"], ready["log"]

    def __exit__(self, *_raised: object) -> None:
        """Drain it."""
        assert self._process is not None
        with self._process as process:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=STOP_S)

    def send(self, plan: load.Plan, progress: Callable[[float], None], *, kill_half_way: bool = False) -> load.Result:
        """Run the client on `plan`; on request, kill one worker of the gateway when half of it is sent.

        Raises:
            CheckFailedError: the client ended without a result.
        """
        with subprocess.Popen(
            [sys.executable, "-c", "from turnout.demo.load import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
        ) as client:
            try:
                assert client.stdin is not None
                assert client.stdout is not None
                client.stdin.write(msgspec.json.encode(replace(plan, port=self._port)))
                client.stdin.close()
                total = len(plan.at_s)
                for line in client.stdout:
                    said = msgspec.json.decode(line)
                    if "status" in said:
                        return msgspec.convert(said, load.Result, strict=False)
                    dead = ", 1 replica killed" if self.killed else ""
                    self.said = f"serving: {said['sent']} sent, {said['answered']} answered{dead}"
                    progress(said["sent"] / total)
                    if kill_half_way and not self.killed and said["sent"] >= total / 2:
                        self.killed = self._kill_worker()
            finally:
                client.kill()
        raise CheckFailedError("the demo's client ended without a result; its own message is above")

    def receipt(self, number: int) -> dict[str, Any]:
        """The receipt of one request of the plan, while it is in the gateway's memory."""
        with urllib.request.urlopen(f"{self._url}/v2/turnout/decisions/demo-{number}", timeout=10) as answer:  # noqa: S310
            found: dict[str, Any] = msgspec.json.decode(answer.read())
        return found

    def _kill_worker(self) -> str:
        """SIGKILL one worker process; says what was done."""
        assert self._process is not None
        for pid in _children(self._process.pid):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"turnout.pools.worker" in command:
                os.kill(pid, signal.SIGKILL)
                return f"worker process {pid} killed with SIGKILL half-way"
        return "no replica killed: worker processes cannot be found on this system"


def _children(pid: int) -> list[int]:
    """Processes started by `pid`, where the system has /proc."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found
