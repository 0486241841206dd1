"""Replicas in threads and in processes: they load, run, die, come back, and leave nothing behind."""

import os
import queue
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from turnout.errors import ConfigError, ModelError
from turnout.pools.replica import LocalEngine, Replica, ReplicaSpec, Source, Task, backoff_s
from turnout.pools.worker import ProcessEngine

WAIT_S = 20.0
ENGINES = {"thread": LocalEngine, "process": ProcessEngine}
STATE = {"name": "s", "datatype": "FP32", "shape": (2, -1, 1), "batch_axis": 1}


class Ear:
    """A listener that queues what it is told."""

    def __init__(self):
        self.heard = queue.Queue()

    def __getattr__(self, name):
        """Every method of `Listener`."""
        return lambda *values, **named: self.heard.put((name, *values, *named.values()))

    def wait(self, name):
        """The next call of that name; others before it are dropped."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            heard = self.heard.get(timeout=max(deadline_s - time.monotonic(), 0.01))
            if heard[0] == name:
                return heard[1:]


def spec(backend="simulated", **options):
    """A replica with one model m."""
    source = Source(source=options.pop("source", ""), options=options)
    return ReplicaSpec(name="r-0", pool="r", backend=backend, device="cpu", models={"m": source})


@contextmanager
def started(kind, wanted):
    """A replica that was told to start, its engine and its listener."""
    ear = Ear()
    engine = ENGINES[kind](wanted)
    replica = Replica(wanted, engine, ear, lambda function, *values: function(*values))
    replica.start()
    try:
        yield replica, engine, ear
    finally:
        replica.close()
        assert replica.join(WAIT_S)


def rows(value):
    """One run with one item."""
    return {"x": np.full((1, 4), value, np.float32)}


def gone(pid):
    """Whether a process has ended (a zombie that nobody reaped has not)."""
    return not Path(f"/proc/{pid}").exists()


def eventually(condition):
    """Wait for something that another process does."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_replica_loads_runs_and_ends(kind):
    """It says what it has, runs every run of a task, and is gone after `close`."""
    with started(kind, spec()) as (replica, engine, ear):
        assert ear.wait("replica_starting") == ("r-0", "r", 0.0)
        _, _, models = ear.wait("replica_up")
        assert [tensor.name for tensor in models["m"].inputs] == ["x"]
        replica.submit(Task(batch=7, model="m", runs=(rows(1), rows(2))))
        batch, outputs, service_s = ear.wait("batch_finished")
        assert batch == 7
        assert [output["x_out"].tolist() for output in outputs] == [[[1] * 4], [[2] * 4]]
        assert service_s > 0.0
        pid = engine.pid if kind == "process" else None
    assert pid is None or gone(pid)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_model_that_cannot_be_loaded_is_an_error_of_its_own_class(kind):
    """The same in a process as in a thread; the replica tries again."""
    with started(kind, spec(nonsense=1)) as (_, _, ear):
        name, why, error, ready_in_s = ear.wait("replica_down")
        assert (name, ready_in_s) == ("r-0", backoff_s(1))
        assert isinstance(error, ConfigError)
        assert "nonsense" in why
        assert isinstance(ear.wait("replica_down")[2], ConfigError)


@pytest.mark.parametrize("kind", ENGINES)
def test_a_batch_that_a_model_refuses_costs_that_batch(kind):
    """The replica lives on."""
    with started(kind, spec(inputs=[STATE])) as (replica, _, ear):
        replica.submit(Task(batch=1, model="m", runs=(rows(1),)))
        batch, kind_of_failure, retryable = ear.wait("batch_failed")
        assert batch == 1
        assert "s" in kind_of_failure
        assert retryable or kind == "process"
        replica.submit(Task(batch=2, model="m", runs=({"s": np.ones((2, 3, 1), np.float32)},)))
        assert ear.wait("batch_finished")[1][0]["s_out"].shape == (2, 3, 1)


def test_a_batch_called_off_before_it_began():
    """It fails without running; one that runs already finishes."""
    with started("thread", spec(a_s=0.05)) as (replica, _, ear):
        replica.submit(Task(batch=1, model="m", runs=(rows(1),)))
        replica.submit(Task(batch=2, model="m", runs=(rows(2),)))
        replica.cancel(2)
        assert ear.wait("batch_finished")[0] == 1
        assert ear.wait("batch_failed") == (2, "cancelled", False)


@pytest.mark.parametrize("at_work", [True, False], ids=["at work", "idle"])
def test_a_killed_process_is_noticed_and_comes_back(at_work):
    """Whether it was computing or idle; the reason names the signal."""
    with started("process", spec(a_s=30.0 if at_work else 0.0)) as (replica, engine, ear):
        ear.wait("replica_up")
        pid = engine.pid
        if at_work:
            replica.submit(Task(batch=1, model="m", runs=(rows(1),)))
            time.sleep(0.05)  # it is the kill under way that matters; before it began would do as well
        os.kill(pid, signal.SIGKILL)
        _, why, error, _ = ear.wait("replica_down")
        assert why == f"replica died: process {pid} was ended by SIGKILL"
        assert error is None
        assert gone(pid)
        ear.wait("replica_up")
        assert engine.pid != pid
        if not at_work:
            replica.submit(Task(batch=2, model="m", runs=(rows(2),)))
            assert ear.wait("batch_finished")[0] == 2
        else:
            os.kill(engine.pid, signal.SIGKILL)  # else `close` would wait for the batch


def test_signals_to_the_group_do_not_end_a_worker():
    """A terminal's Ctrl-C reaches it too, and the gateway still wants its answers."""
    with started("process", spec()) as (replica, engine, ear):
        ear.wait("replica_up")
        os.kill(engine.pid, signal.SIGINT)
        os.kill(engine.pid, signal.SIGTERM)
        replica.submit(Task(batch=1, model="m", runs=(rows(1),)))
        assert ear.wait("batch_finished")[0] == 1


PARENT = """
import sys
from turnout.pools.replica import ReplicaSpec, Source, Task
from turnout.pools.worker import ProcessEngine
import numpy as np
models = {"m": Source(source="", options={"a_s": 60.0})}
spec = ReplicaSpec(name="r", pool="r", backend="simulated", device="cpu", models=models)
engine = ProcessEngine(spec)
engine.open()
print(engine.pid, flush=True)
engine.run(Task(batch=1, model="m", runs=({"x": np.zeros((1, 4), np.float32)},)))
"""


def test_a_worker_dies_with_its_parent():
    """Even in the middle of a batch, and even when the parent was killed."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    eventually(lambda: gone(pid) or Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z")


def test_what_a_model_prints_does_not_reach_the_frames(tmp_path, monkeypatch, capfd):
    """It goes to standard error."""
    (tmp_path / "noisy.py").write_text(
        "import os\nos.system('echo shouted')\nprint('said', flush=True)\ncall = print\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with started("process", spec(backend="callable", source="noisy:call")) as (_, _, ear):
        ear.wait("replica_up")
    out, err = capfd.readouterr()
    assert out == ""
    assert "shouted" in err
    assert "said" in err


def test_the_pause_before_a_restart_doubles():
    """From a tenth of a second to ten seconds."""
    assert [backoff_s(n) for n in (1, 2, 3, 8, 50)] == [0.1, 0.2, 0.4, 10.0, 10.0]


def test_a_missing_model_file_is_a_model_error(tmp_path):
    """The class survives the way out of the process."""
    pytest.importorskip("onnxruntime")
    with started("process", spec(backend="onnx", source=str(tmp_path / "no.onnx"))) as (_, _, ear):
        error = ear.wait("replica_down")[2]
        assert isinstance(error, ModelError)
        assert "no.onnx" in str(error)
