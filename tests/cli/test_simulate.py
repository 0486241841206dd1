"""`turnout simulate` as it is typed: what works, and what is refused with one message."""

from __future__ import annotations

import json

import pytest

from tests.fleets import configured
from tests.simulate.test_study import CONFIG
from turnout import policies, simulate, telemetry
from turnout.cli import app
from turnout.core import events as ev
from turnout.core.trace import make
from turnout.errors import ArtefactError, CheckFailedError, ConfigError
from turnout.simulate.arrivals import arrivals

RM2 = ("--model", "rm2", "--fleet", "g4dn.xlarge=2,r5n.large=9", "--slo-ms", "350")
LAWS = ("--rate", "60", "--sizes", "kairos", "--count", "300")
MOONCAKE = '{{"timestamp": {}, "input_length": {}, "output_length": 2}}\n'


def typed(*words):
    """Run the command with these words."""
    app(["simulate", *words], exit_on_error=False, result_action="return_value")


def answer(capsys, *words):
    """The body of its JSON document."""
    typed(*words, "--json")
    return json.loads(capsys.readouterr().out)["body"]


def test_published_machines_under_several_policies(capsys, tmp_path):
    """Every policy on every seed, written where it was told to."""
    body = answer(capsys, *RM2, *LAWS, "--policy", "earliest,threshold", "--params", "threshold.items = 300",
                  "--seeds", "3,4", "--tail", "lognormal=0.1", "--tail", "two-state=2,5,1", "--fault",
                  "drift:r5n.large@2,factor=1.2", "--out", str(tmp_path))  # fmt: skip
    assert [(r["policy"], r["params"], r["seed"]) for r in body["runs"]] == [
        ("earliest", {}, 3), ("earliest", {}, 4), ("threshold", {"items": 300}, 3), ("threshold", {"items": 300}, 4),
    ]  # fmt: skip
    assert body["tails"] == ["lognormal=0.1", "two-state=2,5,1"]
    assert {path.name for path in tmp_path.iterdir()} == {"simulated.json", "report.html"}


def test_two_jobs_print_the_same(capsys):
    """The document differs in its date at most."""
    one, two = (answer(capsys, *RM2, *LAWS, "--seeds", "0,1", "--jobs", jobs) for jobs in ("1", "2"))
    assert one.pop("date")
    assert two.pop("date")
    assert one == two


def test_a_config_and_a_trace(capsys, tmp_path):
    """The config's fleet and policy, the trace's moments and sizes, cut and scaled by flags."""
    (tmp_path / "fleet.toml").write_text(CONFIG)
    (tmp_path / "trace").write_text("".join(MOONCAKE.format(1000 * i, 1 + i % 50) for i in range(400)))
    body = answer(capsys, str(tmp_path / "fleet.toml"), "--trace", str(tmp_path / "trace"), "--rate", "50", "--count",
                  "300", "--mix", "a=1,b=1", "--attainment", "0.9", "--max-parts", "3")  # fmt: skip
    assert body["traffic"]["requests"] == 300
    assert body["traffic"]["rate_per_s"] == pytest.approx(50.0)
    assert [(o["attainment"], o["max_parts"]) for o in body["objectives"]] == [(0.9, 3), (0.9, 3)]
    assert body["runs"][0]["policy"] == "threshold"


def test_counts_in_a_window(capsys, tmp_path):
    """As many requests as the seconds of the window have."""
    (tmp_path / "counts").write_text("9 " * 10 + "20 " * 10)
    body = answer(capsys, *RM2, "--trace", str(tmp_path / "counts"), "--sizes", "fixed:50", "--window", "5-15")
    assert body["traffic"]["requests"] == 5 * 9 + 5 * 20
    assert body["traffic"]["redrawn"]


def test_a_log_of_turnout(capsys, tmp_path):
    """Its requests with their models and deadlines, on a fleet of the same models."""
    head = configured()
    draws = {(pool, "m"): simulate.from_model(model) for pool, model in head.models[0].latency.items()}
    trace = make([i * 0.01 for i in range(200)], [1 + i % 9 for i in range(200)], "x", "m")
    writer = telemetry.LogWriter(tmp_path / "log", "run")
    path = writer.start(head)

    def observe(event, actions):
        if not isinstance(event, ev.Configured):
            writer.write([event, *actions])

    simulate.run(head, arrivals(trace, {"m": 0.05}), draws, policies.load, observe=observe)
    writer.close()
    (tmp_path / "fleet.toml").write_text(CONFIG.replace('"a"', '"m"'))
    for log in (path, path.parent):
        body = answer(capsys, str(tmp_path / "fleet.toml"), "--trace", str(log))
        assert body["traffic"]["requests"] == 200
    assert "a log of turnout serve" in body["traffic"]["source"]


def test_it_prints_what_a_person_reads(capsys):
    """Without --json there is the verdict and a table, which say that they are modelled."""
    typed(*RM2, *LAWS)
    out = capsys.readouterr().out
    assert "in time (modelled" in out
    assert "Policies (modelled)" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (LAWS, "say what serves"),
        (("x.toml", *RM2, *LAWS), "leave out --model"),
        (("--model", "rm2", "--fleet", "g4dn.xlarge=x", *LAWS), "not a number of replicas"),
        (("--model", "rm2", "--fleet", "g4dn.xlarge", *LAWS), "not NAME=VALUE"),
        ((*RM2, "--rate", "5"), "say what arrives"),
        ((*RM2, "--rate", "-5", "--sizes", "kairos"), "--rate -5"),
        ((*RM2, *LAWS, "--arrivals", "steady"), "not an arrival law"),
        ((*RM2, *LAWS, "--price", "tpu=1"), "no such pool"),
        ((*RM2, *LAWS, "--price", "r5n.large=cheap"), "not an amount"),
        ((*RM2, *LAWS, "--attainment", "2"), "--attainment 2"),
        ((*RM2, *LAWS, "--max-parts", "0"), "--max-parts 0"),
        ((*RM2, *LAWS, "--jobs", "0"), "--jobs 0"),
        ((*RM2, *LAWS, "--seeds", "a"), "--seeds 'a'"),
        ((*RM2, *LAWS, "--max-missed", "-1"), "--max-missed -1"),
        ((*RM2, *LAWS, "--params", "items ="), "not TOML"),
        ((*RM2, *LAWS, "--policy", "best"), "no policy is called 'best'"),
        ((*RM2, *LAWS, "--fault", "lost:cpu-0@3"), "there is no 'cpu-0'"),
        ((*RM2, *LAWS, "--tail", "heavy"), "--tail 'heavy'"),
        ((*RM2, *LAWS[:4], "--count", "30000000"), "at most 20000000"),
        ((*RM2, "--trace", "x", "--arrivals", "poisson"), "leave out --arrivals"),
        (("--model", "rm2", "--fleet", "r5n.large=1", "--slo-ms", "0", *LAWS), "--slo-ms 0"),
    ],
)  # fmt: skip
def test_wrong_flags_are_refused(words, said):
    """One message, which says what is wrong."""
    with pytest.raises(ConfigError) as raised:
        typed(*words)
    assert said in str(raised.value)


def test_a_bad_trace_is_refused_with_its_line(tmp_path):
    """Out of order, or too large for what was measured."""
    path = tmp_path / "trace"
    path.write_text(MOONCAKE.format(5, 1) + MOONCAKE.format(3, 1))
    with pytest.raises(ArtefactError, match=r"line 2: arrives 0\.002 s before the line above it, a negative gap"):
        typed(*RM2, "--trace", str(path))
    path.write_text(MOONCAKE.format(5, 1) + MOONCAKE.format(6, 5000))
    with pytest.raises(ArtefactError, match=r"request 2 of trace.* with 5000 items"):
        typed(*RM2, "--trace", str(path))
    path.write_text(MOONCAKE.format(5, 1))
    for window in ("3", "5-3", "a-b"):
        with pytest.raises(ConfigError, match="--window"):
            typed(*RM2, "--trace", str(path), "--window", window)


def test_the_impossible_has_its_own_error():
    """A deadline that no idle machine meets is refused, with the least one."""
    with pytest.raises(CheckFailedError, match="smallest deadline that it can meet"):
        typed("--model", "rm2", "--fleet", "r5n.large=4", "--slo-ms", "20", *LAWS)
