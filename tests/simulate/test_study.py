"""Studies: the same whatever the number of processes, with what a summary leaves out, and early refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from io import StringIO

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from turnout import store
from turnout.core.profile import Profile, Provenance, Samples
from turnout.errors import ArtefactError, CheckFailedError, ConfigError
from turnout.simulate import faults, given, html, study, tails, text, traffic, words
from turnout.simulate.artefact import QUANTILES, Simulated
from turnout.simulate.study import Contender, Options
from turnout.traces import laws

NOW = datetime(2026, 1, 2, tzinfo=UTC)

CONFIG = """
[policy]
name = "threshold"
params = { items = 64 }

[[models]]
name = "a"
slo = { deadline_ms = 50, attainment = 0.95 }
max_parts = 2
priority = 3

[[models]]
name = "b"
slo = { deadline_ms = 500 }

[[pools]]
name = "cpu"
backend = "simulated"
models = ["a", "b"]
replicas = 2
max_items = 200
latency = { a_s = 0.001, b_s_per_item = 0.0002 }
price = { usd_per_h = 0.1 }

[[pools]]
name = "gpu"
device = "cuda"
backend = "simulated"
models = ["a", "b"]
max_items = 200
latency = { a_s = 0.006, b_s_per_item = 0.00001 }
price = { usd_per_h = 0.5 }
"""


@cache
def published(**slo):
    """Two T4 and nine CPU instances with the published times of RM2."""
    return given.from_published("rm2", {"g4dn.xlarge": 2, "r5n.large": 9}, slo or {"deadline_s": 0.35}, {}, None)


def config(folder, content=CONFIG):
    """The config above."""
    path = folder / "fleet.toml"
    path.write_text(content)
    return given.from_config(path, {}, {}, {}, None)


def source(count=1500, rate=100.0, sizes="kairos", models=("rm2",), **mix):
    """Poisson arrivals."""
    drawn = traffic.of_laws(laws.Poisson(), laws.parse_sizes(sizes), rate, count)
    return traffic.for_models(drawn, models, traffic.Wanted(mix=mix))


def studied(what=None, seeds=(0, 1), policies=("turnout", "earliest"), load=None, **options):
    """A small study."""
    what = what or published()
    return study.study(
        what,
        load or source(),
        [Contender(policy=name, params={}) for name in policies],
        Options(seeds=seeds, **options),
        now=NOW,
    )


def broken(*texts):
    """Faults of the published fleet."""
    return tuple(faults.parse(one, published().head.fleet) for one in texts)


def test_processes_change_nothing():
    """Two processes come to the very same artefact as one, tails and faults included."""
    more = {
        "tails": (tails.parse("lognormal=0.2"), tails.parse("two-state=3,5,1")),
        "faults": broken("lost:g4dn.xlarge-0@3,back=8", "slow:r5n.large-1@2-9,factor=2"),
    }
    assert store.encode(studied(jobs=2, **more)) == store.encode(studied(jobs=1, **more))


def test_seeds_matter_and_repeat():
    """Two seeds differ, in traffic and in luck; each run is as it would be alone."""
    both, alone = studied(), studied(seeds=(1,))
    assert both.runs[0].summary != both.runs[1].summary
    assert both.runs[1] == alone.runs[0]
    assert [(r.policy, r.seed) for r in both.runs] == [
        ("turnout", 0), ("turnout", 1), ("earliest", 0), ("earliest", 1),
    ]  # fmt: skip


def test_the_details_add_up_to_the_summary():
    """Timeline, deciles and latencies count the same requests as the account."""
    (run,) = studied(seeds=(0,), policies=("turnout",), faults=broken("lost:g4dn.xlarge-0@3")).runs
    summary, line = run.summary, run.timeline
    assert sum(d.requests for d in run.deciles) == summary.requests == 1500
    assert sum(d.met for d in run.deciles) == summary.met
    assert sum(d.rejects for d in run.deciles) == sum(summary.rejects.values())
    assert 8 <= len(run.deciles) <= 10
    assert all(a.high < b.low for a, b in zip(run.deciles, run.deciles[1:], strict=False))
    assert sum(rate * line.width_s for rate in line.arrivals_per_s) == pytest.approx(1500)
    met = sum(
        (share or 0.0) * rate * line.width_s for share, rate in zip(line.attainment, line.arrivals_per_s, strict=True)
    )
    assert met == pytest.approx(summary.met)
    for pool in summary.pools:
        spec = next(p for p in published().head.fleet.pools if p.name == pool.pool)
        busy_s = sum(line.utilisation[pool.pool]) * line.width_s * spec.replicas
        assert busy_s == pytest.approx(pool.busy_s)
    every, *by_pool = run.latencies
    assert (every.pool, every.requests) == ("", summary.replies)
    assert sum(row.requests for row in by_pool) == summary.replies
    assert every.seconds[QUANTILES.index(0.99)] == pytest.approx(summary.latency_p99_s, rel=0.0026)
    assert max(line.waiting) > 0
    assert line.waiting[-1] == 0


def test_it_says_where_its_figures_come_from():
    """Modelled; the profiles published, with their source; the traffic, the seeds and the version."""
    found = studied(seeds=(4,), tails=(tails.parse("lognormal=0.1"),), faults=broken("cold:g4dn.xlarge-1,start_s=2"))
    assert found.origin == "modelled"
    assert {t.kind for t in found.service_times} == {"published"}
    assert "Kairos" in found.service_times[0].source
    assert found.traffic.source.startswith("poisson at 100 requests/s, sizes kairos, seed 4")
    assert found.traffic.redrawn
    assert found.tails == ("lognormal=0.1",)
    assert [(m.from_s, m.until_s, m.text) for m in found.faults] == [(0.0, 2.0, "cold:g4dn.xlarge-1,start_s=2")]
    assert found.version
    assert msgspec.json.decode(msgspec.json.encode(found), type=Simulated) == found


def test_a_config_says_what_serves(tmp_path):
    """Fleet, objectives, parts, priorities, prices and policy are the config's; what flags say goes before."""
    what = config(tmp_path)
    found = study.study(
        what, source(models=("a", "b"), sizes="uniform:1-90", a=3.0, b=1.0), study.contenders((), {}, what),
        Options(seeds=(0,)), now=NOW,
    )  # fmt: skip
    assert [(r.policy, r.params) for r in found.runs] == [("threshold", {"items": 64})]
    assert [(o.model, o.deadline_s, o.attainment, o.max_parts) for o in found.objectives] == [
        ("a", 0.05, 0.95, 2), ("b", 0.5, 0.99, 1),
    ]  # fmt: skip
    assert [(p.name, p.replicas, round(p.usd_per_h, 9)) for p in found.pools] == [("cpu", 2, 0.1), ("gpu", 1, 0.5)]
    assert {t.source for t in found.service_times} == {"a line in the config"}
    assert "a (75%), b (25%)" in found.traffic.source
    said = given.from_config(tmp_path / "fleet.toml", {}, {"deadline_s": 0.2}, {"gpu": 9.0}, 5)
    assert [w.slo.deadline_s for w in said.head.models] == [0.2, 0.2]
    assert said.head.models[0].slo.attainment == 0.95
    assert said.head.fleet.pools[1].price.usd_per_s == pytest.approx(9.0 / 3600)
    assert set(said.max_parts.values()) == {5}
    assert said.priority == {"a": 3, "b": 1}
    with pytest.raises(ConfigError, match="no such pool; there are: cpu, gpu"):
        given.from_config(tmp_path / "fleet.toml", {}, {}, {"tpu": 1.0}, None)


def test_several_models_need_shares(tmp_path):
    """A trace that does not name models says nothing of which is which; shares of strangers are refused."""
    names = [w.name for w in config(tmp_path).head.models]
    with pytest.raises(ConfigError, match="add --mix a=1,b=1"):
        source(models=names).draw(0)
    with pytest.raises(ConfigError, match="no model 'c'"):
        source(models=names, c=1.0).draw(0)


def test_a_trace_is_cut_and_scaled():
    """The first requests, at the rate asked; the same for every seed."""
    trace = laws.trace(laws.Poisson(), laws.Kairos(), count=1000, rate_per_s=5.0, seed=0)
    load = traffic.for_models(
        traffic.Source(draw=lambda _seed: trace, redrawn=False), ["m"],
        traffic.Wanted(rate_per_s=200.0, count=300, mix={}),
    )  # fmt: skip
    found = load.draw(7)
    assert len(found) == 300
    assert found.rate_per_s == pytest.approx(200.0)
    assert found.models == ("m",)
    assert not load.redrawn
    assert (found.items == trace.items[:300]).all()


def test_a_size_beyond_the_profile_is_refused_then_flagged():
    """The first such request is named, with what was measured; extrapolated, batches beyond are counted and said."""
    large = source(200, 2.0, sizes="choice:100=0.9,1500=0.1")
    with pytest.raises(ArtefactError, match=r"beyond the profiles of rm2 \(g4dn.xlarge up to 1000, .*--extrapolate"):
        studied(load=large)
    found = studied(what=published(deadline_s=2.0), load=large, seeds=(0,), policies=("earliest",), extrapolate=True)
    (run,) = found.runs
    assert run.beyond_profile > 10
    assert run.summary.replies == 200
    assert any(
        f"{run.beyond_profile} of {run.summary.batches} batches were beyond the profile" in n for n in found.notes
    )
    assert studied(seeds=(0,)).runs[0].beyond_profile == 0
    split = given.from_published("rm2", {"g4dn.xlarge": 2}, {"deadline_s": 2.0}, {}, 2)
    assert studied(what=split, load=large, seeds=(0,), policies=("turnout",)).runs[0].beyond_profile == 0


def test_one_measured_size_cannot_be_extrapolated():
    """It is said which profile has too little."""
    one = Profile(
        model="rm2", model_digest="", device="cpu", device_key="r5n.large", variant="",
        provenance=Provenance(kind="measured", source="", date="", hardware=""),
        samples=(Samples(items=10, service_s=(0.01,)),),
    )  # fmt: skip
    what = published()
    with pytest.raises(ArtefactError, match=r"rm2 on r5n\.large has one batch size"):
        given.Given(head=what.head, profiles={("r5n.large", "rm2"): one}, max_parts=what.max_parts, priority={}).draws(
            (), (), 0, extrapolate=True
        )


def test_the_impossible_is_said_before_anything_runs():
    """A deadline that idle machines miss is refused with the smallest feasible one, which then is let through."""
    with pytest.raises(CheckFailedError, match="the smallest deadline that it can meet is") as raised:
        studied(what=published(deadline_s=0.1))
    least_ms = float(str(raised.value).rpartition("meet is ")[2].removesuffix(" ms"))
    assert studied(what=published(deadline_s=least_ms * 1.001e-3), seeds=(0,), policies=("turnout",)).runs


def test_a_hopeless_run_is_stopped_and_said_to_be():
    """Every policy's line and the notes say so."""
    found = studied(load=source(rate=900.0), max_missed=30)
    assert all(run.summary.stopped_early for run in found.runs)
    assert "more than 30 requests had missed" in " ".join(found.notes)
    assert "stopped" in found.verdict[0]


def test_parameters_find_their_policy(tmp_path):
    """Flat for one policy, by name for several, the config's where nothing is said; strangers are refused."""
    what = config(tmp_path)

    def chosen(names, params):
        return [(c.policy, c.params) for c in study.contenders(names, params, what)]

    assert chosen((), {}) == [("threshold", {"items": 64})]
    assert chosen((), {"items": 3}) == [("threshold", {"items": 3})]
    assert chosen(("threshold",), {}) == [("threshold", {"items": 64})]
    assert chosen(("threshold",), {"items": 3}) == [("threshold", {"items": 3})]
    assert chosen(("threshold",), {"threshold": {"items": 3}}) == [("threshold", {"items": 3})]
    assert chosen(("earliest", "threshold"), {"threshold": {"items": 3}}) == [
        ("earliest", {}), ("threshold", {"items": 3}),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="'items' is none of the policies"):
        chosen(("earliest", "threshold"), {"items": 3})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("bert", {"g4dn.xlarge": 1}), "the tables have dien, mtwnd"), (("rm2", {"p3": 1}), "tables of rm2 have g4dn"),
     (("rm2", {}), "needs --fleet"), (("rm2", {"r5n.large": 0}), "needs --fleet")],
)  # fmt: skip
def test_what_was_not_published_is_refused(arguments, said):
    """The message says what there is."""
    with pytest.raises(ConfigError, match=said):
        given.from_published(*arguments, {"deadline_s": 0.35}, {}, None)
    with pytest.raises(ConfigError, match="--slo-ms"):
        given.from_published("rm2", {"r5n.large": 1}, {}, {}, None)


def test_it_can_be_read(tmp_path):
    """Terminal and page say that it is modelled, name every policy and fault, and are written whole."""
    found = studied(faults=broken("lost:g4dn.xlarge-0@3,back=8"))
    console = Console(width=160, file=StringIO())
    text.show(found, console)
    shown = console.file.getvalue()
    assert "Policies (modelled)" in shown
    assert "published: Li et al., Kairos" in shown
    assert "lost:g4dn.xlarge-0@3,back=8" in shown
    for line in words.lines(found):
        assert line.name in shown
        assert words.share(line.attainment) in shown
    page = html.render(found)
    assert page.count('class="figure"') == 6
    assert "lost:g4dn.xlarge-0@3,back=8" in page
    paths = study.save(found, tmp_path)
    assert [path.name for path in paths] == ["simulated.json", "report.html"]
    assert store.load(paths[0], Simulated) == found


def test_the_verdict_is_fair():
    """A policy that is not ahead on every seed is not called better."""
    found = studied()
    a, b = (replace(run, policy="x") for run in found.runs[:2])
    c, d = (
        replace(run, policy="y", summary=replace(run.summary, attainment=run.summary.attainment + by))
        for run, by in ((a, 0.004), (b, -0.002))
    )
    said = words.verdict(replace(found, runs=(a, b, c, d)))
    assert said[0].startswith("y answers")
    assert said[1].startswith("It is not ahead of x on every seed: +0.10 points (-0.20 to +0.40")
