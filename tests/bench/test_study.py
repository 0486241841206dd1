"""The study's own arithmetic: rates, intervals, tasks that are kept, fleets, bounds on the realised trace."""

from __future__ import annotations

import json
from itertools import product
from math import comb
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy import stats
from study import elastic, fixed, mixed, report, robust, runs, setting
from study.runs import Run, Workers, highest_rate, interval
from study.setting import FIXED, SHARED

from turnout.core import events as ev
from turnout.demo.elsewhere import DEADLINES_S

ROOT = Path(__file__).resolve().parent.parent.parent


def run(**changes):
    """Our policy on the fixed fleet."""
    fields = {"model": "wnd", "policy": "turnout", "regime": SHARED, "deadline_s": 0.025, "count": 100, "seed": 1}
    return Run(**{"rate_per_s": 100.0, **fields, **changes})


@given(st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=10))
def test_the_interval_is_students(values):
    """As scipy computes it."""
    found = interval(values)
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    assert found["mean"] == pytest.approx(np.mean(values), abs=1e-9)
    assert (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("held", [3.0, 80.0, 100.0, 101.0, 2500.0])
def test_the_highest_rate_is_found_from_either_side(held, monkeypatch):
    """Within its precision below the crossing, wherever the search begins; 0 where no rate is held."""
    monkeypatch.setattr(runs, "met", lambda r: r.rate_per_s <= held)
    found = highest_rate(run())
    assert held / (1.0 + 1.01 * runs.PRECISION) <= found <= held
    monkeypatch.setattr(runs, "met", lambda _run: False)
    assert highest_rate(run()) == 0.0


def noted(path, number):
    """A task that leaves a trace of having been run."""
    with Path(path).open("a") as file:
        file.write(f"{number}\n")
    return {"square": number * number}


def test_tasks_are_run_once_and_kept_in_order(tmp_path):
    """What is in the file is not run again, by whatever process; a line that was cut off by a crash is."""
    trace, kept = str(tmp_path / "trace"), tmp_path / "kept.jsonl"
    tasks = [(trace, n) for n in (3, 1, 2)]
    first = Workers(2, kept).map(noted, tasks)
    assert first == [{"square": 9}, {"square": 1}, {"square": 4}]
    kept.write_bytes(kept.read_bytes()[:-5])
    assert Workers(1, kept).map(noted, tasks) == first
    assert sorted(Path(trace).read_text().split()) in [sorted(["1", "2", "3", str(n)]) for n in (1, 2, 3)]
    assert Workers(1, kept).map(noted, tasks) == first
    assert len(Path(trace).read_text().split()) == 4


@pytest.mark.parametrize(("groups", "fleet"), [(1, (3, 1)), (2, (4, 2)), (3, (3, 2))])
def test_every_partition_comes_once(groups, fleet):
    """There are as many as ways to put like machines into unlike boxes, and each uses the whole fleet."""
    found = list(mixed.partitions(groups, fleet))
    assert len(set(found)) == len(found)
    assert len(found) == comb(fleet[0] + groups - 1, groups - 1) * comb(fleet[1] + groups - 1, groups - 1)
    assert all(tuple(map(sum, zip(*machines, strict=True))) == fleet for machines in found)


def test_bounds_meet_the_luck_of_the_simulation():
    """A batch that the simulator starts takes what the bounds' instance has for its leader, size and pool."""
    trace = setting.traffic("wnd", 300, 1).at_rate(1200.0)
    instance = setting.instance_of("wnd", trace, SHARED, FIXED, deadline_s=0.025, seed=1)
    sent: dict[int, ev.Dispatch] = {}
    checked = 0

    def observe(event, actions):
        nonlocal checked
        if isinstance(event, ev.Finished):
            dispatch = sent.pop(event.batch)
            pool = setting.POOLS.index(dispatch.replica.rpartition("-")[0])
            first, items = dispatch.parts[0], sum(p.items for p in dispatch.parts)
            row = instance.luck(first.rid, first.start)
            assert event.service_s == pytest.approx(instance.seconds[pool][row, items])
            checked += 1
        sent.update((a.batch, a) for a in actions if isinstance(a, ev.Dispatch))

    runs.simulated(run(count=300, rate_per_s=1200.0), observe=observe)
    assert checked > 50


def test_the_fewest_replicas_are_found_by_halving(monkeypatch):
    """As by trying one after the other, where more never do worse."""
    where = elastic.Cell(model="wnd", multiple=2.0, load=0.1, deadline_s=0.02, rate_per_s=100.0)
    for needed, count in product(range(1, 10), range(1, 9)):

        def kept(_where, _policy, fleet, _plan, needed=needed):
            return elastic.Bought(fleet=fleet) if fleet[0] >= needed else elastic.Bought()

        monkeypatch.setattr(elastic, "_kept", kept)
        found = elastic._fewest(where, "turnout", list(range(1, count + 1)), 2, elastic.Plan())
        assert found.fleet == ((needed, 2) if needed <= count else None)


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        ([10, 10, 10, 10], 0.0),
        ([0, 10, 10, 10], 1.0),
        ([10, 0, 10, 10], 2.0),
        ([9, 9, 9, 9], None),
        ([10, 10, 10, 0], None),
    ],
)
def test_back_in_time_is_when_all_later_requests_are(met, expected):
    """The last bad span counts; and at least a quarter of the run has to be left."""
    assert robust.back_s(np.array(met, dtype=float), np.full(4, 10.0), 1.0) == expected


def test_wrong_predictions_are_wrong_by_as_much_as_they_say():
    """Every measured size by a share of its own, up to `NOISE`, which the fitted model carries on."""
    right, wrong = setting.latency("wnd", "r5n.large"), robust.told_wrong("wnd", "r5n.large", 1)
    ratios = [wrong.mean_s(n) / right.mean_s(n) for n in range(1, 1000)]
    assert 1.0 - robust.NOISE - 0.05 < min(ratios) < max(ratios) < 1.0 + robust.NOISE + 0.05
    assert wrong != robust.told_wrong("wnd", "r5n.large", 2)


def test_the_fixed_section_has_its_keys(monkeypatch):
    """A small study, end to end: shares, verdicts, reproduction and misses by size of every model and policy."""
    policies = ("turnout", "kairos")
    plan = fixed.Plan(
        models=("rm2",), policies=policies, single_policies=policies, count=150, tuning_count=0, seeds=(1, 2)
    )
    monkeypatch.setattr(Workers, "map", lambda _self, function, tasks, _say="": [builtin(function(*t)) for t in tasks])
    found = fixed.section(plan, Workers(1))
    for key in ("share_of_b1", "share_of_b2"):
        assert set(found[key]["rm2"]) == set(policies)
        assert all(0.0 < share < 2.0 for share in found[key]["rm2"].values())
    assert found["fixed_cells"]["shared"]["rm2"]["status"] in {"won", "lost", "tied"}
    assert set(found["reproduction"]["rm2"]["kairos"]) == {"reference", "served_late", "refused"}
    assert sum(d["requests"] for d in found["misses_by_size"]["rm2"]["turnout"]) == 150
    assert "gain of ours" in report.render(found)


def builtin(value):
    """As it would come back from another process."""
    return json.loads(runs.msgspec.json.encode(value))


def test_deadlines_are_those_of_the_published_study():
    """The five models of the reference, in milliseconds."""
    assert {m: round(1e3 * DEADLINES_S[m]) for m in setting.MODELS} == {
        "rm2": 350, "dien": 35, "wnd": 25, "mtwnd": 25, "ncf": 5,
    }  # fmt: skip


def test_the_page_shows_the_results_that_are_stored():
    """Nobody edits a figure of docs/routing.md: its tables are made of the artefact."""
    page = (ROOT / "docs/routing.md").read_text(encoding="utf-8")
    stored = ROOT / "bench/results/routing.json"
    if stored.exists():
        assert report.insert(page, report.render(json.loads(stored.read_text(encoding="utf-8")))) == page
    assert page.count(report.BEGIN) == page.count(report.END) == 1
