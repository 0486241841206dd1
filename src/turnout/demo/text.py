"""The demo as a person reads it in a terminal. Every block says where its figures come from."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnout.demo import Demo
from turnout.demo.advice import Advice, fleet
from turnout.demo.elsewhere import Contest
from turnout.demo.here import Here

HERE, ELSEWHERE, MODELLED = "measured here", "measured elsewhere", "modelled"


def show(demo: Demo, console: Console) -> None:
    """Print the three parts."""
    _here(demo.here, console)
    _contest(demo.contest, console)
    _advice(demo.advice, console)


def _heading(console: Console, title: str, origin: str) -> None:
    console.print()
    console.print(Text(title, style="bold") + Text(f"  [{origin}]", style="cyan"))


def _here(here: Here, console: Console) -> None:
    duel, traffic, predicted = here.duel, here.traffic, here.predicted
    _heading(console, "1. This machine: the duel", HERE)
    console.print(Text(duel.verdict.headline))
    console.print(Text(f"Bottleneck: {duel.verdict.bottleneck}"))
    console.print(Text(f"on {duel.hardware}", style="dim"))
    _heading(console, "   This machine: live traffic through the gateway", HERE)
    console.print(
        f"{traffic.requests} requests, {traffic.answered} answers, {traffic.lost} lost "
        f"({traffic.rejected} rejected in time to try elsewhere); {traffic.items} files in {traffic.duration_s:.0f} s, "
        f"at {traffic.rate_per_s:.0f} requests/s in bursts, half of the measured capacity."
    )
    console.print(f"{here.killed}; {here.recorded.retried_batches} batch(es) of it were run again elsewhere.")
    console.print(Text("Types found: " + ", ".join(f"{name} {count}" for name, count in traffic.types.items())))
    table = Table()
    for column in (f"deadline {here.deadline_s * 1e3:.0f} ms", "p50 ms", "p99 ms", "attainment"):
        table.add_column(column, justify="left" if column.startswith("deadline") else "right")
    table.add_row(
        f"predicted before the run [{MODELLED}]".replace("[", "\\["),
        _ms(predicted.latency_p50_s), _ms(predicted.latency_p99_s), f"{predicted.attainment:.4f}",
    )
    table.add_row(
        f"what the client saw [{HERE}]".replace("[", "\\["),
        _ms(traffic.latency_p50_s), _ms(traffic.latency_p99_s), f"{traffic.attainment:.4f}",
    )
    console.print(table)
    coverage = here.recorded.coverage_p99
    if coverage is not None:
        console.print(f"The p99 predicted for each batch at its dispatch covered {coverage:.4f} of them (aim 0.99).")
    console.print(Text("One receipt: " + explain(here.receipt)))
    console.print(
        f"Replayed {here.replay.events} events through a fresh router: {here.replay.actions} actions, identical "
        f"(digest {here.replay.replayed_digest[:12]})."
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def explain(receipt: dict[str, Any]) -> str:
    """A decision receipt in a sentence."""
    if not receipt["attempts"]:
        return f"request {receipt['client_id']}: {receipt['outcome']}, {receipt['detail']}"
    last = receipt["attempts"][-1]
    actual_s = last["actual"]["service_s"]
    others = [c for c in last["candidates"] if c["replica"] != last["replica"]]
    against = "; ".join(f"{c['pool']} would have taken {c['mean_s'] * 1e3:.1f} ms" for c in others)
    return (
        f"request {receipt['client_id']} ({receipt['items']} items, due in "
        f"{(receipt['deadline_s'] - receipt['arrived_s']) * 1e3:.0f} ms) waited {last['waited_s'] * 1e3:.1f} ms, then ran on "
        f"{last['replica']} in a batch of {last['batch_items']}: predicted {last['predicted']['service_s'] * 1e3:.1f} ms "
        f"(p99 {last['predicted']['p99_s'] * 1e3:.1f}), took {_ms(actual_s)} ms; {receipt['outcome']}, because: "
        f"{last['binding']}{'; ' + against if against else ''}."
    )


def _contest(contest: Contest, console: Console) -> None:
    setting = contest.setting
    _heading(
        console,
        f"2. Real GPUs: {contest.gpu} x T4 (g4dn.xlarge) + {contest.cpu} x r5n.large, {setting.model} within "
        f"{setting.deadline_s * 1e3:.0f} ms at {setting.rate_qps:.0f} queries/s",
        f"service times {ELSEWHERE}: Kairos, HPDC 2023; queueing {MODELLED}",
    )
    table = Table()
    for column in ("policy", "attainment", "p99 ms", "rejected", "$ per million met"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for label, summary in contest.lines:
        usd = summary.usd_per_million_met
        table.add_row(
            label, f"{summary.attainment:.4f}", _ms(summary.latency_p99_s), str(sum(summary.rejects.values())),
            "-" if usd is None else f"{usd:.3f}",
        )
    console.print(table)


def _advice(advice: Advice, console: Console) -> None:
    _heading(console, "3. What to rent", f"{MODELLED} on figures {ELSEWHERE}; prices of 2023-06, AWS on demand")
    table = Table()
    for column in ("queries/s", "cheapest fleet", "$/h", "runner-up", "$/h"):
        table.add_column(column, justify="right" if column in {"queries/s", "$/h"} else "left")
    for row in advice.rows:
        cells = [cell for q in row.quotes[:2] for cell in (f"{fleet(q)} ({q.kind})", f"{q.usd_per_h:.3f}")]
        table.add_row(f"{row.rate_qps:.0f}", *cells)
    console.print(table)
    console.print(Text(advice.sentence, style="bold"))
