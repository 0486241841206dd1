"""A fit as a person reads it in a terminal: the recommendation first, then the figures behind it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnout.fit.artefact import Fitted, Outcome, Prediction
from turnout.fit.words import params


def show(fitted: Fitted, console: Console) -> None:
    """Print the answer to `console`."""
    for line in fitted.verdict:
        console.print(Text(line, style="bold"))
    console.print()
    console.print(
        Text(
            f"{fitted.requests} requests in {fitted.log}: those until second {fitted.split_s:.6g} were fitted to, "
            f"the last {fitted.change.requests} judge the fit."
        )
    )
    if fitted.truncated:
        console.print(Text("The log was cut off; it was read up to there.", style="yellow"))
    console.print("Latency models on the batches held out, old and new \\[recorded]:")
    console.print(_models(fitted))
    console.print("The requests held out \\[modelled]:")
    console.print(_outcomes(fitted))
    if fitted.tuning.trials:
        console.print(Text(f"Settings of {fitted.tuning.policy} on the part for fitting [modelled]:"))
        console.print(_trials(fitted))


def _models(fitted: Fitted) -> Table:
    table = Table()
    for name in ("pool", "model", "batches", "error", "bias", "p99 coverage", "live", "form", ""):
        table.add_column(name, justify="left" if name in {"pool", "model", ""} else "right")
    for found in fitted.models:
        row = [found.pool, found.model, f"{found.batches} + {found.held_out}"]
        if found.old is None or found.new is None:
            table.add_row(*row, "", "", "", "", "", found.why)
            continue
        live = "-" if found.live_coverage_p99 is None else f"{found.live_coverage_p99:.4f}"
        table.add_row(
            *row,
            f"{found.old.error:.2%}\n{found.new.error:.2%}",
            f"{found.old.bias:+.1%}\n{found.new.bias:+.1%}",
            f"{found.old.coverage_p99:.4f}\n{found.new.coverage_p99:.4f}",
            live,
            f"{_form(found.old)}\n{_form(found.new)}",
            "use the new one" if found.better else f"keep: {found.why}",
        )
    return table


def _form(found: Prediction) -> str:
    return f"{found.form}, {len(found.knot_items)} knots"


def _outcomes(fitted: Fitted) -> Table:
    change = fitted.change
    table = Table()
    for name in ("", "attainment", "bill, $", "$ per million met"):
        table.add_column(name, justify="right" if name else "left")
    rows: list[tuple[str, Outcome]] = [
        ("as recorded", change.as_recorded),
        ("with the better models", change.refitted),
        ("with the best parameters", change.tuned),
        ("as recommended", change.recommended),
    ]
    for name, outcome in rows:
        cost = outcome.usd_per_million_met
        table.add_row(name, f"{outcome.attainment:.4f}", f"{outcome.usd:.4g}", "-" if cost is None else f"{cost:.4g}")
    return table


def _trials(fitted: Fitted) -> Table:
    table = Table()
    for name in ("parameters", "attainment", "$ per million met"):
        table.add_column(name, justify="left" if name == "parameters" else "right")
    for trial in fitted.tuning.trials:
        cost = trial.usd_per_million_met
        mark = " (best)" if trial.params == fitted.tuning.best else ""
        table.add_row(
            (params(trial.params) or "the defaults") + mark,
            f"{trial.attainment:.4f}",
            "-" if cost is None else f"{cost:.4g}",
        )
    return table
