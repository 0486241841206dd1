"""A regret as a person reads it in a terminal: the verdict, the lines from theirs to the bound, the calibration."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnout.regret.artefact import HOPELESS, Regret
from turnout.regret.words import crossover, dollars, fleet, milliseconds, named, params, share, signed


def show(regret: Regret, console: Console) -> None:
    """Print the answer to `console`."""
    for number, line in enumerate(regret.verdict):
        warns = number == 0 and not regret.calibration.trusted
        console.print(Text(line, style="bold yellow" if warns else "bold"))
    console.print()
    for line in origins(regret):
        console.print(Text(line))
    console.print(_lines(regret))
    console.print(_split(regret))
    console.print(_calibration(regret))
    console.print(Text(f"Modelled with {regret.calibration.how}."))
    console.print(_tried(regret))
    for found in regret.crossovers:
        console.print(Text(crossover(found)))
    for note in regret.notes:
        console.print(Text(f"Note: {note}."))


def origins(regret: Regret) -> list[str]:
    """Where the figures come from."""
    source = regret.source
    read = ", ".join(f"{role} = {column}" for role, column in source.columns.items())
    first = (
        f"{source.rows} requests in {source.duration_s:.6g} s from {source.name} ({source.format}; times are those of "
        f"a request's {source.time_is}{'; ' + read if read else ''}): {share(source.attainment)} in time, "
        f"{dollars(source.usd)} (measured, the whole log)."
    )
    lines = [first, f"Service times: {regret.service_times}."]
    for pool in regret.pools:
        if pool.fit_error is not None:
            fit = f"{pool.fit_rows} requests of {pool.name}, up to {pool.largest} items"
            lines.append(f"Fitted to {fit}: mean error {pool.fit_error:.1%} on the half not fitted to.")
    deadlines = ", ".join(f"{milliseconds(seconds)} ({name})" for name, seconds in regret.deadlines_s.items())
    lines.append(
        "Chosen on the first half of the requests simulated, judged on the second, from second "
        f"{source.split_s:.6g} on: {share(regret.attainment)} within {deadlines}."
    )
    return lines


def _lines(regret: Regret) -> Table:
    table = Table()
    for name in ("", "origin", "fleet", "policy", "in time", "p50", "p99", "$/h", "$ per million in time"):
        table.add_column(name, justify="left" if name in {"", "origin", "fleet", "policy"} else "right")
    for cells in rows(regret):
        table.add_row(*cells)
    return table


def rows(regret: Regret) -> list[tuple[str, ...]]:
    """The lines from theirs to the bound, as cells."""
    lines = [regret.theirs, regret.same, regret.best_policy, regret.best_fleet, regret.bound]
    return [
        (
            line.label,
            line.origin,
            fleet(line.fleet),
            named(line),
            share(line.attainment) + ("" if line.meets else " (misses)"),
            milliseconds(line.latency_p50_s),
            milliseconds(line.latency_p99_s),
            dollars(line.usd_per_h),
            dollars(line.usd_per_million_met),
        )
        for line in lines
        if line is not None
    ]


def split_rows(regret: Regret) -> list[tuple[str, str, str]]:
    """What lies between the lines, as cells."""
    split = regret.split
    return [
        ("model error (no regret)", signed(split.model_error), ""),
        ("policy regret", signed(split.policy_regret), f"{100 * split.policy_attainment:+.2f} points in time"),
        ("fleet regret", signed(split.fleet_regret), f"{signed(split.fleet_usd_per_h)} an hour"),
        ("gap to the bound", signed(split.gap), f"{signed(split.gap_usd_per_h)} an hour"),
    ]


def _split(regret: Regret) -> Table:
    table = Table(title="Between yours and the bound", title_justify="left")
    table.add_column("")
    table.add_column("$ per million in time", justify="right")
    table.add_column("", justify="right")
    for cells in split_rows(regret):
        table.add_row(*cells)
    return table


def calibration_rows(regret: Regret) -> list[tuple[str, str, str]]:
    """The model against the log, as cells."""
    seen = regret.calibration
    return [
        ("in time", share(seen.observed_attainment), share(seen.modelled_attainment)),
        ("p50", milliseconds(seen.observed_p50_s), milliseconds(seen.modelled_p50_s)),
        ("p99", milliseconds(seen.observed_p99_s), milliseconds(seen.modelled_p99_s)),
    ]


def _calibration(regret: Regret) -> Table:
    trust = "close" if regret.calibration.trusted else "NOT close: do not trust what is modelled"
    table = Table(title=f"Calibration: {trust}", title_justify="left")
    for name in ("", "measured", "modelled"):
        table.add_column(name, justify="right" if name else "left")
    for cells in calibration_rows(regret):
        table.add_row(*cells)
    return table


def tried_rows(regret: Regret) -> list[tuple[str, ...]]:
    """The policies on their fleet, as cells."""
    return [(t.policy, params(t.params), _kept(t.chosen_on), _kept(t.judged_on)) for t in regret.tried]


def _kept(value: float | None) -> str:
    return f"below {1.0 - HOPELESS:.0%}" if value is None else share(value)


def _tried(regret: Regret) -> Table:
    table = Table(title="Policies on your fleet (modelled)", title_justify="left")
    for name in ("policy", "parameters", "first half", "second half"):
        table.add_column(name, justify="right" if "half" in name else "left")
    for cells in tried_rows(regret):
        table.add_row(*cells)
    return table
