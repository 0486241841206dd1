"""The whole answer, from logs whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.regret.requests import asked, log, served
from turnout import regret, store
from turnout.errors import ArtefactError, CheckFailedError, ConfigError
from turnout.regret import html, plots, runs
from turnout.regret.own import Objective, from_config
from turnout.regret.traffic import busiest, of

NOW = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def answer():
    """A GPU and two CPUs that are used at random."""
    return regret.run(*asked(served()), now=NOW)


def test_the_model_reproduces_the_log(answer):
    """The simulation of what was run, machine by machine, is the log again: its service times are the curves'."""
    seen = answer.calibration
    assert seen.trusted
    assert "machine" in seen.how
    assert seen.modelled_attainment == pytest.approx(seen.observed_attainment, abs=0.005)
    assert seen.modelled_p99_s == pytest.approx(seen.observed_p99_s, rel=0.02)


def test_bound_best_and_theirs_are_in_order(answer):
    """Bound <= best fleet <= theirs in dollars an hour, each with its origin, and a policy that is no worse."""
    assert answer.bound.usd_per_h <= answer.best_fleet.usd_per_h <= answer.theirs.usd_per_h
    assert answer.best_fleet.meets
    assert [x.origin for x in (answer.theirs, answer.same, answer.best_policy, answer.best_fleet, answer.bound)] == [
        "measured", "modelled", "modelled", "modelled", "bound",
    ]  # fmt: skip
    assert answer.best_policy.attainment >= answer.same.attainment


def test_the_split_adds_up(answer):
    """Model error + policy regret + fleet regret + gap = theirs less the bound, in dollars per million in time."""
    split = answer.split
    whole = answer.theirs.usd_per_million_met - answer.bound.usd_per_million_met
    assert split.model_error + split.policy_regret + split.fleet_regret + split.gap == pytest.approx(whole)
    assert split.fleet_usd_per_h + split.gap_usd_per_h == pytest.approx(
        answer.theirs.usd_per_h - answer.bound.usd_per_h
    )


def test_the_same_log_gives_the_same_answer(answer):
    """Exact: nothing depends on anything but the log."""
    assert regret.run(*asked(served()), now=NOW) == answer


def test_dollars_are_prices_times_hours(answer):
    """Theirs, from the prices, the second half's length, and the requests in time."""
    assert answer.theirs.usd_per_h == pytest.approx(0.7)
    table = served()
    half = table.part(len(table) // 2, len(table))
    met = ((half.latency_s <= 0.1) & half.ok).sum()
    hours = (half.at_s[-1] - half.at_s[0]) / 3600.0
    assert answer.theirs.usd_per_million_met == pytest.approx(0.7 * hours / met * 1e6)
    assert answer.theirs.attainment == pytest.approx(met / len(half))


def test_it_is_stored_and_shown(answer, tmp_path):
    """The artefact reads back as it was; the page has every line, figure and origin."""
    pytest.importorskip("plotly")
    paths = regret.save(answer, tmp_path)
    assert [p.name for p in paths] == ["regret.json", "report.html"]
    assert store.load(paths[0], regret.Regret) == answer
    page = html.render(answer)
    assert page.count('class="figure"') == 4
    for words in ("measured", "modelled", "bound", "yours, as measured", "best fleet", "The model against your log"):
        assert words in page


def test_failures_are_misses():
    """What was refused or failed is missed, however quick it was; and it is not run in the model if nobody saw it."""
    table = served()
    ok = np.ones(len(table), dtype=bool)
    ok[::20] = False
    backend = np.where(ok, table.backend, -1)
    traffic, own = asked(replace(table, ok=ok, backend=backend))
    assert not traffic.met[::20].any()
    run = runs.as_they_run(own, traffic, merged=False, recorded=True)
    assert not run.met[::20].any()
    assert run.summary.requests == ok.sum()


def test_a_wrong_model_is_not_trusted():
    """A log whose latencies are twice what its service times explain is said to be that, first of all."""
    table = served()
    answer = regret.run(*asked(replace(table, latency_s=2.5 * table.latency_s), deadline_s=0.2), now=NOW)
    assert not answer.calibration.trusted
    assert "do not act" in answer.verdict[0]


def test_what_no_idle_fleet_can_meet_is_said_at_once():
    """With the smallest deadline that one could: the 99 % quantile over requests on their best pool."""
    with pytest.raises(CheckFailedError) as raised:
        regret.run(*asked(served(), deadline_s=0.012), now=NOW)
    assert "take longer than their deadline on every pool" in str(raised.value)
    assert "m: 16.4 ms" in str(raised.value)  # 64 items on the GPU, which a tenth of the requests have
    regret.run(*asked(served(400, rate_per_s=5.0), deadline_s=0.0165), now=NOW)


def test_a_short_log_is_refused():
    """Too few requests to judge a share of 0.99 by."""
    table = served(300)
    traffic, own = asked(table)
    with pytest.raises(ArtefactError, match="it takes 200"):
        regret.run(traffic.part(0, 100), own, now=NOW)


def test_limits_are_kept():
    """No fleet beyond the limits is proposed; if none is enough, that is the answer; a pool there is not is refused."""
    traffic, own = asked(served())
    assert regret.run(traffic, own, now=NOW, most={"gpu": 0, "cpu": 8}).best_fleet.fleet["gpu"] == 0
    none = regret.run(traffic, own, now=NOW, most={"gpu": 0, "cpu": 1})
    assert none.best_fleet is None
    assert none.split.gap is None
    assert any("No fleet meets the objective" in line for line in none.verdict)
    with pytest.raises(ConfigError, match="there are gpu, cpu"):
        regret.run(traffic, own, now=NOW, most={"tpu": 1})


def test_the_busiest_window():
    """Of all windows on the grid the one with most items per second; a short log whole."""
    rng = np.random.default_rng(3)
    n, rows = 6000, 2000
    at_s = np.cumsum(rng.exponential(1.0, n) * np.where((np.arange(n) > 2600) & (np.arange(n) < 4700), 0.2, 1.0))
    traffic, _ = asked(served(300))
    table = log(at_s, rng.integers(1, 9, n), np.full(n, 0.01))
    traffic = replace(traffic, log=table, deadline_s=np.full(n, 0.1))
    first, last = busiest(traffic, rows)
    assert last - first == rows
    rates = {k: table.items[k : k + rows].sum() / (at_s[k + rows - 1] - at_s[k]) for k in range(0, n - rows + 1, 500)}
    assert first == max(rates, key=rates.get)
    assert busiest(traffic, n) == (0, n)


def test_crossovers_of_known_curves():
    """2 + n ms against 10 + 0.1 n ms cross at 9 items; at five times the price they cross at 96, beyond this log."""
    traffic, own = asked(served())
    (found,) = plots.crossovers(own, traffic)
    assert (found.pool, found.faster_from, found.cheaper_from) == ("gpu", 9, None)


def test_what_the_first_half_chose_may_not_hold_on_the_second():
    """If the second half is busier, the fleet is chosen anew with both known, and the answer says so."""
    quiet, busy = served(600, rate_per_s=20.0), served(600, rate_per_s=150.0, seed=1)
    at_s = np.concatenate([quiet.at_s, busy.at_s + quiet.at_s[-1] + 1.0])
    columns = {
        name: np.concatenate([getattr(quiet, name), getattr(busy, name)])
        for name in ("items", "latency_s", "ok", "backend", "service_s", "model")
    }
    answer = regret.run(*asked(replace(quiet, at_s=at_s, **columns)), now=NOW)
    assert answer.hindsight
    assert answer.best_fleet.meets
    assert any("in hindsight" in line for line in answer.verdict)


def test_every_policy_is_tried(answer):
    """All that ship, by name; `pinned` with its best pool."""
    from turnout.policies import POLICIES

    assert {t.policy for t in answer.tried} == set(POLICIES)


TWO_MODELS = """
models = [
  { name = "a", slo = { deadline_ms = 60, attainment = 0.95 } },
  { name = "b", slo = { deadline_ms = 300, attainment = 0.95 } },
]

[[pools]]
name = "gpu"
device = "cuda"
backend = "simulated"
models = ["a", "b"]
latency = { a_s = 0.01, b_s_per_item = 0.0001 }
price = { usd_per_h = 0.5 }

[[pools]]
name = "ca"
backend = "simulated"
models = ["a"]
latency = { a_s = 0.002, b_s_per_item = 0.002 }
price = { usd_per_h = 0.1 }

[[pools]]
name = "cb"
backend = "simulated"
models = ["b"]
latency = { a_s = 0.004, b_s_per_item = 0.004 }
price = { usd_per_h = 0.1 }
"""


def test_models_with_pools_of_their_own(tmp_path):
    """Each request has its model's deadline, and no fleet is proposed that leaves a model without a pool."""
    path = tmp_path / "fleet.toml"
    path.write_text(TWO_MODELS)
    rng = np.random.default_rng(5)
    n = 1200
    table = log(
        np.cumsum(rng.exponential(0.03, n)),
        rng.integers(1, 20, n),
        rng.uniform(0.05, 0.07, n),
        model=rng.integers(0, 2, n),
        models=("b", "a"),
        backends=("gpu",),
    )
    own = from_config(path, table, Objective(), {})
    traffic = of(table, own.head.models, own.max_parts)
    assert traffic.met[table.model == 0].all()
    assert not traffic.met[table.model == 1].all()
    answer = regret.run(traffic, own, now=NOW)
    fleet = answer.best_fleet.fleet
    assert fleet["gpu"] or (fleet["ca"] and fleet["cb"])
    assert answer.bound.usd_per_h <= answer.best_fleet.usd_per_h
    assert {c.model for c in answer.crossovers} == {"a", "b"}
