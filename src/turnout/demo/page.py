"""The demo as one HTML page, with the sentence to act on at the top."""

from __future__ import annotations

from pathlib import Path

from turnout import webpage
from turnout.demo import Demo
from turnout.demo.advice import Advice, fleet
from turnout.demo.elsewhere import Contest
from turnout.demo.here import Here
from turnout.demo.text import ELSEWHERE, HERE, MODELLED, explain
from turnout.measure import html as duel_page

KINDS = {"cpu-only": "CPU only", "gpu-only": "GPU only", "hybrid": "CPU and GPU"}


def render(demo: Demo) -> str:
    """The whole page.

    Raises:
        ExtraMissingError: plotly is not installed.
    """
    duel = demo.here.duel
    colours = {e.label: webpage.PALETTE[i % len(webpage.PALETTE)] for i, e in enumerate(duel.entries)}
    figures = {
        "latency": duel_page.curves(duel, colours, "seconds"),
        "contest": contest_figure(demo.contest),
        "prices": price_figure(demo.advice),
    }
    body = "".join(
        (
            webpage.section("This machine: the duel", _duel(demo.here) + webpage.place("latency", figures["latency"]), HERE),
            webpage.section("This machine: live traffic through the gateway", _traffic(demo.here), f"{HERE}; {MODELLED} where said"),
            webpage.section(
                "Published GPU measurements: policies side by side",
                _contest(demo.contest) + webpage.place("contest", figures["contest"]),
                f"service times {ELSEWHERE} (Kairos, HPDC 2023); queueing {MODELLED}",
            ),
            webpage.section(
                "What to rent, over traffic",
                webpage.place("prices", figures["prices"]) + _advice(demo.advice),
                f"{MODELLED} on figures {ELSEWHERE}",
            ),
            webpage.section("Provenance", webpage.listing(_provenance(demo)), style="provenance"),
        )
    )
    return webpage.render("Turnout demo", demo.advice.sentence, body, figures)


def _duel(here: Here) -> str:
    verdict = here.duel.verdict
    return webpage.paragraph(verdict.headline) + webpage.paragraph(f"Bottleneck: {verdict.bottleneck}")


def _traffic(here: Here) -> str:
    traffic, predicted = here.traffic, here.predicted
    rows = [
        (f"predicted before the run ({MODELLED})", _ms(predicted.latency_p50_s), _ms(predicted.latency_p99_s), f"{predicted.attainment:.4f}"),
        (f"what the client saw ({HERE})", _ms(traffic.latency_p50_s), _ms(traffic.latency_p99_s), f"{traffic.attainment:.4f}"),
    ]
    return (
        webpage.paragraph(
            f"{traffic.requests} requests, {traffic.answered} answers, {traffic.lost} lost; {here.killed}; "
            f"{here.recorded.retried_batches} batch(es) run again elsewhere."
        )
        + webpage.table((f"deadline {here.deadline_s * 1e3:.0f} ms", "p50 ms", "p99 ms", "attainment"), rows)
        + webpage.paragraph("One receipt: " + explain(here.receipt))
        + webpage.paragraph(
            f"Replayed {here.replay.events} events through a fresh router: {here.replay.actions} actions, identical "
            f"(digest {here.replay.replayed_digest})."
        )
    )


def _contest(contest: Contest) -> str:
    setting = contest.setting
    return webpage.paragraph(
        f"{contest.gpu} x T4 (g4dn.xlarge) and {contest.cpu} x r5n.large serve {setting.model} within "
        f"{setting.deadline_s * 1e3:.0f} ms at {setting.rate_qps:.0f} queries/s."
    ) + webpage.table(
        ("policy", "attainment", "p99 ms", "rejected", "$ per million met"),
        [
            (
                label,
                f"{s.attainment:.4f}",
                _ms(s.latency_p99_s),
                str(sum(s.rejects.values())),
                "-" if s.usd_per_million_met is None else f"{s.usd_per_million_met:.3f}",
            )
            for label, s in contest.lines
        ],
        ["best"],
    )


def contest_figure(contest: Contest) -> webpage.Figure:
    """Bars of attainment by policy."""
    lines = list(reversed(contest.lines))
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "y": [label for label, _ in lines],
                "x": [summary.attainment for _, summary in lines],
                "marker": {"color": webpage.PALETTE[0]},
            }
        ],
        "layout": {
            "height": 80 + 34 * len(lines),
            "xaxis": {"range": [0, 1], "tickformat": ".0%", "title": {"text": "requests answered by their deadline"}},
            "yaxis": {"automargin": True},
        },
    }


def price_figure(advice: Advice) -> webpage.Figure:
    """The price of the cheapest fleet of each kind over traffic."""
    traces = []
    for i, (kind, name) in enumerate(KINDS.items()):
        points = [(row.rate_qps, q) for row in advice.rows for q in row.quotes if q.kind == kind]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [rate for rate, _ in points],
                "y": [q.usd_per_h for _, q in points],
                "text": [fleet(q) for _, q in points],
                "line": {"color": webpage.PALETTE[i], "shape": "hv"},
            }
        )
    return {
        "data": traces,
        "layout": {
            "height": 380,
            "xaxis": {"type": "log", "title": {"text": "queries per second (log)"}, "tickvals": [r.rate_qps for r in advice.rows]},
            "yaxis": {"title": {"text": "dollars per hour of the cheapest fleet"}, "rangemode": "tozero"},
        },
    }


def _advice(advice: Advice) -> str:
    rows = [
        (f"{row.rate_qps:.0f}", *(f"{fleet(q)}, ${q.usd_per_h:.3f}/h" for q in row.quotes)) for row in advice.rows
    ]
    return webpage.table(("queries/s", "cheapest", "second", "third"), rows)


def _provenance(demo: Demo) -> list[str]:
    duel = demo.here.duel
    published = demo.contest.setting.model
    return [
        f"Measured here {demo.date} on {duel.hardware}; model {Path(duel.model).name}, {duel.model_digest}",
        "Versions: " + ", ".join(f"{n} {v}" for n, v in duel.profiles[0].provenance.versions.items()),
        f"Service times of {published}: Li et al., Kairos, HPDC 2023 (MIT), AWS g4dn.xlarge and r5n.large, input loading included",
        "Prices: $0.526/h and $0.149/h, AWS on demand, as in that study (2023-06-20): renew them before you buy",
        "Arrivals: gamma gaps with a CV of 1.1, as in the Azure LLM conversation trace of 2023; sizes: DeepRecSys' mix as Kairos replays it",
    ]


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"
