"""The driver with a clock and a loop that stand still: ticks, answers, replicas that come and go."""

import heapq
import itertools

import numpy as np
import pytest

from turnout import policies, replay, telemetry
from turnout.core import events as ev
from turnout.core.cost import Price
from turnout.core.events import Decide
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import line
from turnout.core.router import Router
from turnout.core.workload import Slo, Workload
from turnout.errors import ConfigError
from turnout.pools.base import TensorSpec
from turnout.pools.replica import ModelIo
from turnout.serve.driver import Driver, Submission
from turnout.serve.receipts import Receipts
from turnout.telemetry import Counters, LogWriter

IO = ModelIo(
    inputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),),
    outputs=(TensorSpec(name="x", datatype="FP32", shape=(-1, 2)),),
    placement={},
    load_s=0.0,
)


class FakeLoop:
    """Time moves only by `run`."""

    def __init__(self):
        self.now_s = 0.0
        self.soon = []
        self.later = []
        self.order = itertools.count()

    def call_soon(self, callback):
        """The next turn."""
        self.soon.append(callback)

    def call_later(self, delay, callback):
        """A heap of timers; cancelled ones stay in it."""
        timer = Timer(callback)
        heapq.heappush(self.later, (self.now_s + delay, next(self.order), timer))
        return timer

    def turn(self):
        """One turn: what is due now."""
        ready, self.soon = self.soon, []
        for callback in ready:
            callback()

    def run(self, seconds):
        """Let time pass, with everything that is due on the way."""
        end_s = self.now_s + seconds
        while self.soon or (self.later and self.later[0][0] <= end_s):
            while self.soon:
                self.turn()
            if self.later and self.later[0][0] <= end_s:
                self.now_s, _, timer = heapq.heappop(self.later)
                if timer.callback is not None:
                    timer.callback()
        self.now_s = end_s


class Timer:
    """A callback that can be taken back."""

    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        """Take it back."""
        self.callback = None


class FakeRunner:
    """Keeps what it is given."""

    def __init__(self):
        self.tasks = []
        self.cancelled = []

    def submit(self, task):
        """Keep it."""
        self.tasks.append(task)

    def cancel(self, batch):
        """Keep it."""
        self.cancelled.append(batch)


class Rig:
    """A driver with two pools of one fake replica each; all that was told is in `answers`."""

    def __init__(self, folder, segment_bytes=1 << 20):
        self.loop = FakeLoop()
        self.answers = {}
        counters = Counters()
        self.log = LogWriter(folder, "run", segment_bytes=segment_bytes)
        self.driver = Driver(
            router=Router(policies.load),
            clock=lambda: self.loop.now_s,
            loop=self.loop,
            log=self.log,
            receipts=Receipts(10, counters),
            counters=counters,
            batch_axes={},
        )
        self.runners = {"cpu-0": FakeRunner(), "gpu-0": FakeRunner()}
        self.driver.runners = dict(self.runners)
        pools = tuple(
            PoolSpec(name=n, device=n, models=("m",), replicas=1, max_items=8, price=Price(usd_per_s=u))
            for n, u in (("cpu", 1.0), ("gpu", 10.0))
        )
        model = Workload(name="m", slo=Slo(deadline_s=1.0), latency={p.name: line(0.01, 0.001) for p in pools})
        self.driver.start(ev.Configured(at_s=0.0, fleet=Fleet(pools=pools), models=(model,), policy="earliest"))

    def up(self, *replicas):
        """Bring replicas up."""
        for replica in replicas or self.runners:
            self.driver.replica_starting(replica, replica[:3], 0.0)
            self.driver.replica_up(replica, replica[:3], {"m": IO})
        self.loop.run(0.0)

    def ask(self, value, items=1, **options):
        """Submit a request whose rows all hold `value`."""
        tensors = {"x": np.full((items, 2), value, np.float32)}
        submission = Submission(model="m", tensors=tensors, items=items, outputs=("x",), **options)
        return self.driver.submit(submission, self.told)

    def told(self, answer):
        """Every request is told once."""
        assert answer.rid not in self.answers
        self.answers[answer.rid] = answer

    def finish(self, replica="cpu-0", number=-1):
        """The replica returns its inputs."""
        task = self.runners[replica].tasks[number]
        self.loop.now_s += 0.01
        self.driver.batch_finished(task.batch, task.runs, 0.01)
        self.loop.run(0.0)

    def records(self):
        """What is in the log's first segment."""
        return [record for _, record in telemetry.read_log(telemetry.segments(self.log._folder)[0])]


@pytest.fixture
def rig(tmp_path):
    """A rig with both replicas up."""
    made = Rig(tmp_path)
    made.up()
    yield made
    made.log.close()
    assert replay.verify(tmp_path, policies.load).identical


def busy(rig):
    """The replica that has work."""
    return next(name for name, runner in rig.runners.items() if runner.tasks)


def test_what_arrives_in_one_tick_is_decided_at_once(rig):
    """Three requests, one `Decide`, one batch; each gets its own rows."""
    rids = [rig.ask(value) for value in (1, 2, 3)]
    rig.loop.run(0.0)
    assert sum(len(runner.tasks) for runner in rig.runners.values()) == 1
    rig.finish(busy(rig))
    assert [rig.answers[rid].outputs["x"].tolist() for rid in rids] == [[[v, v]] for v in (1, 2, 3)]
    arrivals = [n for n, r in enumerate(rig.records()) if isinstance(r, ev.Arrived)]
    decides = [n for n, r in enumerate(rig.records()) if isinstance(r, Decide) and n > arrivals[0]]
    assert arrivals[-1] < decides[0]


def test_a_batch_is_forgotten_when_all_are_answered(rig):
    """Nothing of a request stays but its receipt."""
    rig.ask(1)
    rig.loop.run(0.0)
    rig.finish(busy(rig))
    assert not rig.driver._batches
    assert not rig.driver.unanswered


def test_a_dead_replica_costs_no_request(rig):
    """What was on it goes elsewhere, and it may come back."""
    rid = rig.ask(5)
    rig.loop.run(0.0)
    first = busy(rig)
    rig.driver.replica_down(first, "replica died", None, 0.1)
    rig.loop.run(0.0)
    other = next(name for name in rig.runners if name != first)
    rig.finish(other)
    assert rig.answers[rid].outputs["x"].tolist() == [[5, 5]]
    receipt = rig.driver.receipts.find(f"turnout-{rid}", rig.loop.now_s)
    assert [attempt["failed"] for attempt in receipt["attempts"]] == ["replica died", ""]
    assert receipt["retries"] == 1
    rig.up(first)
    assert rig.driver.replicas_up == 2


def test_with_no_replica_left_requests_wait_for_the_restart(rig):
    """A restart is announced in the very tick of the death, so nobody is refused for want of a replica."""
    rid = rig.ask(5)
    rig.loop.run(0.0)
    for replica in rig.runners:
        rig.driver.replica_down(replica, "replica died", None, 0.1)
    late = rig.ask(6)
    rig.loop.run(0.0)
    assert not rig.answers
    rig.up()
    for name, runner in rig.runners.items():
        for number in range(len(runner.tasks)):
            rig.finish(name, number)
    assert {rid, late} == {r for r, answer in rig.answers.items() if answer.outputs is not None}


def test_what_cannot_be_done_in_time_is_refused(rig):
    """By the router's own alarm, at no more than a millisecond's delay."""
    for replica in list(rig.runners):
        rig.driver.replica_down(replica, "replica died", None, 9.0)
    rid = rig.ask(1, timeout_s=0.05)
    rig.loop.run(0.02)
    assert rid not in rig.answers
    rig.loop.run(0.05)
    assert rig.answers[rid].reject.reason == "deadline"


def test_a_failed_batch_that_no_other_replica_would_take_is_an_error(rig):
    """Not retryable: the detail reaches the client."""
    rid = rig.ask(1)
    rig.loop.run(0.0)
    task = rig.runners[busy(rig)].tasks[0]
    rig.driver.batch_failed(task.batch, "bad input", retryable=False)
    rig.loop.run(0.0)
    assert rig.answers[rid].reject.reason == "failed"
    assert "bad input" in rig.answers[rid].reject.detail
    assert not rig.driver._batches


def test_an_output_that_is_missing_is_an_error(rig):
    """A model that does not return what it declared."""
    rid = rig.ask(1)
    rig.loop.run(0.0)
    task = rig.runners[busy(rig)].tasks[0]
    rig.driver.batch_finished(task.batch, [{}], 0.01)
    rig.loop.run(0.0)
    assert "no output 'x'" in rig.answers[rid].reject.detail


def test_a_client_that_leaves_frees_the_replica(rig):
    """The batch nobody waits for is called off, and its result ignored."""
    rid = rig.ask(1)
    rig.loop.run(0.0)
    name = busy(rig)
    rig.driver.cancel(rid)
    rig.loop.run(0.0)
    assert rig.answers[rid].reject.reason == "cancelled"
    assert rig.runners[name].cancelled == [rig.runners[name].tasks[0].batch]
    rig.finish(name)
    rig.driver.cancel(rid)
    assert not rig.driver._batches


def test_closing_refuses_the_new_and_gives_the_old_their_grace(rig):
    """What is under way may finish; what is not done by then is told so."""
    rid = rig.ask(1)
    rig.loop.run(0.0)
    rig.driver.close(0.5)
    late = rig.ask(2)
    rig.loop.run(0.1)
    assert rig.answers[late].reject.reason == "closing"
    rig.loop.run(1.0)
    assert rig.answers[rid].reject.reason == "closing"


def test_pools_must_agree_on_the_tensors(rig):
    """A replica whose model has other tensors is a fault and gets no work."""
    other = ModelIo(inputs=IO.outputs, outputs=(), placement={}, load_s=0.0)
    rig.driver.replica_up("cpu-0", "cpu", {"m": other})
    assert isinstance(rig.driver.faults[0], ConfigError)


def test_full_segments_are_followed_by_the_next(tmp_path):
    """Each begins with a snapshot, and each replays alone to the same actions."""
    rig = Rig(tmp_path, segment_bytes=4096)
    rig.up()
    for value in range(40):
        rig.ask(value)
        rig.loop.run(0.001)
        for name, runner in rig.runners.items():
            while runner.tasks:
                rig.finish(name, 0)
                runner.tasks.pop(0)
    rig.log.close()
    assert len(telemetry.segments(tmp_path)) > 2
    assert replay.verify(tmp_path, policies.load).identical
    assert len(rig.answers) == 40
    read_back = Counters()
    for path in telemetry.segments(tmp_path):
        read_back.add(record for _, record in telemetry.read_log(path))
    assert read_back.requests == rig.driver.counters.requests == {("m", "met"): 40}


def test_a_fault_of_the_router_leaves_nobody_waiting(tmp_path, capsys, monkeypatch):
    """Everybody gets an error, and the gateway is told to stop."""
    rig = Rig(tmp_path)
    rig.up()
    rid = rig.ask(1)
    monkeypatch.setattr(rig.driver._router, "handle", lambda event: 1 / 0)
    rig.loop.run(0.0)
    assert rig.answers[rid].reject.detail == "internal error"
    assert rig.driver.broken is not None
    assert "ZeroDivisionError" in capsys.readouterr().err
    rig.log.close()


def test_a_disk_that_refuses_ends_the_log_and_not_the_service(rig, capsys, monkeypatch):
    """It is said once, aloud."""

    def full(records):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rig.log, "write", full)
    rid = rig.ask(1)
    rig.loop.run(0.0)
    rig.finish(busy(rig))
    assert rig.answers[rid].outputs is not None
    assert capsys.readouterr().err == "turnout: the event log ends here: No space left on device\n"
