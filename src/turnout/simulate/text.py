"""A simulation as a person reads it in a terminal: the verdict, a line per policy, then by size and by pool."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnout.simulate.artefact import QUANTILES, Simulated
from turnout.simulate.words import Line, dollars, lines, milliseconds, named, share

HEAD = (
    "policy", "in time", "by seed", "p50", "p99", "$/M in time", "vs best", "rejected", "late", "p99 covers",
)  # fmt: skip
"""Of `rows`, before the utilisation of each pool; dollars are per million requests in time."""

SIZES_HEAD = ("items", "requests", "in time", "rejected")

LATENCY_HEAD = ("answered by", "requests", "p50", "p90", "p99", "p99.9", "longest")


def show(simulated: Simulated, console: Console) -> None:
    """Print the answer to `console`."""
    for line in simulated.verdict:
        console.print(Text(line, style="bold"))
    console.print()
    for line in origins(simulated):
        console.print(Text(line))
    policies = Table(title="Policies (modelled)", title_justify="left")
    for name in head(simulated):
        policies.add_column(name, justify="left" if name == "policy" else "right")
    for cells in rows(simulated):
        policies.add_row(*cells)
    console.print(policies)
    best = lines(simulated)[0]
    console.print(_table(f"{best.name}, seed {best.runs[0].seed}, by size of request (modelled)", SIZES_HEAD,
                         size_rows(best)))  # fmt: skip
    console.print(_table(f"{best.name}, seed {best.runs[0].seed}, latency (modelled)", LATENCY_HEAD,
                         latency_rows(best)))  # fmt: skip
    for note in simulated.notes:
        console.print(Text(f"Note: {note}."))


def origins(simulated: Simulated) -> list[str]:
    """Where the figures come from."""
    traffic = simulated.traffic
    again = ", drawn anew for each seed" if traffic.redrawn and len(simulated.seeds) > 1 else ""
    fleet = " + ".join(f"{p.replicas} {p.name} (${p.usd_per_h:.4g}/h each)" for p in simulated.pools)
    asked = "; ".join(
        f"{o.model}: {share(o.attainment)} within {milliseconds(o.deadline_s)}"
        f"{f', in up to {o.max_parts} parts' if o.max_parts > 1 else ''}"
        for o in simulated.objectives
    )
    arrivals = (
        f"Traffic: {traffic.requests:,} requests in {traffic.duration_s:,.6g} s, {traffic.rate_per_s:,.4g} a second, "
        f"{traffic.mean_items:,.4g} items on average and {traffic.largest_items:,} at most: {traffic.source}{again}."
    )
    found = [arrivals, f"Fleet: {fleet}. Objective: {asked}."]
    sources: dict[str, list[str]] = {}
    for times in simulated.service_times:
        most = "" if times.largest is None else f" up to {times.largest} items"
        sources.setdefault(f"{times.kind}: {times.source}", []).append(f"{times.model} on {times.pool}{most}")
    found += [f"Service times, {source}: {', '.join(pairs)}." for source, pairs in sources.items()]
    if simulated.tails:
        found.append(f"Tails added to them: {', '.join(simulated.tails)}.")
    if simulated.faults:
        found.append(f"Faults: {', '.join(mark.text for mark in simulated.faults)}.")
    return found


def head(simulated: Simulated) -> tuple[str, ...]:
    """The names of the columns of `rows`."""
    return (*HEAD, *(f"{pool.name} busy" for pool in simulated.pools))


def rows(simulated: Simulated) -> list[tuple[str, ...]]:
    """A line per policy, as cells."""
    found = lines(simulated)
    costs = [line.usd_per_million_met for line in found if line.usd_per_million_met and not line.stopped]
    cheapest = min(costs, default=None)
    return [
        (
            line.name,
            share(line.attainment) + (" (stopped)" if line.stopped else ""),
            f"{100 * line.worst:.2f}-{100 * line.best:.2f}" if len(line.runs) > 1 else "",
            milliseconds(line.p50_s),
            milliseconds(line.p99_s),
            dollars(line.usd_per_million_met),
            _ratio(line, cheapest),
            share(line.rejects),
            share(line.late),
            share(line.coverage_p99),
            *(f"{100 * line.utilisation.get(pool.name, 0.0):.0f} %" for pool in simulated.pools),
        )
        for line in found
    ]


def _ratio(line: Line, cheapest: float | None) -> str:
    """Dollars per million in time over the least of all policies."""
    if line.stopped or not line.usd_per_million_met or not cheapest:
        return "-"
    return f"×{line.usd_per_million_met / cheapest:.3f}"


def size_rows(line: Line) -> list[tuple[str, ...]]:
    """The first seed of a policy by size of request, as cells."""
    return [
        (
            f"{d.low}-{d.high}" if d.high > d.low else str(d.low),
            f"{d.requests:,}",
            share(d.met / d.requests),
            share(d.rejects / d.requests),
        )
        for d in line.runs[0].deciles
    ]


def latency_rows(line: Line) -> list[tuple[str, ...]]:
    """The first seed of a policy by pool, as cells."""
    shown = [QUANTILES.index(level) for level in (0.5, 0.9, 0.99, 0.999, 1.0)]
    return [
        (row.pool or "all", f"{row.requests:,}", *(milliseconds(row.seconds[i]) for i in shown))
        for row in line.runs[0].latencies
    ]


def run_rows(simulated: Simulated) -> list[tuple[str, ...]]:
    """Every run, as cells."""
    return [
        (
            named(run.policy, run.params),
            str(run.seed),
            share(run.summary.attainment),
            milliseconds(run.summary.latency_p99_s),
            dollars(run.summary.usd_per_million_met),
            ", ".join(f"{count} {reason}" for reason, count in run.summary.rejects.items()) or "-",
        )
        for run in simulated.runs
    ]


def _table(title: str, names: tuple[str, ...], cells: list[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left")
    for row in cells:
        table.add_row(*row)
    return table
