"""The results of the study as Markdown: what docs/routing.md and the terminal show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnout.demo.elsewhere import CPU, GPU

Result = Mapping[str, Any]

BEGIN, END = "<!-- results: bench/routing.py --write -->\n", "<!-- /results -->\n"


def insert(page: str, tables: str) -> str:
    """The page with the tables between its markers."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + tables + END + tail


def render(result: Result) -> str:
    """Every section that the result has."""
    parts = [part for key, made in SECTIONS.items() if key in result for part in made(result)]
    return "\n".join(["Simulated, except for the cost of a decision; see above for what is real in it.", "", *parts])


# ---- a fleet that is paid for ----------------------------------------------------------------------------------------


def _fixed(result: Result) -> Iterable[str]:
    verdicts = result["fixed_cells"]
    for regime, which, words in (
        ("single", "share_of_b1", "Fixed fleet, single requests: highest rate at 99 %, share of B1"),
        ("shared", "share_of_b2", "Fixed fleet, batches shared and requests split: highest rate at 99 %, share of B2"),
    ):
        yield f"### {words}\n"
        shares, models = result[f"{which}_interval"], list(result[which])
        policies = sorted(shares[models[0]], key=lambda p: -sum(shares[m][p]["mean"] for m in models))
        yield table(["policy", *models], [[p, *(_share(shares[m][p]) for m in models)] for p in policies])
        rows = []
        for m in models:
            best = verdicts[regime][m]["best_baseline"]
            rows.append([m, best, _gain(verdicts[regime][m]["against"][best]["gain"]), verdicts[regime][m]["status"]])
        yield "Ours against the best of the others, paired by seed:\n"
        yield table(["model", "best of the others", "gain of ours", "status"], rows)
    if any(result["gap_closed"].values()):
        yield "### Distance to the best clairvoyant schedule found\n"
        yield table(
            ["model", "schedule found, share of B2", "share of the distance that ours closes"],
            [[m, _share(result["clairvoyant_share_of_b2"][m]), _share(x)] for m, x in result["gap_closed"].items()],
        )
    yield "### Reproduction: single requests, shares of the reference's own bound\n"
    rows = [
        [m, p, f"{x['reference']:.2f}", f"{x['served_late']:.3f}", _points(x), f"{x['refused']:.3f}"]
        for m, row in result["reproduction"].items()
        for p, x in row.items()
    ]
    yield table(["model", "policy", "reference", "late served", "difference", "late refused"], rows)
    yield "### Who is missed at the highest rate held, by size\n"
    rows = [
        [m, p, *(f"{d['rejected'] + d['late']:.3f}" for d in deciles)]
        for m, row in result["misses_by_size"].items()
        for p, deciles in row.items()
    ]
    width = max(len(row) - 2 for row in rows)
    yield table(["model", "policy", *(f"{i + 1}" for i in range(width))], rows)
    yield "Columns are deciles by size, smallest first; rejected and late together.\n"


def _points(row: Mapping[str, float]) -> str:
    return f"{100.0 * (row['served_late'] - row['reference']):+.1f} points"


# ---- machines by the hour --------------------------------------------------------------------------------------------


def _elastic(result: Result) -> Iterable[str]:
    yield "### Elastic: each brings its own cheapest fleet; dollars per million requests in time\n"
    rows = []
    names = ("turnout", "kairos", "threshold", "cpu-only", "gpu-only")
    for name, row in result["elastic"].items():
        if "contenders" not in row:
            rows.append([name, *("-" for _ in names), "", row["status"]])
            continue
        bought = row["contenders"]
        rows.append([name, *(_bought(bought[p]) for p in names), _ratio(row.get("ratio")), row["status"]])
    yield table(["cell", *names, "ours / best other", "status"], rows)
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result["elastic_counts"].items()))
    hybrid = result["hybrid_wins"]
    saves = sorted(hybrid["saves"].values())
    yield (
        f"{len(result['elastic'])} cells: {counts}. Worst ratio {_number(result['worst_cell_vs_best'])}. A fleet of "
        f"both kinds is cheaper than either alone on {hybrid['cells']} of {hybrid['of']} cells"
        + (f", by {saves[0]:.1%} to {saves[-1]:.1%}.\n" if saves else ".\n")
    )


def _bought(row: Mapping[str, Any]) -> str:
    """Dollars and machines: C are of the CPU kind, G of the other."""
    if row["fleet"] is None:
        return "none"
    cpu, gpu = row["fleet"]
    late = "" if row["kept"] else f" ({row['attainment']['mean']:.4f} met)"
    return f"{row['usd_per_million']['mean']:.3f}, {cpu}C {gpu}G{late}"


# ---- mixed -----------------------------------------------------------------------------------------------------------


def _mixed(result: Result) -> Iterable[str]:
    yield "### Mixed cells: requests in time per dollar, ours over the others\n"
    rows = [
        [
            name,
            f"{row['rate_per_s']:.0f}/s, {_machines(row['fleets']['turnout'])}",
            *(_ratio(row["against"][other]) for other in ("partition", "cpu-only", "gpu-only")),
            *(f"{row['attainment'][p]['mean']:.4f}" for p in ("turnout", row["best_other"])),
            row["status"],
        ]
        for name, row in result["mixed_cells"].items()
    ]
    head = ["cell", "load, fleet", "best partition", "CPU only", "GPU only", "met by ours", "by the best", "status"]
    yield table(head, rows)


def _machines(parts: Sequence[Sequence[int]]) -> str:
    return f"{sum(p[0] for p in parts)} {CPU} + {sum(p[1] for p in parts)} {GPU}"


# ---- robust, decision ------------------------------------------------------------------------------------------------


def _robust(result: Result) -> Iterable[str]:
    yield "### Robust: what happens when predictions are wrong\n"
    rates = result["robust_rates_per_s"]
    rows = [
        [
            name,
            f"{rates[name]:.0f}",
            f"{row['attainment_after']['mean']:.4f}",
            ", ".join("never" if t is None else f"{t:.0f}" for t in row["back_s"]),
            f"{row['coverage']['mean']:.4f}",
            row["status"],
        ]
        for name, row in result["robust_cells"].items()
    ]
    yield table(["cell", "requests/s", "met after", "back after, s, by seed", "p99 coverage", "status"], rows)


def _decision(result: Result) -> Iterable[str]:
    yield "### What a decision costs on this machine, µs\n"
    rows = [
        [name, *(f"{row[key]:.1f}" for key in ("p50", "p99", "p99_of_all"))]
        for name, row in result["decide_us"].items()
    ]
    yield table(["cell", "p50", "p99", "p99 of all samples"], rows)
    yield (
        "Small: per request decided, 2 pools of 8. Large: one decision, 64 replicas and 1,000 waiting. Measured; each "
        "decision is the median of several runs over the same events, except in the last column.\n"
    )


SECTIONS = {
    "fixed_cells": _fixed,
    "elastic": _elastic,
    "mixed_cells": _mixed,
    "robust_cells": _robust,
    "decide_us": _decision,
}
"""By the key that a section's JSON has."""


# ---- words -----------------------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, its columns padded so that it reads in a terminal as well."""
    lines = [list(head), *(list(row) + [""] * (len(head) - len(row)) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    texts = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([texts[0], rule, *texts[1:]]) + "\n"


def _half(x: Mapping[str, float]) -> float:
    return (x["high"] - x["low"]) / 2.0


def _share(x: Mapping[str, float]) -> str:
    return f"{x['mean']:.3f} ± {_half(x):.3f}" if x else "-"


def _gain(x: Mapping[str, float]) -> str:
    return f"{x['mean']:+.2%} ({x['low']:+.2%} to {x['high']:+.2%})"


def _ratio(x: Mapping[str, float] | None) -> str:
    return f"{x['mean']:.3f} ({x['low']:.3f} to {x['high']:.3f})" if x else "-"


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.3f}"
