"""An answer to "what if" as a person reads it: recorded beside modelled, and how far the model can be trusted."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnout.core.account import Summary
from turnout.replay import WhatIf


def show(answer: WhatIf, console: Console) -> None:
    """Print the three columns, then what the first two say of the third."""
    console.print(Text(f"The run that begins in {answer.path}:"))
    columns = (
        ("recorded", "as logged", answer.recorded),
        ("same fleet", "modelled", answer.same),
        ("changed", "modelled", answer.changed),
    )
    table = Table()
    table.add_column("")
    for name, origin, _ in columns:
        table.add_column(f"{name}\n\\[{origin}]", justify="right")
    summaries = [summary for _, _, summary in columns]
    for label, cells in _rows(summaries):
        table.add_row(label, *cells)
    console.print(table)
    gap = answer.same.attainment - answer.recorded.attainment
    console.print(
        f"On the recorded fleet the model is off by {gap:+.4f} in attainment and by "
        f"{_relative(answer.same.latency_p99_s, answer.recorded.latency_p99_s)} in p99: read the last column with that."
    )
    before, after = answer.same, answer.changed
    console.print(
        Text(
            f"The change would move attainment from {before.attainment:.4f} to {after.attainment:.4f} and p99 from "
            f"{_ms(before.latency_p99_s)} to {_ms(after.latency_p99_s)} ms, and cost ${after.bill_usd:.4g} in place of "
            f"${before.bill_usd:.4g} for this traffic.",
            style="bold",
        )
    )


def _rows(summaries: list[Summary]) -> list[tuple[str, list[str]]]:
    rows = [
        ("requests", [str(s.requests) for s in summaries]),
        ("attainment", [f"{s.attainment:.4f}" for s in summaries]),
        ("p50 ms", [_ms(s.latency_p50_s) for s in summaries]),
        ("p99 ms", [_ms(s.latency_p99_s) for s in summaries]),
        ("rejected", [str(sum(s.rejects.values())) for s in summaries]),
        ("items per batch", [f"{s.mean_batch_items:.1f}" for s in summaries]),
        ("bill, $", [f"{s.bill_usd:.4g}" for s in summaries]),
        (
            "$ per million met",
            ["-" if s.usd_per_million_met is None else f"{s.usd_per_million_met:.4g}" for s in summaries],
        ),
    ]
    for name in dict.fromkeys(p.pool for s in summaries for p in s.pools):
        found = [next((p for p in s.pools if p.pool == name), None) for s in summaries]
        rows.append((f"{name}: utilisation", ["-" if p is None else f"{p.utilisation:.2f}" for p in found]))
    return rows


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def _relative(value: float | None, base: float | None) -> str:
    return "-" if not value or not base else f"{value / base - 1:+.1%}"
