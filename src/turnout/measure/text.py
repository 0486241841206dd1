"""A duel as a person reads it in a terminal: the verdict first, then the figures behind it. Rich renderables only."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnout.measure.artefact import Duel, Row
from turnout.measure.words import dollars, duration


def show(duel: Duel, console: Console) -> None:
    """Print the duel's answer to `console`."""
    verdict = duel.verdict
    console.print(Text(verdict.headline, style="bold"))
    for crossover in verdict.crossovers:
        if crossover.text not in verdict.headline:
            console.print(Text(crossover.text))
    console.print()
    console.print("Median seconds per batch, half its 95 % interval, dollars per million items:")
    console.print(_latency_table(duel))
    console.print(_contender_table(duel))
    console.print(Text("Bottleneck: ", style="bold") + Text(verdict.bottleneck))
    for price in duel.prices:
        stale = ", stale" if price.stale else ""
        console.print(
            Text(f"Price of {price.device}: ${price.usd_per_h:.4g}/h, {price.source}, {price.date}{stale}"), style="dim"
        )
    inputs = "; ".join(f"{name} {words}" for name, words in duel.inputs.items())
    console.print(Text(f"Inputs: {inputs}; seed {duel.seed}"), style="dim")
    console.print(Text(f"Measured on {duel.hardware}, {duel.date}"), style="dim")
    if verdict.warnings:
        console.print(Text("Mind:", style="bold"))
        for warning in verdict.warnings:
            console.print(Text(f"- {warning}", style="yellow"))


def _latency_table(duel: Duel) -> Table:
    """Median latency with its interval, contender by batch size, and the price of a million items below it."""
    sizes = sorted({row.items for row in duel.verdict.rows})
    why = {stop.items: stop.why for stop in duel.stops}
    table = Table()
    table.add_column("")
    for items in sizes:
        table.add_column(f"batch {items}\n{why.get(items, '')}", justify="right")
    cells = {(row.label, row.items): row for row in duel.verdict.rows}
    for entry in duel.entries:
        rows = [cells.get((entry.label, items)) for items in sizes]
        best = [_is_best(row, duel.verdict.rows) for row in rows]
        struck = "" if entry.profile.routable else "red"
        table.add_row(
            Text(entry.label + ("" if entry.profile.routable else "\nnever routed to"), style=struck),
            *(Text(_cell(row), style="bold green" if b else struck) for row, b in zip(rows, best, strict=True)),
        )
    return table


def _cell(row: Row | None) -> str:
    """One cell: the median, its interval, its cost."""
    if row is None:
        return "-"
    spread = max(row.seconds.high - row.seconds.mid, row.seconds.mid - row.seconds.low) / row.seconds.mid
    cost = f"\n{dollars(row.usd_per_million.mid)}" if row.usd_per_million else ""
    return f"{duration(row.seconds.mid)}\n±{spread:.1%}{cost}"


def _is_best(row: Row | None, rows: tuple[Row, ...]) -> bool:
    """Whether a row has the least median of its batch size among those that may be routed to."""
    if row is None or not row.routable:
        return False
    return row.seconds.mid <= min(r.seconds.mid for r in rows if r.items == row.items and r.routable)


def _contender_table(duel: Duel) -> Table:
    """Cold start, parity, memory and placement of each contender."""
    table = Table()
    for name, side in (("", "left"), ("load", "right"), ("first run", "right"), ("peak memory", "right")):
        table.add_column(name, justify="right" if side == "right" else "left")
    table.add_column("agrees with the reference")
    table.add_column("graph nodes")
    for entry in duel.entries:
        profile, cold, parity = entry.profile, entry.profile.cold, entry.profile.parity
        peak = max((s.peak_bytes or 0 for s in profile.samples), default=0)
        agrees = "is the reference"
        if parity is not None:
            tolerance = f"{parity.atol:.2g} + {parity.rtol:g}|y|"
            agrees = f"{'yes' if parity.ok else 'NO'}: off by {parity.worst:.2g} of the tolerance {tolerance}"
        placement = ", ".join(f"{n} {p.removesuffix('ExecutionProvider')}" for p, n in profile.placement.items())
        table.add_row(
            entry.label,
            duration(cold.load_s) if cold else "",
            duration(cold.first_run_s) if cold else "",
            f"{peak / 2**20:.0f} MiB" if peak else "unknown",
            agrees,
            placement or "not told",
        )
    return table
