"""A regret as one self-contained HTML page: the lines from theirs to the bound, attainment over time, crossovers."""

from __future__ import annotations

from turnout import webpage
from turnout.regret.artefact import Regret
from turnout.regret.text import calibration_rows, origins, rows, split_rows, tried_rows
from turnout.regret.words import crossover
from turnout.webpage import PALETTE, Figure

SHADES = {"measured": PALETTE[5], "modelled": PALETTE[0], "bound": PALETTE[2]}
"""A colour per origin."""

HEAD = ("", "origin", "fleet", "policy", "in time", "p50", "p99", "$/h", "$ per million in time")


def render(regret: Regret) -> str:
    """The whole page.

    Raises:
        ExtraMissingError: plotly is not installed.
    """
    figures = {
        "money": money(regret),
        "attainment": attainment(regret),
        "curves": curves(regret, "seconds"),
        "costs": curves(regret, "usd"),
    }
    warning = [] if regret.calibration.trusted else [regret.verdict[0]]
    lines = regret.verdict[len(warning) :]
    trust = "close" if regret.calibration.trusted else "NOT close: do not trust what is modelled"
    body = (
        webpage.listing(warning, "warning"),
        webpage.listing(lines[1:]),
        webpage.section("From yours to the bound", "measured, modelled, bound", webpage.place("money", figures["money"])
            + webpage.table(HEAD, rows(regret))
            + webpage.table(("between yours and the bound", "$ per million in time", ""), split_rows(regret))),
        webpage.section("The model against your log", f"measured and modelled: {trust}",
            webpage.paragraph(f"Simulated {regret.calibration.how}.")
            + webpage.table(("", "measured", "modelled"), calibration_rows(regret))),
        webpage.section("In time, over time", "measured and modelled",
            webpage.place("attainment", figures["attainment"])),
        webpage.section("Seconds by size of request", regret.service_times, webpage.place("curves", figures["curves"])
            + webpage.listing(crossover(found) for found in regret.crossovers)),
        webpage.section("Dollars by size of request", f"{regret.service_times}; list prices",
            webpage.place("costs", figures["costs"])),
        webpage.section("Policies on your fleet", "modelled",
            webpage.table(("policy", "parameters", "first half", "second half"), tried_rows(regret))),
        webpage.section("Provenance", "", webpage.listing(
            [*origins(regret), f"Bound: {regret.bound_is}.", *regret.notes,
             f"{regret.fleets_tried} fleets tried; {regret.date}, turnout {regret.version}"]), "provenance"),
    )  # fmt: skip
    return webpage.render(f"Regret of {regret.source.name}", lines[0], "measured", "".join(body), figures)


def money(regret: Regret) -> Figure:
    """Dollars an hour, the bound first."""
    lines = [regret.bound, regret.best_fleet, regret.best_policy, regret.theirs]
    known = [line for line in lines if line is not None]
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "y": [f"{line.label} [{line.origin}]" for line in known],
                "x": [line.usd_per_h for line in known],
                "text": [
                    f"${line.usd_per_h:.4g}/h" + ("" if line.attainment is None else f", {line.attainment:.2%} in time")
                    for line in known
                ],
                "marker": {"color": [SHADES[line.origin] for line in known]},
            }
        ],
        "layout": {
            "height": 260,
            "xaxis": {"title": {"text": "dollars an hour"}, "rangemode": "tozero"},
            "yaxis": {"automargin": True},
        },
    }


def attainment(regret: Regret) -> Figure:
    """The share in time over the judged part."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{line.label} [{line.origin}]",
            "x": list(line.at_s),
            "y": list(line.attainment),
            "line": {"color": (PALETTE[5], PALETTE[0], PALETTE[1])[i], "width": 2},
        }
        for i, line in enumerate(regret.series)
    ]
    ends = [regret.series[0].at_s[0], regret.series[0].at_s[-1]]
    asked = {"type": "scatter", "mode": "lines", "name": "asked", "x": ends, "y": [regret.attainment] * 2,
             "line": {"color": PALETTE[4], "dash": "dot", "width": 1.5}}  # fmt: skip
    return {
        "data": [*traces, asked],
        "layout": {
            "height": 320,
            "xaxis": {"title": {"text": "seconds of the log"}},
            "yaxis": {"tickformat": ".1%", "title": {"text": "share in time"}},
        },
    }


def curves(regret: Regret, what: str) -> Figure:
    """Mean seconds, or dollars per million requests, of a request alone by its size, a line per pool and model."""
    usd_per_h = {pool.name: pool.usd_per_h for pool in regret.pools}
    several = len(regret.deadlines_s) > 1
    traces = []
    for i, curve in enumerate(regret.curves):
        scale = 1e3 if what == "seconds" else 1e6 * usd_per_h[curve.pool] / 3600.0
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{curve.pool}, {curve.model}" if several else curve.pool,
                "x": list(curve.items),
                "y": [seconds * scale for seconds in curve.seconds],
                "line": {"color": PALETTE[i % len(PALETTE)]},
            }
        )
    title = "milliseconds (log)" if what == "seconds" else "dollars per million requests (log)"
    return {
        "data": traces,
        "layout": {
            "height": 320,
            "xaxis": {"type": "log", "title": {"text": "items in the request (log)"}},
            "yaxis": {"type": "log", "title": {"text": title}},
        },
    }
