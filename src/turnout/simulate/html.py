"""A simulation as one self-contained HTML page: in time and waiting over time, latencies, sizes, utilisation."""

from __future__ import annotations

from typing import Any

from turnout import webpage
from turnout.simulate.artefact import QUANTILES, Simulated
from turnout.simulate.text import LATENCY_HEAD, SIZES_HEAD, head, latency_rows, origins, rows, run_rows, size_rows
from turnout.simulate.words import Line, lines
from turnout.webpage import PALETTE, Figure

MOST_LINES = len(PALETTE)
"""Policies that a figure shows, the best first."""


def render(simulated: Simulated) -> str:
    """The whole page.

    Raises:
        ExtraMissingError: plotly is not installed.
    """
    found = lines(simulated)
    shown, best = found[:MOST_LINES], found[0]
    figures = {
        "attainment": attainment(simulated, shown),
        "waiting": waiting(simulated, shown),
        "arrivals": arrivals(simulated, best),
        "latency": latency(simulated, shown),
        "sizes": sizes(shown),
        "utilisation": utilisation(simulated, best),
    }
    several = f"; the best {MOST_LINES} policies" if len(found) > MOST_LINES else ""
    seed = f"modelled, seed {best.runs[0].seed}{several}"
    body = (
        webpage.listing(simulated.verdict[1:]),
        webpage.section("Policies", "modelled", webpage.table(head(simulated), rows(simulated), ("best",))),
        webpage.section("In time, over time", seed, webpage.place("attainment", figures["attainment"])),
        webpage.section("Waiting for a replica", seed, webpage.place("waiting", figures["waiting"])),
        webpage.section("Arrivals", "traffic", webpage.place("arrivals", figures["arrivals"])),
        webpage.section("Latency of what was answered", seed, webpage.place("latency", figures["latency"])
            + webpage.paragraph(f"{best.name}:") + webpage.table(LATENCY_HEAD, latency_rows(best))),
        webpage.section("By size of request", seed, webpage.place("sizes", figures["sizes"])
            + webpage.paragraph(f"{best.name}:") + webpage.table(SIZES_HEAD, size_rows(best))),
        webpage.section("Utilisation", f"{seed}, {best.name}", webpage.place("utilisation", figures["utilisation"])),
        webpage.section("Every run", "modelled", webpage.table(
            ("policy", "seed", "in time", "p99", "$ per million in time", "rejects"), run_rows(simulated))),
        webpage.section("Provenance", "", webpage.listing(
            [*origins(simulated), *(f"{note}." for note in simulated.notes),
             f"Everything else on this page is modelled; {simulated.date}, turnout {simulated.version}"]),
            "provenance"),
    )  # fmt: skip
    return webpage.render("Simulation", simulated.verdict[0], "modelled", "".join(body), figures)


def _middles(line: Line) -> list[float]:
    timeline = line.runs[0].timeline
    return [(i + 0.5) * timeline.width_s for i in range(len(timeline.waiting))]


def _traces(shown: list[Line], values: list[tuple[Any, ...]], **more: Any) -> list[dict[str, Any]]:
    """A line over time per policy."""
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": line.name,
            "x": _middles(line),
            "y": list(row),
            "line": {"color": PALETTE[i], "width": 2, **more},
        }
        for i, (line, row) in enumerate(zip(shown, values, strict=True))
    ]


def _faults(simulated: Simulated) -> dict[str, Any]:
    """Faults as shaded spans with their texts, for a layout."""
    ends_s = max(len(run.timeline.waiting) * run.timeline.width_s for run in simulated.runs)
    shapes, notes = [], []
    for number, mark in enumerate(simulated.faults):
        if mark.from_s > ends_s:
            continue
        until_s = ends_s if mark.until_s is None else min(mark.until_s, ends_s)
        shapes.append({"type": "rect", "xref": "x", "yref": "paper", "x0": mark.from_s, "x1": until_s, "y0": 0, "y1": 1,
                       "fillcolor": PALETTE[4], "opacity": 0.12, "line": {"width": 0}})  # fmt: skip
        notes.append({"x": mark.from_s, "xref": "x", "y": 0.02 + 0.09 * (number % 4), "yref": "paper",
                      "text": mark.text, "showarrow": False, "xanchor": "left", "yanchor": "bottom",
                      "font": {"size": 11, "color": PALETTE[4]}})  # fmt: skip
    return {"shapes": shapes, "annotations": notes}


def attainment(simulated: Simulated, shown: list[Line]) -> Figure:
    """The share in time of what arrived in each span."""
    traces = _traces(shown, [line.runs[0].timeline.attainment for line in shown])
    asked = max(o.attainment for o in simulated.objectives)
    ends = [0.0, _middles(shown[0])[-1]]
    traces.append({"type": "scatter", "mode": "lines", "name": "asked", "x": ends, "y": [asked] * 2,
                   "line": {"color": PALETTE[5], "dash": "dot", "width": 1.5}})  # fmt: skip
    axes = {"xaxis": {"title": {"text": "seconds"}}, "yaxis": {"tickformat": ".1%", "title": {"text": "in time"}}}
    return {"data": traces, "layout": {"height": 340, **axes, **_faults(simulated)}}


def waiting(simulated: Simulated, shown: list[Line]) -> Figure:
    """The most requests that waited at once in each span."""
    traces = _traces(shown, [line.runs[0].timeline.waiting for line in shown])
    axes = {"xaxis": {"title": {"text": "seconds"}}, "yaxis": {"rangemode": "tozero", "title": {"text": "requests"}}}
    return {"data": traces, "layout": {"height": 300, **axes, **_faults(simulated)}}


def arrivals(simulated: Simulated, best: Line) -> Figure:
    """Requests per second in each span."""
    bars = {"type": "bar", "x": _middles(best), "y": list(best.runs[0].timeline.arrivals_per_s),
            "marker": {"color": PALETTE[5]}, "showlegend": False}  # fmt: skip
    axes = {"xaxis": {"title": {"text": "seconds"}}, "yaxis": {"title": {"text": "requests a second"}}}
    return {"data": [bars], "layout": {"height": 220, "bargap": 0, **axes}}


def latency(simulated: Simulated, shown: list[Line]) -> Figure:
    """The share of answers within a latency, and the deadlines."""
    traces: list[dict[str, Any]] = []
    for i, line in enumerate(shown):
        every = next((row for row in line.runs[0].latencies if not row.pool), None)
        if every is not None:
            traces.append({"type": "scatter", "mode": "lines+markers", "name": line.name,
                           "x": [1e3 * seconds for seconds in every.seconds], "y": list(QUANTILES),
                           "line": {"color": PALETTE[i]}, "marker": {"size": 5}})  # fmt: skip
    deadlines = [
        {"type": "scatter", "mode": "lines", "name": f"deadline of {o.model}", "x": [1e3 * o.deadline_s] * 2,
         "y": [0, 1], "line": {"color": PALETTE[5], "dash": "dot", "width": 1.5}}
        for o in simulated.objectives
    ]  # fmt: skip
    return {
        "data": [*traces, *deadlines],
        "layout": {
            "height": 340,
            "xaxis": {"type": "log", "title": {"text": "milliseconds from arrival to answer (log)"}},
            "yaxis": {"tickformat": ".0%", "title": {"text": "of the answers within"}},
        },
    }


def sizes(shown: list[Line]) -> Figure:
    """The share in time by size of request."""
    traces = []
    for i, line in enumerate(shown):
        deciles = line.runs[0].deciles
        traces.append({"type": "bar", "name": line.name, "marker": {"color": PALETTE[i]},
                       "x": [f"{d.low}–{d.high}" if d.high > d.low else f"{d.low} " for d in deciles],
                       "y": [d.met / d.requests for d in deciles]})  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 320,
            "barmode": "group",
            "xaxis": {"type": "category", "title": {"text": "items of the request, a tenth of the requests each"}},
            "yaxis": {"tickformat": ".0%", "title": {"text": "in time"}},
        },
    }


def utilisation(simulated: Simulated, best: Line) -> Figure:
    """Busy share of each pool's replicas over time."""
    traces = [
        {"type": "scatter", "mode": "lines", "name": f"{pool.replicas} {pool.name}", "x": _middles(best),
         "y": list(best.runs[0].timeline.utilisation[pool.name]), "line": {"color": PALETTE[i % len(PALETTE)]}}
        for i, pool in enumerate(simulated.pools)
    ]  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "height": 300,
            "xaxis": {"title": {"text": "seconds"}},
            "yaxis": {"tickformat": ".0%", "range": [0, 1.02], "title": {"text": "of all replicas busy"}},
            **_faults(simulated),
        },
    }
