"""`turnout serve` as an operator sees it: workers that are killed, signals, exit codes, nothing left behind."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.gateways import ask, eventually, in_process, request, written
from turnout import policies, replay, telemetry
from turnout.core import events as ev

INFER = "/v2/models/echo/infer"


def workers(process):
    """The worker processes of a gateway."""
    listed = Path(f"/proc/{process.pid}/task").glob("*/children")
    return [int(pid) for path in listed for pid in path.read_text().split()]


def finish(process, number=signal.SIGTERM):
    """Send a signal and wait; the exit code and what was said on standard error."""
    children = workers(process)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    return process.returncode, said


def load(port, stop, answers, name):
    """One keep-alive client; collects the status of each of its requests, and checks that the row is its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    number = 0
    while not stop.is_set():
        number += 1
        value = float(name * 100_000 + number)
        connection.request("POST", INFER, request(value, id=f"{name}-{number}"))
        response = connection.getresponse()
        document = json.loads(response.read())
        if response.status == 200:
            assert document["outputs"][0]["data"] == [value] * 4
            assert document["id"] == f"{name}-{number}"
        answers.append(response.status)
    connection.close()


def test_killed_workers_cost_no_request(tmp_path):
    """Under load, with workers killed again and again, every request is answered once, with its own rows."""
    path = written(tmp_path, workers="process", replicas=2, a_s=0.004)
    answers, stop = [], threading.Event()
    with in_process(path) as (process, ready):
        clients = [threading.Thread(target=load, args=(ready["port"], stop, answers, n)) for n in range(6)]
        for client in clients:
            client.start()
        for _ in range(4):
            time.sleep(0.3)  # under load is the point
            victims = workers(process)
            if victims:
                os.kill(victims[0], signal.SIGKILL)
        stop.set()
        for client in clients:
            client.join(30)
        metrics = ask(ready["port"], "/metrics")[2]
        code, said = finish(process)
    assert code == 0
    assert all(line.endswith("was ended by SIGKILL; it starts again") for line in said.splitlines())
    assert len(answers) > 50
    assert set(answers) == {200}
    records = [record for _, record in telemetry.read_log(Path(ready["log"]))]
    downs = [record for record in records if isinstance(record, ev.ReplicaDown)]
    assert downs
    assert all("SIGKILL" in down.why for down in downs)
    assert len(downs) == len(said.splitlines())
    arrivals = [record.rid for record in records if isinstance(record, ev.Arrived)]
    replies = [record.rid for record in records if isinstance(record, ev.Reply | ev.Reject)]
    assert sorted(replies) == arrivals
    assert len(arrivals) == len(answers)
    assert f'turnout_requests_total{{model="echo",outcome="met"}} {float(len(answers))}' in metrics
    assert replay.verify(tmp_path / "log", policies.load).identical


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(tmp_path, number):
    """Unready first, what is under way is answered, what is new is refused, the log is whole, the exit code is 0."""
    path = written(tmp_path, workers="process", a_s=1.0, pool="max_items = 1")
    with in_process(path) as (process, ready):
        port, answers = ready["port"], []
        assert ask(port, "/v2/health/ready")[0] == 200

        def slow():
            answers.append(ask(port, INFER, request())[0])

        client = threading.Thread(target=slow)
        client.start()
        eventually(lambda: "turnout_requests_unanswered 1.0" in ask(port, "/metrics")[2])
        process.send_signal(number)
        eventually(lambda: ask(port, "/v2/health/ready")[0] == 503)
        assert ask(port, "/v2/health/live")[0] == 200
        assert ask(port, INFER, request())[::2] == (503, {"error": "this gateway is shutting down"})
        client.join(30)
        _, said = process.communicate(timeout=30)
    assert answers == [200]
    assert (process.returncode, said) == (0, "")
    assert replay.verify(tmp_path / "log", policies.load).identical


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_models_load_ends_at_once(tmp_path, number, code):
    """There is nothing to drain: the exit code is the signal's, no ready line is said, and no worker is left."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = written(tmp_path, workers="process", replicas=2, pool="options = { start_s = 60.0 }")
    command = [sys.executable, "-m", "turnout", "serve", str(path), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            eventually(lambda: len(workers(process)) == 2)
            eventually(lambda: answers(port, "/v2/health/live") == 200)
            assert answers(port, "/v2/health/ready") == 503
            children = workers(process)
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
    eventually(lambda: not any(alive(pid) for pid in children))
    assert (process.returncode, stdout, stderr) == (code, "", "")


def answers(port, path):
    """The status of a route, None while nobody listens."""
    try:
        return ask(port, path)[0]
    except OSError:
        return None


def test_a_second_signal_does_not_wait(tmp_path):
    """The exit code is the signal's own."""
    with in_process(written(tmp_path, workers="process", a_s=30.0, model='late = "serve"')) as (process, ready):
        port = ready["port"]
        client = threading.Thread(target=quietly, args=(port,))
        client.start()
        eventually(lambda: "turnout_requests_unanswered 1.0" in ask(port, "/metrics")[2])
        process.send_signal(signal.SIGTERM)
        eventually(lambda: ask(port, "/v2/health/ready")[0] == 503)
        assert finish(process)[0] == 143
        client.join(30)


def quietly(port):
    """A request whose connection may be cut."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        ask(port, INFER, request())


def test_a_gateway_that_is_killed_takes_its_workers_with_it(tmp_path):
    """Even those that compute."""
    with in_process(written(tmp_path, workers="process", replicas=2)) as (process, _):
        children = workers(process)
        assert len(children) == 2
        process.kill()
        process.wait()
        eventually(lambda: not any(alive(pid) for pid in children))


def alive(pid):
    """Whether a process runs (one that waits to be reaped does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ('name = "echo"\nextra = 1', 2, "models[0].extra: there is no such key"),
        ('name = "echo"\npath = "x:y"', 2, "unknown field `nonsense`"),
    ],
)
def test_what_is_wrong_is_one_message_and_an_exit_code(tmp_path, changes, code, said):
    """No traceback, and nothing on standard output."""
    path = written(tmp_path, workers="process", pool="options = { nonsense = 1 }" if "path" in changes else "")
    path.write_text(path.read_text().replace('name = "echo"', changes))
    command = [sys.executable, "-m", "turnout", "serve", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
