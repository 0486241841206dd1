"""A fit finds what changed, is judged by what it has not seen, and never recommends what is not better."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from tests.fit.logs import write_log
from tests.fleets import configured, pool
from turnout import config, fit, policies, replay, simulate, store
from turnout.core.latency import fit as fit_model
from turnout.core.profile import Profile
from turnout.errors import ArtefactError
from turnout.policies import threshold

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def run(log, **more):
    """Fit with the shipped policies and simulator."""

    def grid_of(name):
        return threshold.GRID if name == "threshold" else {}

    return fit.run(log, policies.load, simulate.run, grid_of, now=NOW, **more)


def test_a_pool_that_became_slower_is_refitted(tmp_path):
    """Times half as long again are learnt, the error on later batches falls, and the profile predicts the new times."""
    write_log(tmp_path, factor={"cpu": 1.5})
    fitted, profiles = run(tmp_path)
    cpu = next(r for r in fitted.models if r.pool == "cpu")
    assert cpu.better
    assert ("cpu", "m") in fitted.use_models
    assert cpu.old.bias == pytest.approx(0.5, abs=0.03)
    assert abs(cpu.new.bias) < 0.03
    assert cpu.new.error < 0.1 < cpu.old.error
    assert 0.97 <= cpu.new.coverage_p99 <= 1.0
    model = fit_model(profiles["cpu", "m"])
    assert model.mean_s(20) == pytest.approx(1.5 * (0.002 + 0.001 * 20), rel=0.05)
    assert "refitted profile of m on cpu" in fitted.verdict[0]


def test_what_is_right_already_is_kept(tmp_path):
    """With a model that holds nothing is recommended, and the recommendation changes nothing."""
    write_log(tmp_path)
    fitted, profiles = run(tmp_path)
    assert not profiles
    assert fitted.use_models == ()
    assert fitted.use_params is None
    assert fitted.verdict[0].startswith("Keep what you have")
    assert fitted.change.elsewhere == 0
    assert fitted.change.recommended == fitted.change.as_recorded


def test_a_bad_threshold_is_replaced_by_a_better_one(tmp_path):
    """Where the threshold sends too much to the CPU, a smaller one is found, and is better on later traffic."""
    head = configured(
        pool("cpu", replicas=1), pool("gpu", "cuda", 1), policy="threshold", params={"items": 600}, origin="live"
    )
    write_log(tmp_path, head, gap_s=0.008, largest=60)
    fitted, _ = run(tmp_path)
    assert fitted.use_params == fitted.tuning.best != {"items": 600}
    assert fitted.change.recommended.attainment > fitted.change.as_recorded.attainment
    assert fitted.change.elsewhere > 0
    assert len(fitted.tuning.trials) == len(threshold.GRID["items"])
    assert any(line.startswith("Set items = ") for line in fitted.verdict)
    assert any("in place of items = 600" in line for line in fitted.verdict)


def test_nothing_of_the_held_out_part_is_fitted_to(tmp_path):
    """A pool that became slower only after the cut is not refitted: the first part says nothing of it."""
    path = write_log(tmp_path)
    records = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    split_s = run(path)[0].split_s
    for record in records:
        if record["type"] == "finished" and record["at_s"] >= split_s:
            record["service_s"] *= 3.0
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    fitted, profiles = run(path)
    assert not profiles
    assert all(r.new.bias > 1.5 for r in fitted.models if r.new is not None)


def test_the_profiles_can_be_named_in_a_config(tmp_path):
    """What is saved loads as an artefact, and resolves in a config of the pool that it is for, at its largest batch."""
    write_log(tmp_path / "log", factor={"cpu": 2.0, "gpu": 2.0})
    fitted, profiles = run(tmp_path / "log")
    written = fit.save(fitted, profiles, tmp_path / "out")
    assert written[0].name == "fitted.json"
    assert store.load(written[0], fit.Fitted) == fitted
    assert tmp_path / "out/profiles/cpu-m.json" in written
    (tmp_path / "turnout.toml").write_text(
        '[[models]]\nname = "m"\nslo = { deadline_ms = 50 }\n'
        '[[pools]]\nname = "cpu"\nbackend = "simulated"\nmodels = ["m"]\nmax_items = 64\n'
        'profile = { m = "out/profiles/cpu-m.json" }\n'
    )
    resolved = config.resolve(
        config.load(tmp_path / "turnout.toml", {}), lambda path: store.load(path, Profile), lambda path: ""
    )
    assert resolved.workloads[0].latency["cpu"].mean_s(20) == pytest.approx(2.0 * 0.022, rel=0.05)


def test_a_profile_says_which_log_it_is_from(tmp_path):
    """The source has the log's name and what drove it; what a simulation took is never measured."""
    write_log(tmp_path, configured(origin="simulated: a test"), factor={"cpu": 2.0})
    provenance = run(tmp_path)[1]["cpu", "m"].provenance
    assert provenance.kind == "modelled"
    assert "run-000000.jsonl (simulated: a test)" in provenance.source


def test_a_refit_that_does_harm_is_not_recommended(tmp_path):
    """If fewer requests are in time with the better models, what there is stays, and the answer says why."""
    write_log(tmp_path, factor={"cpu": 1.5})
    old = replay.record(tmp_path).configured.models

    def harmful(head, *rest, **more):
        summary = simulate.run(head, *rest, **more)
        return summary if head.models == old else replace(summary, attainment=summary.attainment - 0.1)

    fitted, profiles = fit.run(tmp_path, policies.load, harmful, lambda _: {}, now=NOW)
    assert not profiles
    assert fitted.use_models == ()
    assert fitted.change.models_do_harm
    assert "fewer requests were in time" in fitted.verdict[0]
    assert fitted.change.recommended == fitted.change.as_recorded


def test_the_same_log_gives_the_same_answer(tmp_path):
    """Nothing depends on chance or the clock."""
    write_log(tmp_path, factor={"cpu": 1.5})
    assert run(tmp_path) == run(tmp_path)


def test_a_pool_with_too_few_batches_is_kept_and_said(tmp_path):
    """A pool that hardly ran cannot be judged; the others are."""
    write_log(
        tmp_path, configured(pool("cpu", replicas=4), pool("gpu", "cuda", 1), origin="live"), gap_s=0.05, largest=4
    )
    fitted, _ = run(tmp_path)
    idle = next(r for r in fitted.models if r.pool == "gpu")
    assert idle.new is None
    assert idle.why.startswith("too few batches")
    assert next(r for r in fitted.models if r.pool == "cpu").new is not None


def test_too_little_is_refused(tmp_path):
    """A log with a handful of requests, or without a finished batch, says nothing; the message says what it takes."""
    with pytest.raises(ArtefactError, match="it takes 100"):
        run(write_log(tmp_path / "few", requests=30))
    path = write_log(tmp_path / "none")
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if b'"finished"' not in line]
    path.write_bytes(b"".join(lines))
    with pytest.raises(ArtefactError, match="no batch that finished"):
        run(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtefactError, match="no log segments"):
        run(tmp_path / "empty")


def test_a_fleet_that_changed_is_refused_with_the_line(tmp_path):
    """One fit is of one configuration; where the log has another, the line is named."""
    path = write_log(tmp_path)
    other = replace(configured(pool("cpu", replicas=5), origin="live"), at_s=1.0)
    lines = path.read_bytes().splitlines(keepends=True)
    at = len(lines) // 2
    while b'"at_s"' not in lines[at]:  # an event, so that its actions stay with it
        at += 1
    path.write_bytes(b"".join([*lines[:at], msgspec.json.encode(other) + b"\n", *lines[at:]]))
    with pytest.raises(ArtefactError, match=f"line {at + 1}: the fleet changed here"):
        run(path)


def test_a_truncated_log_is_refused_or_read_up_to_there(tmp_path):
    """The refusal names the remedy, and the remedy works and is said in the answer."""
    path = write_log(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ArtefactError, match="--ignore-truncated-tail"):
        run(path)
    fitted, _ = run(path, ignore_truncated_tail=True)
    assert fitted.truncated
