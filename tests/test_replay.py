"""Replay proves what a log says, and says where it is wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.fleets import GPU_LATENCY, arrived, configured, pool
from turnout import policies, replay, simulate, telemetry
from turnout.core import events as ev
from turnout.core.router import Router
from turnout.errors import ArtefactError


def write_log(folder: Path, config: ev.Configured, *, requests: int = 200) -> Path:
    """A simulated run, written as the gateway writes it."""
    writer = telemetry.LogWriter(folder, "run")
    path = writer.start(config)
    draws = {(name, w.name): simulate.from_model(model) for w in config.models for name, model in w.latency.items()}
    traffic = [arrived(i, at_s=i * 0.002, items=1 + i % 7) for i in range(requests)]
    faults = [
        ev.ReplicaDown(at_s=0.1, replica="cpu-0", why="killed"),
        ev.ReplicaUp(at_s=0.2, replica="cpu-0", pool="cpu"),
    ]

    def observe(event, actions):
        if not isinstance(event, ev.Configured):
            writer.write([event, *actions])

    simulate.run(config, traffic, draws, policies.load, faults=faults, observe=observe)
    writer.close()
    return path


def rewrite(path: Path, change) -> None:
    """Apply `change(record dict)` to every line of a log."""
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    for record in lines:
        change(record)
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in lines))


def test_a_log_replays_to_the_identical_actions(tmp_path):
    """A fresh router does, on the events alone, exactly what was recorded."""
    path = write_log(tmp_path, configured())
    result = replay.verify(path, policies.load)
    assert result.identical
    assert result.actions > 200
    assert replay.verify(tmp_path, policies.load) == result


def test_altering_one_service_time_fails_the_digest(tmp_path):
    """Every recorded service time matters: a changed one changes a later action, and the line of it is named."""
    path = write_log(tmp_path, configured())
    seen = []

    def slow_down_one(record):
        if record["type"] == "finished":
            seen.append(record)
            if len(seen) == 20:
                record["service_s"] *= 3

    rewrite(path, slow_down_one)
    result = replay.verify(path, policies.load)
    assert not result.identical
    assert result.difference.recorded != result.difference.replayed


def test_altering_one_action_fails_the_digest(tmp_path):
    """A log whose actions were touched is found out."""
    path = write_log(tmp_path, configured())
    rewrite(
        path,
        lambda r: (
            r.update(reason="other")
            if r["type"] == "reject"
            else r.update(batch=r["batch"] + (r["batch"] == 9))
            if r["type"] == "dispatch"
            else None
        ),
    )
    result = replay.verify(path, policies.load)
    assert not result.identical
    assert "dispatch" in result.difference.recorded[0]


def test_a_truncated_log_is_named_and_can_be_read_up_to_there(tmp_path):
    """A log cut off anywhere in its last record is refused with the remedy, and the remedy works."""
    path = write_log(tmp_path, configured())
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ArtefactError, match="--ignore-truncated-tail"):
        replay.verify(path, policies.load)
    assert replay.verify(path, policies.load, ignore_truncated_tail=True).identical


def test_an_empty_log_is_refused(tmp_path):
    """An empty file and an empty folder are no logs."""
    (tmp_path / "log.jsonl").write_bytes(b"")
    with pytest.raises(ArtefactError, match="empty"):
        replay.verify(tmp_path / "log.jsonl", policies.load)
    (tmp_path / "none").mkdir()
    with pytest.raises(ArtefactError, match="no log segments"):
        replay.verify(tmp_path / "none", policies.load)


def simulated(config, arrivals, faults, latency):
    """The simulator in the shape that `what_if` wants."""
    draws = {key: simulate.from_model(model) for key, model in latency.items()}
    return simulate.run(config, arrivals, draws, policies.load, faults=faults)


def test_what_if_answers_for_a_larger_fleet(tmp_path):
    """More replicas meet more deadlines on the same traffic; the same fleet comes out as it was recorded."""
    path = write_log(tmp_path, configured(pool("cpu", replicas=2)), requests=600)
    recording = replay.record(path)
    answer = replay.what_if(recording, simulated, replicas={"cpu": 3})
    assert answer.recorded.attainment < answer.changed.attainment
    assert answer.same.attainment == pytest.approx(answer.recorded.attainment, abs=0.1)
    assert answer.changed.requests == answer.recorded.requests == 600


def test_what_if_refuses_pools_that_the_log_does_not_have(tmp_path):
    """A misspelt pool is said with the pools there are."""
    recording = replay.record(write_log(tmp_path, configured()))
    with pytest.raises(ArtefactError, match="the log has: cpu"):
        replay.what_if(recording, simulated, replicas={"gpus": 1})


def test_replicas_that_were_taken_away_stay_away(tmp_path):
    """A recorded restart does not bring back a replica that the changed fleet does not have."""
    recording = replay.record(write_log(tmp_path, configured()))
    assert recording.faults
    answer = replay.what_if(recording, simulated, replicas={"cpu": -2})
    assert [p.up_s for p in answer.changed.pools if p.pool == "cpu"] == [0.0]
    with pytest.raises(ArtefactError, match="0 to 1000"):
        replay.what_if(recording, simulated, replicas={"cpu": 10**9})


def test_an_added_pool_needs_a_name_of_its_own(tmp_path):
    """It must not silently replace one that the log has."""
    recording = replay.record(write_log(tmp_path, configured()))
    with pytest.raises(ArtefactError, match="another name"):
        replay.what_if(recording, simulated, add=[(pool("cpu"), {})])


def test_an_added_pool_takes_traffic(tmp_path):
    """Its own latency model predicts for it, and times are drawn from that."""
    recording = replay.record(write_log(tmp_path, configured(pool("cpu", replicas=1)), requests=600))
    added = pool("gpu", "cuda", 2)
    answer = replay.what_if(recording, simulated, add=[(added, {"m": GPU_LATENCY})])
    assert answer.changed.attainment > answer.same.attainment
    assert next(p for p in answer.changed.pools if p.pool == "gpu").items > 0


def test_a_log_that_contradicts_itself_is_refused_with_the_line(tmp_path):
    """An id that arrives twice while it is open cannot come from a router."""
    path = write_log(tmp_path, configured())
    lines = path.read_bytes().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if b'"arrived"' in line)
    path.write_bytes(b"".join(lines[: first + 1] + lines[first : first + 1] + lines[first + 1 :]))
    with pytest.raises(ArtefactError, match=f"line {first + 2}"):
        replay.verify(path, policies.load)


def test_of_several_runs_the_latest_with_requests_is_asked(tmp_path):
    """A folder keeps the runs of all starts; one that only started has nothing to ask."""
    write_log(tmp_path, configured(), requests=50)
    (tmp_path / "later-000000.jsonl").write_bytes((tmp_path / "run-000000.jsonl").read_bytes())
    (tmp_path / "zero-000000.jsonl").write_bytes(msgspec.json.encode(configured()) + b"\n")
    assert replay.record(tmp_path).path == str(tmp_path / "run-000000.jsonl")
    (tmp_path / "run-000000.jsonl").unlink()
    assert replay.record(tmp_path).path == str(tmp_path / "later-000000.jsonl")


def test_a_segment_alone_says_what_batches_took(tmp_path):
    """The replicas that were up already are in the segment's head; what ran on them counts as in a whole log."""
    whole = list(replay.groups(write_log(tmp_path, configured())))
    router = Router(policies.load)
    for group in whole[: len(whole) // 2]:
        router.handle(group.event)
    writer = telemetry.LogWriter(tmp_path / "later", "run")
    path = writer.start(replace(configured(), snapshot=router.snapshot()))
    for group in whole[len(whole) // 2 :]:
        writer.write([group.event, *group.actions])
    writer.close()
    assert replay.verify(path, policies.load).identical
    assert replay.record(path).slowdown.keys() == replay.record(tmp_path).slowdown.keys()
