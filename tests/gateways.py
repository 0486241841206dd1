"""Gateways for tests: one in a thread of this process, and one in a process of its own."""

import asyncio
import http.client
import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import uvloop

from turnout import config, serve

FLEET = """
[gateway]
port = 0
log = "log"
max_body_bytes = 100_000
{gateway}

[[models]]
name = "echo"
slo = {{ deadline_ms = 5000 }}
{model}

[[pools]]
name = "cpu"
backend = "simulated"
models = ["echo"]
latency = {{ a_s = {a_s}, b_s_per_item = 0.0 }}
workers = "{workers}"
replicas = {replicas}
price = {{ usd_per_h = 3600 }}
{pool}
"""


def written(folder, *, workers="thread", replicas=1, a_s=0.001, gateway="", model="", pool=""):
    """A config file of one simulated pool."""
    path = folder / "turnout.toml"
    values = {"workers": workers, "replicas": replicas, "a_s": a_s, "gateway": gateway, "model": model, "pool": pool}
    path.write_text(FLEET.format(**values))
    return path


@contextmanager
def in_thread(path):
    """A gateway in this process; yields it, and drains it in the end."""
    told = queue.Queue()

    async def live():
        stop = asyncio.Event()
        async with serve.running(config.load(path, {})) as gateway:
            told.put((gateway, asyncio.get_running_loop(), stop))
            await stop.wait()

    def main():
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(live())
        except Exception as error:  # noqa: BLE001  # the test's thread raises it
            told.put(error)

    thread = threading.Thread(target=main)
    thread.start()
    answer = told.get(timeout=30)
    if isinstance(answer, Exception):
        thread.join()
        raise answer
    gateway, loop, stop = answer
    try:
        yield gateway
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def in_process(path, *flags):
    """`turnout serve` in a process of its own; yields it and its ready line. It is killed if the test left it."""
    command = [sys.executable, "-m", "turnout", "serve", str(path), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield process, json.loads(line)
        finally:
            process.kill()


def ask(port, path, body=None, headers=None, method=None):
    """One request on a connection of its own: status, headers, parsed JSON (or text)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    kind = response.headers.get("content-type", "")
    return response.status, response.headers, json.loads(content) if kind == "application/json" else content.decode()


def request(value=1.0, items=1, **more):
    """A JSON request for the echo model."""
    x = {"name": "x", "shape": [items, 4], "datatype": "FP32", "data": [value] * (4 * items)}
    return json.dumps({"inputs": [x], **more}).encode()


def eventually(condition):
    """Wait for something that another thread or process does."""
    deadline_s = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline_s, "waited for 20 s"
        time.sleep(0.01)
