"""A real gateway on loopback: the protocol's routes, tritonclient unmodified, errors from every layer."""

import gzip
import json
import math
import socket
import struct
import zlib

import numpy as np
import pytest

from tests.gateways import ask, eventually, in_thread, request, written
from turnout import config, policies, replay, serve
from turnout.errors import ConfigError

INFER = "/v2/models/echo/infer"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """One gateway for all tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("gateway")
    with in_thread(written(folder, gateway="body_timeout_s = 0.3")) as running:
        yield running
    assert replay.verify(folder / "log", policies.load).identical


@pytest.fixture
def client(gateway):
    """Triton's own client."""
    triton = pytest.importorskip("tritonclient.http")
    with triton.InferenceServerClient(f"127.0.0.1:{gateway.port}") as made:
        yield made


def tensor(values, *, binary):
    """An input for Triton's client."""
    import tritonclient.http as triton

    made = triton.InferInput("x", values.shape, "FP32")
    made.set_data_from_numpy(values, binary_data=binary)
    return made


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("outputs", [None, True, False])
def test_tritonclient_unmodified(client, binary, outputs):
    """Binary and JSON, both ways, with and without a list of outputs."""
    import tritonclient.http as triton

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    wanted = None if outputs is None else [triton.InferRequestedOutput("x_out", binary_data=outputs)]
    result = client.infer("echo", [tensor(x, binary=binary)], outputs=wanted, request_id="mine", model_version="1")
    assert np.array_equal(result.as_numpy("x_out"), x)
    assert result.get_response()["id"] == "mine"
    assert result.get_response()["model_name"] == "echo"


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_tritonclient_compressed(client, algorithm):
    """Bodies may be compressed."""
    x = np.ones((2, 4), np.float32)
    result = client.infer("echo", [tensor(x, binary=True)], request_compression_algorithm=algorithm)
    assert np.array_equal(result.as_numpy("x_out"), x)


def test_tritonclient_reads_health_and_metadata(client):
    """Everything that it asks before it infers."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("other")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    metadata = client.get_model_metadata("echo", "1")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


def test_tritonclient_shows_errors(client):
    """With the gateway's own message."""
    import tritonclient.utils

    with pytest.raises(tritonclient.utils.InferenceServerException, match=r"\[404\] no model is called 'no'"):
        client.infer("no", [tensor(np.ones((1, 4), np.float32), binary=True)])


def test_health_bodies(gateway):
    """What KServe's client reads."""
    assert ask(gateway.port, "/v2/health/live")[::2] == (200, {"live": True})
    assert ask(gateway.port, "/v2/health/ready")[::2] == (200, {"ready": True})
    assert ask(gateway.port, "/v2/models/echo/ready")[::2] == (200, {"name": "echo", "ready": True})
    assert ask(gateway.port, "/v2/models")[::2] == (200, {"models": ["echo"]})
    assert ask(gateway.port, "/v2/")[2]["name"] == "turnout"


def tensor_json(**changes):
    """A request for the echo model with something wrong in its one input; None takes a key away."""
    entry = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.0] * 4} | changes
    return json.dumps({"inputs": [{key: value for key, value in entry.items() if value is not None}]}).encode()


ERRORS = [
    (404, "/nowhere", None, {}, "there is no /nowhere"),
    (404, "/v2/models/no", None, {}, "no model is called 'no'"),
    (404, "/v2/models/echo/versions/2", None, {}, "has version 1 only"),
    (404, "/v2/models/echo/versions/2/infer", request(), {}, "has version 1 only"),
    (404, "/v2/models/echo/version/1/infer", request(), {}, "no such path"),
    (404, "/v2/turnout/decisions/no", None, {}, "no receipt of 'no'"),
    (404, f"/v2/turnout/decisions/turnout-{'9' * 5000}", None, {}, "no receipt of"),
    (405, INFER, None, {}, "sent by POST"),
    (405, "/v2/health/live", b"", {}, "Method Not Allowed"),
    (400, INFER, b"", {}, "is not JSON"),
    (400, INFER, b"{", {}, "is not JSON"),
    (404, "/v2/models/no/infer", request(), {}, "no model is called 'no'"),
    (400, INFER, tensor_json(name="z"), {}, "the model has no input 'z'; it has: x"),
    (400, INFER, tensor_json(datatype="INT64"), {}, "input x is FP32, and the request has INT64"),
    (400, INFER, tensor_json(shape=[1, 5]), {}, "input x has shape [-1, 4], and the request has [1, 5]"),
    (400, INFER, tensor_json(shape=[2**62, 4]), {}, "takes 18446744073709551616 values"),
    (400, INFER, tensor_json(data=None, parameters={"binary_data_size": 16}), {}, "16 binary bytes, and 0 are left"),
    (400, INFER, tensor_json(data=[math.nan] * 4), {}, "NaN and Infinity have no JSON form: send"),
    (400, INFER, request(), {"Inference-Header-Content-Length": "-1"}, "is a number of bytes"),
    (400, INFER, request(), {"Inference-Header-Content-Length": "9" * 30}, "is a number of bytes"),
    (400, INFER, request(items=33), {}, "at most 32"),
    (413, INFER, b" " * 100_001, {}, "100000 are allowed"),
    (413, INFER, gzip.compress(b" " * 200_000), {"Content-Encoding": "gzip"}, "when decompressed"),
    (415, INFER, request(), {"Content-Encoding": "br"}, "gzip or deflate"),
    (400, INFER, request(), {"Content-Encoding": "gzip"}, "is not gzip"),
    (400, INFER, zlib.compress(request())[:-9], {"Content-Encoding": "deflate"}, "cut short"),
]


@pytest.mark.parametrize("case", ERRORS)
def test_every_error_is_json(gateway, case):
    """From every layer, with what is wrong in it."""
    status, path, body, headers, said = case
    got, _, document = ask(gateway.port, path, body, headers)
    assert got == status
    assert said in document["error"]
    assert list(document) == ["error"]


def test_what_is_no_http_is_answered_in_json(gateway):
    """Uvicorn's own error too."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(b"NONSENSE\r\n\r\n")
        answer = connection.makefile("rb").read()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"400 Bad Request" in head
    assert "error" in json.loads(body)


def test_a_chunked_body_is_capped_too(gateway):
    """It declares no length."""
    chunks = [b" " * 50_000] * 3
    assert ask(gateway.port, INFER, iter(chunks))[0] == 413
    assert ask(gateway.port, INFER, iter([request()[:9], request()[9:]]))[0] == 200


def test_a_body_that_does_not_come(gateway):
    """A slow client is answered and let go."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: 90\r\n\r\n{{".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")


def test_a_raw_body(gateway):
    """The whole body is the tensor; the answer is binary."""
    headers = {"Inference-Header-Content-Length": "0"}
    status, got, text = ask(gateway.port, INFER, struct.pack("<4f", 0, 0, 0, 0), headers)
    assert status == 200
    assert int(got["inference-header-content-length"]) == len(text) - 16


def test_the_receipt_of_a_request(gateway):
    """By the client's id and by the gateway's; prediction beside fact, and money."""
    _, headers, _ = ask(gateway.port, INFER, request(id="r-1", parameters={"priority": 1, "timeout": 900_000}))
    name = headers["turnout-request-id"]
    receipt = ask(gateway.port, "/v2/turnout/decisions/r-1")[2]
    assert ask(gateway.port, f"/v2/turnout/decisions/{name}")[2]["request"] == receipt["request"] == name
    assert receipt["outcome"] == "met"
    assert receipt["priority"] == 0
    assert receipt["deadline_s"] - receipt["arrived_s"] == pytest.approx(0.9)
    (attempt,) = receipt["attempts"]
    assert attempt["pool"] == "cpu"
    assert attempt["candidates"][0]["replica"] == "cpu-0"
    assert attempt["actual"]["service_s"] >= attempt["predicted"]["service_s"] / 2
    assert receipt["billed_usd"] >= receipt["attempts"][0]["actual"]["service_s"]
    assert receipt["marginal_usd"] == 0.0


def test_metrics(gateway):
    """In base units, under the names that the dashboards use."""
    ask(gateway.port, INFER, request())
    _, headers, text = ask(gateway.port, "/metrics")
    assert headers["content-type"].startswith("text/plain")
    for line in (
        'turnout_requests_total{model="echo",outcome="met"}',
        'turnout_request_seconds_bucket{le="0.00025",model="echo"}',
        'turnout_batch_items_bucket{le="1.0",pool="cpu"}',
        'turnout_dispatch_total{pool="cpu"}',
        'turnout_batches_covered_total{pool="cpu"}',
        'turnout_replicas_up{pool="cpu"} 1.0',
        "turnout_requests_unanswered 0.0",
        'turnout_http_responses_total{status="200"}',
    ):
        assert line in text


def test_a_timeout_that_cannot_be_kept_is_refused(tmp_path):
    """At once, with 504 and the time after which another try makes sense."""
    with in_thread(written(tmp_path, a_s=0.2)) as running:
        status, headers, document = ask(running.port, INFER, request(parameters={"timeout": 1000}))
        assert status == 504
        assert document["error"].startswith("deadline: ")
        assert int(headers["retry-after"]) >= 1


def test_a_full_queue_is_refused(tmp_path):
    """With 503 and Retry-After; what waits is still answered."""
    path = written(tmp_path, a_s=0.3, pool="max_items = 1")
    path.write_text(path.read_text() + "\n[limits]\nmax_waiting = 1\n")
    with in_thread(path) as running:
        sockets = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(2)]
        for number, connection in enumerate(sockets):
            body = request()
            head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            eventually(lambda wanted=number + 1: running.driver.unanswered == wanted)
        status, headers, document = ask(running.port, INFER, request())
        assert (status, document["error"].split(":")[0]) == (503, "queue full")
        assert int(headers["retry-after"]) >= 1
        for connection in sockets:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            connection.close()


def test_a_client_that_leaves_is_cancelled(tmp_path):
    """Its request does not go on to cost anything."""
    with in_thread(written(tmp_path, a_s=1.0, pool="max_items = 1")) as running:
        body = request()
        head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", running.port)) as connection:
                connection.sendall(head.encode() + body)
                eventually(lambda: running.driver.unanswered == 1)
            eventually(lambda: running.driver.unanswered == 0)
        assert running.driver.counters.requests == {("echo", "cancelled"): 2}


def test_pipelined_requests_are_answered_in_order_and_may_be_left(gateway, caplog):
    """A client that goes away with requests on their way is no error of the gateway's."""
    head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: "
    sent = b"".join(f"{head}{len(body)}\r\n\r\n".encode() + body for body in map(request, (1.0, 2.0, 3.0)))
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(sent)
        got = b""
        while got.count(b"HTTP/1.1 200") < 3 or not got.endswith(b"}"):
            got += connection.recv(65536)
    positions = [got.index(b"[%.1f," % value) for value in (1, 2, 3)]
    assert positions == sorted(positions)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
            connection.sendall(sent)
    eventually(lambda: gateway.driver.unanswered == 0)
    assert ask(gateway.port, INFER, request())[0] == 200
    assert not caplog.records


def test_models_whose_items_are_not_on_the_first_axis(tmp_path):
    """Such as a recurrent state."""
    inputs = '{ name = "s", datatype = "FP32", shape = [2, -1, 3], batch_axis = 1 }'
    with in_thread(written(tmp_path, pool=f"options = {{ a_s = 0.001, inputs = [{inputs}] }}")) as running:
        state = {"name": "s", "shape": [2, 2, 3], "datatype": "FP32", "data": list(range(12))}
        status, _, document = ask(running.port, INFER, json.dumps({"inputs": [state]}).encode())
        assert (status, document["outputs"][0]["shape"]) == (200, [2, 2, 3])
        assert document["outputs"][0]["data"] == state["data"]


def test_a_port_in_use_is_said_before_anything_is_loaded(tmp_path):
    """A config error, with the port in it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = written(tmp_path, pool="start_s = 60\noptions = { start_s = 60 }")
        path.write_text(path.read_text().replace("port = 0", f"port = {port}"))
        with pytest.raises(ConfigError, match=f"port {port}: Address already in use"), in_thread(path):
            pass


def test_a_model_that_cannot_be_loaded_ends_the_start(tmp_path):
    """With the backend's own message."""
    with pytest.raises(ConfigError, match="nonsense"), in_thread(written(tmp_path, pool="options = { nonsense = 1 }")):
        pass


def test_an_unknown_policy_ends_the_start(tmp_path):
    """Before the port is bound."""
    path = written(tmp_path)
    path.write_text(path.read_text() + '\n[policy]\nname = "best"\n')
    with pytest.raises(ConfigError, match="no policy is called 'best'"), in_thread(path):
        pass


def test_the_public_names():
    """What other programs may call."""
    assert callable(serve.run)
    assert callable(serve.running)
    assert callable(config.load)


def test_a_draining_gateway_lets_go_of_its_clients(tmp_path):
    """Once it is unready every answer closes its connection, so that the next request goes elsewhere."""
    with in_thread(written(tmp_path)) as gateway:
        _, headers, _ = ask(gateway.port, "/v2/models/echo/infer", request())
        assert headers.get("connection") != "close"
        gateway.state.unready = True
        status, headers, _ = ask(gateway.port, "/v2/models/echo/infer", request())
        assert (status, headers["connection"]) == (200, "close")
