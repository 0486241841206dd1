"""A duel as one self-contained HTML page: the verdict, its figures, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from turnout import webpage
from turnout.measure.artefact import Duel, Entry, Interval, Row
from turnout.measure.words import dollars, duration
from turnout.webpage import PALETTE, Figure

MEASURED = "measured here"

PHASES = (("copy_in_s", "copy in"), ("compute_s", "compute"), ("copy_out_s", "copy out"))

TICKS = [mantissa * 10.0**exponent for exponent in range(-9, 9) for mantissa in (1, 2, 5)]
LOG_AXIS = {
    "type": "log",
    "tickvals": TICKS,
    "ticktext": [f"{tick:.0e}" if tick < 1e-5 else f"{tick:g}" for tick in TICKS],
}
BAR_AXIS = {"autorange": "reversed", "automargin": True}


def render(duel: Duel) -> str:
    """The whole page.

    Raises:
        ExtraMissingError: plotly is not installed.
    """
    verdict = duel.verdict
    shades = colours(duel)
    figures = {
        "latency": curves(duel, shades, "seconds"),
        "cost": curves(duel, shades, "usd_per_million"),
        "phases": phases(duel),
        "operators": operators(duel),
    }
    figures = {name: figure for name, figure in figures.items() if figure["data"]}
    drawn = (webpage.section(*TITLES[name], webpage.place(name, figure)) for name, figure in figures.items())
    body = (
        webpage.listing(c.text for c in verdict.crossovers if c.text not in verdict.headline),
        webpage.paragraph(f"Bottleneck: {verdict.bottleneck}"),
        webpage.listing(verdict.warnings, "warning"),
        *drawn,
        webpage.section("All figures", PRICED, webpage.paragraph(GREEN) + _table(duel)),
        webpage.section("Provenance", "", webpage.listing(_provenance(duel)), "provenance"),
    )
    return webpage.render(f"Duel of {Path(duel.model).name}", verdict.headline, PRICED, "".join(body), figures)


def colours(duel: Duel) -> dict[str, str]:
    """One colour per contender throughout a page."""
    return {entry.label: PALETTE[i % len(PALETTE)] for i, entry in enumerate(duel.entries)}


PRICED = f"times {MEASURED}; dollars modelled from a list price"
GREEN = "Green: the fastest at its batch size. Struck through: other answers than the reference, so never routed to."
TITLES = {
    "latency": ("Latency by batch size", MEASURED),
    "cost": ("Cost by batch size", PRICED),
    "phases": ("Cold start and warm run", MEASURED),
    "operators": ("Where the CPU's time goes", MEASURED),
}
"""Title and origin of each figure."""


def curves(duel: Duel, shades: Mapping[str, str], field: str) -> Figure:
    """Medians with intervals over batch size, a line per contender; dotted where it is never routed to."""
    scale, title = (
        (1e3, "milliseconds per batch (log)") if field == "seconds" else (1.0, "dollars per million items (log)")
    )
    traces = []
    for entry in duel.entries:
        rows = [r for r in duel.verdict.rows if r.label == entry.label and getattr(r, field) is not None]
        values: list[Interval] = [getattr(r, field) for r in rows]
        if not rows:
            continue
        error_y = {
            "type": "data",
            "symmetric": False,
            "array": [(v.high - v.mid) * scale for v in values],
            "arrayminus": [(v.mid - v.low) * scale for v in values],
            "thickness": 1.2,
        }
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": entry.label + ("" if entry.profile.routable else " (disagrees)"),
                "x": [r.items for r in rows],
                "y": [v.mid * scale for v in values],
                "error_y": error_y,
                "line": {"color": shades[entry.label], "dash": "solid" if entry.profile.routable else "dot"},
            }
        )
    sizes = sorted({r.items for r in duel.verdict.rows})
    return {
        "data": traces,
        "layout": {
            "height": 380,
            "xaxis": {"type": "log", "title": {"text": "items in the batch (log)"}, "tickvals": sizes},
            "yaxis": {**LOG_AXIS, "title": {"text": title}},
        },
    }


def phases(duel: Duel) -> Figure:
    """Dots (bars have no zero on a log axis) of cold start and warm run, by phase where the device tells them apart."""
    parts: dict[str, dict[str, float]] = {}
    for entry in duel.entries:
        cold = entry.profile.cold
        if cold is not None:
            parts.setdefault("load (cold)", {})[entry.label] = cold.load_s
            parts.setdefault("first run (cold)", {})[entry.label] = cold.first_run_s
        for name, seconds in _warm_phases(entry).items():
            parts.setdefault(name, {})[entry.label] = seconds
    dots = [
        {
            "type": "scatter",
            "name": name,
            "y": list(values),
            "x": [seconds * 1e3 for seconds in values.values()],
            "mode": "markers",
            "marker": {"color": PALETTE[i % len(PALETTE)], "size": 11},
        }
        for i, (name, values) in enumerate(parts.items())
    ]
    return {
        "data": dots,
        "layout": {
            "height": 130 + 30 * len(duel.entries),
            "xaxis": {**LOG_AXIS, "title": {"text": "milliseconds (log)"}},
            "yaxis": BAR_AXIS,
        },
    }


def operators(duel: Duel) -> Figure:
    """Bars of the operators' shares, branching ones in their own colour."""
    if duel.branching is None:
        return {"data": [], "layout": {}}
    kinds = (
        ("branching, index or Python work", duel.branching.operators, PALETTE[1]),
        ("tensor work", duel.branching.tensor, PALETTE[0]),
    )
    bars = [_bar(name, list(shares), list(shares.values()), colour) for name, shares, colour in kinds if shares]
    return {
        "data": bars,
        "layout": {
            "height": 130 + 26 * sum(len(bar["y"]) for bar in bars),
            "showlegend": True,
            "xaxis": {"tickformat": ".0%", "title": {"text": "share of the time"}},
            "yaxis": BAR_AXIS,
        },
    }


def _bar(name: str, labels: list[str], values: list[float], colour: str) -> Figure:
    """One trace of horizontal bars."""
    return {"type": "bar", "orientation": "h", "name": name, "y": labels, "x": values, "marker": {"color": colour}}


def _warm_phases(entry: Entry) -> dict[str, float]:
    """Mean seconds of the phases of a warm run at the smallest batch, or of the whole where they are not told apart."""
    sample = entry.profile.samples[0]
    rounds = len(sample.service_s)
    if not sample.copy_in_s:
        return {f"warm run, batch {sample.items}": sum(sample.service_s) / rounds}
    return {f"{words}, batch {sample.items}": sum(getattr(sample, field)) / rounds for field, words in PHASES}


def _table(duel: Duel) -> str:
    """All figures as a table: the charts' data for those who want to read them."""
    head = ("contender", "batch", "median", "95 % interval", "per million items", "peak memory", "parity")
    entries = {entry.label: entry for entry in duel.entries}
    least = {
        row.items: min((r.seconds.mid for r in duel.verdict.rows if r.items == row.items and r.routable), default=0.0)
        for row in duel.verdict.rows
    }
    rows = sorted(duel.verdict.rows, key=lambda row: row.items)
    styles = ["barred" if not row.routable else "best" if row.seconds.mid <= least[row.items] else "" for row in rows]
    return webpage.table(head, [_row(row, entries[row.label]) for row in rows], styles)


def _row(row: Row, entry: Entry) -> tuple[str, ...]:
    """One row of the table."""
    sample = next(s for s in entry.profile.samples if s.items == row.items)
    parity = entry.profile.parity
    agrees = (
        "reference" if parity is None else f"{'agrees' if parity.ok else 'DISAGREES'} ({parity.worst:.2g} of tolerance)"
    )
    return (
        row.label,
        str(row.items),
        duration(row.seconds.mid),
        f"{duration(row.seconds.low)} – {duration(row.seconds.high)}",
        dollars(row.usd_per_million.mid) if row.usd_per_million else "not priced",
        f"{sample.peak_bytes / 2**20:.0f} MiB" if sample.peak_bytes else "unknown",
        agrees,
    )


def _provenance(duel: Duel) -> list[str]:
    """Where the figures come from."""
    first = duel.entries[0].profile.provenance
    lines = [
        f"Model: {duel.model}, {duel.model_digest[:23]}…",
        f"Measured {duel.date} on {duel.hardware}",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in first.versions.items()),
        f"Turnout's commit: {first.commit or 'not from a repository'}; seed {duel.seed}",
        "Inputs: " + "; ".join(f"{name} {words}" for name, words in duel.inputs.items()),
        "Rounds: " + ", ".join(f"batch {s.items}: {s.rounds} ({s.why})" for s in duel.stops),
    ]
    lines += [
        f"Price of {p.device}: ${p.usd_per_h:.4g}/h, {p.source}, {p.date}{' (stale)' if p.stale else ''}"
        for p in duel.prices
    ]
    if duel.branching is not None:
        lines.append(f"Operators: {duel.branching.source}")
    return lines
