"""The demo as one HTML page, with the sentence to act on at the top. The words are those of `story`."""

from __future__ import annotations

from pathlib import Path

from turnout import webpage
from turnout.demo import Demo, elsewhere, story
from turnout.demo.advice import KINDS, Advice
from turnout.demo.elsewhere import Contest
from turnout.measure import html as duel_page


def render(demo: Demo) -> str:
    """The whole page.

    Raises:
        ExtraMissingError: plotly is not installed.
    """
    duel = demo.here.duel
    figures = {
        "latency": duel_page.curves(duel, duel_page.colours(duel), "seconds"),
        "contest": contest_figure(demo.contest),
        "prices": price_figure(demo.advice),
    }
    places = {name: webpage.place(name, figure) for name, figure in figures.items()}
    body = (
        webpage.paragraph(story.INTRODUCTION),
        section(story.duel(demo.here), places["latency"]),
        section(story.traffic(demo.here)),
        section(story.contest(demo.contest), places["contest"]),
        section(story.rent(demo.advice), places["prices"]),
        webpage.section("Where the figures come from", "", webpage.listing(provenance(demo)), "provenance"),
    )
    return webpage.render("Turnout demo: CPU or GPU?", demo.advice.sentence, story.MIXED, "".join(body), figures)


def section(block: story.Block, figure: str = "") -> str:
    """A block with its figure; a sentence's origin is said where it is not the block's."""
    lines, remarks = (
        "".join(webpage.paragraph(text, origin if origin != block.origin else "") for text, origin in some)
        for some in (block.lines, block.remarks)
    )
    styles = ["best" if i in block.best else "" for i in range(len(block.rows))]
    table = webpage.table(block.head, block.rows, styles) if block.rows else ""
    return webpage.section(block.title.strip(), block.origin, lines + figure + table + remarks)


def contest_figure(contest: Contest) -> webpage.Figure:
    """Bars of the share answered in time, by policy."""
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
            "xaxis": {"range": [0, 1], "tickformat": ".0%", "title": {"text": "queries answered in time"}},
            "yaxis": {"automargin": True},
        },
    }


def price_figure(advice: Advice) -> webpage.Figure:
    """The price of the cheapest fleet of each kind over traffic, and the bands in which the cheapest kind changes."""
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
                "text": [story.machines(q) for _, q in points],
                "line": {"color": webpage.PALETTE[i], "dash": "dot"},
            }
        )
    bands = [
        {
            "type": "rect",
            "x0": low,
            "x1": high,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "fillcolor": webpage.PALETTE[-1],
            "opacity": 0.3,
            "line": {"width": 0},
        }
        for low, high, _ in advice.flips
    ]
    return {
        "data": traces,
        "layout": {
            "height": 380,
            "shapes": bands,
            "xaxis": {
                "type": "log",
                "title": {"text": "queries per second (log); grey: the cheapest kind of fleet changes"},
                "tickvals": [row.rate_qps for row in advice.rows],
            },
            "yaxis": {"title": {"text": "dollars per hour"}, "rangemode": "tozero"},
        },
    }


def provenance(demo: Demo) -> list[str]:
    """Hardware, versions, sources and laws behind the figures."""
    duel = demo.here.duel
    published = elsewhere.profile(demo.contest.setting.model, elsewhere.GPU)
    versions = ", ".join(f"{name} {version}" for name, version in duel.profiles[0].provenance.versions.items())
    times = f"service times of {published.model} on {elsewhere.CPU} and {elsewhere.GPU}, loading of the input included"
    gaps = f"gamma-distributed gaps between arrivals (coefficient of variation {elsewhere.BURST_CV}, as in the Azure"
    return [
        f"Measured here {demo.date} on {duel.hardware}; model {Path(duel.model).name}, {duel.model_digest[:23]}…",
        f"Versions: {versions}",
        f"Measured elsewhere: {times}; {published.provenance.source}",
        f"Published prices: {elsewhere.GPU_PRICE.source}, {elsewhere.GPU_PRICE.date}",
        "Modelled: queueing, batching and routing by Turnout's own router on a virtual clock",
        f"Modelled: {gaps} conversation trace of 2023); query sizes as in DeepRecSys' mix",
        f"Replay: digest of all actions {demo.here.replay.replayed_digest}; log {demo.here.log_path}",
    ]
