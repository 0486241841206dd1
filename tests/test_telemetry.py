"""The event log: what is written is read back, damage is named, segments stand alone; and the counters."""

import pytest

from turnout.core import events as ev
from turnout.core.cost import Price
from turnout.core.events import Arrived, Configured, Decide, Dispatch, Failed, Finished, Part, Piece, Reject, Reply
from turnout.core.fleet import Fleet, PoolSpec
from turnout.core.latency import line
from turnout.core.workload import Slo, Workload
from turnout.errors import ArtefactError
from turnout.telemetry import Counters, Histogram, LogWriter, read_log, segments

POOL = PoolSpec(name="cpu", device="cpu", models=("m",), replicas=1, max_items=8, price=Price(usd_per_s=1.0))
MODEL = Workload(name="m", slo=Slo(deadline_s=1.0), latency={"cpu": line(0.1, 0.01)})
FIRST = Configured(at_s=0.0, fleet=Fleet(pools=(POOL,)), models=(MODEL,), policy="turnout")


def arrived(rid, at_s=1.0, deadline_s=2.0):
    """One request of one item."""
    return Arrived(at_s=at_s, rid=rid, model="m", items=1, deadline_s=deadline_s)


def dispatch(batch, *rids):
    """One batch with one item of each request, predicted to take 0.1 s and at most 0.2 s."""
    parts = tuple(Part(rid, 0, 1) for rid in rids)
    return Dispatch(batch=batch, replica="cpu-0", model="m", parts=parts, start_s=1.0, predicted_s=0.1, p99_s=0.2)


LIFE = [
    FIRST,
    ev.ReplicaUp(at_s=0.5, replica="cpu-0", pool="cpu"),
    arrived(1),
    arrived(2, deadline_s=1.05),
    arrived(3),
    Decide(at_s=1.0),
    dispatch(1, 1, 2),
    Reject(rid=3, reason="queue full"),
    Finished(at_s=1.15, batch=1, service_s=0.15),
    Reply(rid=1, pieces=(Piece(0, 1, 1, 0),)),
    Reply(rid=2, pieces=(Piece(0, 1, 1, 1),)),
    dispatch(2, 4),
    Failed(at_s=1.3, batch=2, kind="replica died"),
    ev.Refused(why="no"),
    ev.ReplicaDown(at_s=2.5, replica="cpu-0"),
]


@pytest.fixture
def log(tmp_path):
    """A log of one segment with a whole life in it."""
    writer = LogWriter(tmp_path / "log", "run", fsync="tick")
    path = writer.start(FIRST)
    writer.write(LIFE[1:6])
    writer.write(LIFE[6:])
    writer.close()
    writer.close()
    return path


def test_what_was_written_is_read_back(log):
    """Every record, in order, with its line."""
    assert list(read_log(log)) == list(enumerate(LIFE, 1))
    assert segments(log.parent) == [log]


def test_a_line_cut_off_is_named(log):
    """And everything before it can still be read."""
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])
    with pytest.raises(ArtefactError, match=rf"line {len(LIFE)}: cut off.*--ignore-truncated-tail"):
        list(read_log(log))
    assert len(list(read_log(log, ignore_truncated_tail=True))) == len(LIFE) - 1
    log.write_bytes(whole[:20])
    with pytest.raises(ArtefactError, match="line 1: cut off"):
        list(read_log(log, ignore_truncated_tail=True))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b'{"type":"decide","at_s":0}\n', "first record is Decide, not Configured"),
        (b"{]\n", "line 1: damaged"),
        (b'{"type":"invented","at_s":0}\n', "line 1: not a record that this version of Turnout knows"),
        (b'{"type":"decide"}\n', "line 1: not a record"),
        (b"\xff\n", "line 1: damaged"),
    ],
)
def test_what_is_no_log_says_why(tmp_path, content, said):
    """Each kind of damage has its own message, with the file in it."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match=said) as caught:
        list(read_log(path))
    assert str(path) in str(caught.value)


def test_a_log_that_is_not_there(tmp_path):
    """Missing is an error, not an empty log."""
    with pytest.raises(ArtefactError, match="No such file"):
        list(read_log(tmp_path / "log.jsonl"))


def test_segments_follow_each_other(tmp_path):
    """Each appears with its first record in it, and none replaces another."""
    writer = LogWriter(tmp_path, "run", segment_bytes=100)
    writer.start(FIRST)
    assert writer.full
    second = writer.start(FIRST)
    writer.write([Decide(at_s=1.0)])
    assert [record for _, record in read_log(second)] == [FIRST, Decide(at_s=1.0)]
    writer.close()
    assert len(segments(tmp_path)) == 2
    with pytest.raises(ArtefactError, match="cannot begin the event log"):
        LogWriter(tmp_path, "run").start(FIRST)
    assert len(segments(tmp_path)) == 2


def test_a_folder_that_cannot_be_made(tmp_path):
    """A clear error before anything is served."""
    (tmp_path / "file").touch()
    with pytest.raises(ArtefactError, match="cannot begin the event log"):
        LogWriter(tmp_path / "file" / "log", "run").start(FIRST)


def test_counters():
    """Outcomes, coverage, usage: all from the records."""
    counters = Counters()
    counters.add(LIFE[:6])
    assert counters.unanswered == 3
    counters.add(LIFE[6:])
    assert counters.requests == {("m", "met"): 1, ("m", "late"): 1, ("m", "queue full"): 1}
    assert counters.request_s["m"].total == pytest.approx(0.3)
    assert counters.dispatches == {"cpu": 2}
    assert counters.finished == counters.covered == counters.failed == {"cpu": 1}
    assert counters.batch_items["cpu"].counts[:2] == [1, 1]
    assert counters.refused == 1
    assert counters.unanswered == counters.in_flight == 0
    usage = counters.usage("cpu", 9.0)
    assert usage.up_s == (2.0,)
    assert usage.busy_s == pytest.approx(0.15)


def test_counters_of_a_segment_read_alone():
    """What began in an earlier segment is left out; its replicas come from the snapshot."""
    counters = Counters()
    snapshot = {"replicas": [{"name": "cpu-0", "pool": "cpu", "up": True}]}
    head = Configured(at_s=1.0, fleet=FIRST.fleet, models=(MODEL,), policy="turnout", snapshot=snapshot)
    counters.add([head, *LIFE[8:]])
    assert counters.requests == {}
    assert counters.finished == {}
    assert counters.usage("cpu", 9.0).up_s == (1.5,)


def test_histogram_bounds_are_inclusive():
    """As Prometheus' `le` is."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.counts == [2, 1, 1]
    assert histogram.total == 12.0
