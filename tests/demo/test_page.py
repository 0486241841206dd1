"""What the demo says, in the terminal and on its page, made from a small result by hand."""

import re
from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from tests.duels import DATE, duel, entry
from turnout import plan, webpage
from turnout.core.account import Summary
from turnout.demo import Demo, advice, elsewhere, page, story, text
from turnout.demo.here import Here, Traffic
from turnout.replay import Verification

ORIGINS = ("measured here", "measured elsewhere", "modelled", "published")
SETTING = elsewhere.Setting(model="wnd", deadline_s=0.025, rate_qps=80.0, count=100)


def summary(met, **changed):
    """A run of 100 requests of which `met` were answered in time."""
    run = Summary(
        requests=100,
        replies=met,
        rejects={"deadline": 100 - met},
        met=met,
        attainment=met / 100,
        duration_s=10.0,
        latency_mean_s=0.02,
        latency_p50_s=0.0213,
        latency_p99_s=0.0451,
        batches=40,
        mean_batch_items=2.5,
        retried_batches=1,
        coverage_p99=0.985,
        pools=(),
        bill_usd=0.01,
        usd_per_million_met=0.431,
    )
    return replace(run, **changed)


def receipt(**changed):
    """Why one request of 16 files ran on the second CPU."""
    options = [{"pool": "cpu", "replica": "cpu-1", "mean_s": 0.082}, {"pool": "gpu", "replica": "gpu-0", "mean_s": 0.2}]
    attempt = {
        "pool": "cpu",
        "replica": "cpu-1",
        "batch_items": 16,
        "waited_s": 0.335,
        "binding": "deadline",
        "candidates": options,
        "predicted": {"service_s": 0.0823, "p99_s": 0.257},
        "actual": {"service_s": 0.0729},
    }
    return {
        "client_id": "demo-7",
        "items": 16,
        "arrived_s": 19.5,
        "deadline_s": 20.03,
        "outcome": "met",
        "detail": "",
        "attempts": [attempt],
    } | changed


def quote(cpu, gpu):
    """A fleet at its price."""
    kind = "cpu-only" if not gpu else "hybrid" if cpu else "gpu-only"
    return plan.Quote(kind=kind, cpu=cpu, gpu=gpu, usd_per_h=advice.OFFER.usd_per_h(cpu, gpu), summary=summary(99))


def advised(**changed):
    """CPUs at 80 queries/s, a GPU at 160, both at 320."""
    fleets = {80.0: [(3, 0), (0, 1)], 160.0: [(0, 1), (4, 0)], 320.0: [(1, 1), (6, 0)]}
    return advice.Advice(
        **{
            "setting": SETTING,
            "rows": tuple(
                advice.Row(rate_qps=rate, quotes=tuple(quote(*fleet) for fleet in some))
                for rate, some in fleets.items()
            ),
            "best": quote(3, 0),
            "flips": ((100.0, 110.0, "gpu-only"), (220.0, 240.0, "hybrid")),
            "levers": ("a GPU machine below $0.447/h (now $0.526)", "a deadline of 20 ms (GPU machines only)"),
        }
        | changed
    )


@pytest.fixture(scope="module")
def demo():
    """A demo's whole result."""
    seen = Traffic(
        requests=100,
        answered=100,
        lost=0,
        rejected=2,
        met=97,
        attainment=0.97,
        latency_p50_s=0.138,
        latency_p99_s=0.507,
        items=420,
        types={"python": 300, "<svg>": 120},
        rate_per_s=10.0,
        capacity_items_per_s=100.0,
        duration_s=10.0,
        client_late_s=0.001,
    )
    replayed = Verification(
        segments=1, events=320, actions=210, identical=True, recorded_digest="abc", replayed_digest="abc"
    )
    here = Here(
        duel=duel(entry("cpu fp32 threads=1", lambda n: 4e-3 * n, threads=1, parity=None)),
        pool="cpu fp32 threads=1",
        deadline_s=0.53,
        traffic=seen,
        predicted=summary(99),
        slowdown=1.25,
        recorded=summary(98),
        killed="worker process 42 killed with SIGKILL half-way",
        receipt=receipt(),
        replay=replayed,
        config_path="serve.toml",
        log_path="log/1.jsonl",
    )
    contest = elsewhere.Contest(
        setting=SETTING, cpu=9, gpu=2, lines=(("turnout", summary(99)), ("earliest", summary(99)), ("CPU", summary(6)))
    )
    return Demo(date=DATE, here=here, contest=contest, advice=advised())


def printed(demo, width):
    """What a terminal of this width shows."""
    out = StringIO()
    text.show(demo, Console(file=out, width=width))
    return out.getvalue()


def blocks(demo):
    """All blocks of the story."""
    return (story.duel(demo.here), story.traffic(demo.here), story.contest(demo.contest), story.rent(demo.advice))


def test_every_block_with_figures_names_their_origin_on_the_page(demo):
    """The headline and each section but the provenance have a label, and each label is one of the known origins."""
    html = page.render(demo)
    sections = re.findall(r"<section.*?</section>", html, re.DOTALL)
    assert len(sections) == 5
    for section in (html.split("</h1>")[0], *sections[:-1]):
        labels = re.findall(r'class="origin">([^<]*)<', section)
        assert labels
        assert all(any(origin in label for origin in ORIGINS) for label in labels)
    assert html.count('class="figure"') == 3


def test_every_sentence_with_a_figure_has_an_origin(demo):
    """In all blocks, on every line: what has no origin has no figure either."""
    for block in blocks(demo):
        assert any(origin in block.origin for origin in ORIGINS)
        for line in (*block.lines, *block.remarks):
            assert any(origin in line.origin for origin in ORIGINS) or not re.search(r"\b\d", line.text), line


@pytest.mark.parametrize("width", [80, 100, 200])
def test_nothing_is_cut_in_the_terminal(demo, width):
    """No line is wider than the terminal or 100 columns, no cell ends in an ellipsis, and every word is there."""
    shown = printed(demo, width)
    assert all(len(line) <= min(width, 100) for line in shown.splitlines())
    assert "…" not in shown
    words = {word for block in blocks(demo) for line in block.lines for word in line.text.split() if len(word) < 20}
    assert words <= set(shown.split())


def test_the_sentence_to_act_on_comes_last_and_on_top(demo):
    """Last in the terminal, where the eye is when it stops scrolling; first on the page."""
    sentence = demo.advice.sentence
    assert " ".join(printed(demo, 100).split()).endswith(sentence)
    html = page.render(demo)
    assert html.index(webpage.text(sentence)) < html.index("<section")


def test_page_and_terminal_say_the_same(demo):
    """Every sentence and every cell of the terminal is on the page, made safe."""
    html = page.render(demo)
    for block in blocks(demo):
        assert all(webpage.text(line.text) in html for line in (*block.lines, *block.remarks))
        assert all(f"<td>{webpage.text(cell)}</td>" in html for row in block.rows for cell in row)
    assert "<svg>" not in html.replace(webpage.plotly_js(), "")


def test_the_advice_says_what_to_rent_and_what_would_change_it():
    """Traffic and objective, the fleet and its price, where that flips, and which price and deadline flip it."""
    sentence = advised().sentence
    for part in ("80 queries/s", "99 %", "25 ms", "3 CPU machines (r5n.large) for $0.447/h", "above 100-110 queries/s"):
        assert part in sentence
    assert "a GPU machine below $0.447/h (now $0.526) or a deadline of 20 ms (GPU machines only)" in sentence
    assert not re.search(r"(cpu|gpu)-only|hybrid", sentence)
    assert sentence.count(". ") == 0


def test_advice_that_nothing_flips_says_so():
    """No flip and no lever is an answer too, with the range that was tried."""
    sentence = advised(flips=(), levers=()).sentence
    assert "no traffic up to 320 queries/s flips that" in sentence
    assert "no price or deadline tried flips it" in sentence
    assert "no fleet tried" in advised(flips=((500.0, 560.0, "no fleet tried"),)).sentence


def test_a_receipt_reads_as_a_reason():
    """Where it ran and why, the alternative, the wait, and prediction beside fact; or why it was refused."""
    said = story.explain(receipt())
    for part in ("demo-7 ran on cpu-1: deadline", "gpu would have taken 200 ms", "335 ms", "82.3 ms", "72.9 ms"):
        assert part in said
    assert story.explain(receipt(attempts=[], outcome="deadline", detail="queue too long")).endswith("queue too long")
    assert "took -" in story.explain(receipt(attempts=[receipt()["attempts"][0] | {"actual": {"service_s": None}}]))


def test_only_all_is_shown_as_all():
    """One miss in a million is never rounded up to 100 %."""
    assert story.percent(0.999999) == "99.99 %"
    assert story.percent(1.0) == "100.00 %"


def test_equals_are_pointed_out_alike(demo):
    """Two policies with as many answers in time are both marked: the default gets no favour."""
    assert story.contest(demo.contest).best == (0, 1)
