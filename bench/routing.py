"""Our policy against those that others use, next to bounds, on public latency tables.

All but the last section is simulated: the shipped Router on a virtual clock, service times published by others,
arrivals and sizes from laws.

fixed      the highest rate that keeps 99 % in time on a fleet that is paid for, as a share of fluid bounds
elastic    machines by the hour: each contender brings the cheapest fleet of a grid on which it keeps 99 %
mixed      several models and classes on one fleet, bursts, cold starts, a lost replica, a GPU with other uses
robust     noise in predictions, drift, heavy tails
decision   what a decision costs on this machine (measured; run it with nothing else running)

    .venv/bin/python bench/routing.py [--quick] [--sections fixed,decision] [--jobs N] [--kept DIR] [--write]

All sections take some hours on two cores. `--kept DIR` keeps each result there as soon as it is found, so that an
interrupted run goes on; a change of the code under test wants a new folder. `--write` puts the sections that were run
into bench/results/routing.json and their tables into docs/routing.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))  # for the processes that it starts

from study import decision, elastic, fixed, mixed, report, robust  # noqa: E402
from study.runs import Workers  # noqa: E402

RESULTS = ROOT / "bench/results/routing.json"
PAGE = ROOT / "docs/routing.md"

Section = Callable[[Workers], dict[str, Any]]

FULL: dict[str, Section] = {
    "fixed": lambda workers: fixed.section(fixed.Plan(), workers),
    "elastic": lambda workers: elastic.section(elastic.Plan(), workers),
    "mixed": lambda workers: mixed.section(mixed.Plan(), workers),
    "robust": lambda workers: robust.section(robust.Plan(), workers),
    "decision": lambda _workers: decision.section(decision.Plan()),
}

FEW = ("turnout", "kairos", "cheapest")
QUICK: dict[str, Section] = {
    "fixed": lambda workers: fixed.section(
        fixed.Plan(policies=FEW, single_policies=FEW, count=400, tuning_count=0, seeds=(1, 2)), workers
    ),
    "elastic": lambda workers: elastic.section(
        elastic.Plan(models=("wnd",), multiples=(3.0,), loads=(0.1,), train_count=500, count=500, seeds=(1, 2)), workers
    ),
    "mixed": lambda workers: mixed.section(
        mixed.Plan(
            cells=tuple(replace(cell, base=(2, 1)) for cell in mixed.CELLS[:1]),
            scale=0.02,
            train_scale=0.02,
            seeds=(1, 2),
        ),
        workers,
    ),
    "robust": lambda workers: robust.section(
        robust.Plan(models=("rm2",), span_s=80.0, train_count=500, seeds=(1,)), workers
    ),
    "decision": lambda _workers: decision.section(decision.Plan(count=2_000, cycles=300, repeats=1)),
}
"""Every section on so little traffic that only the machinery is shown; the figures mean nothing."""

KEYS = (
    "share_of_b1", "share_of_b2", "gap_closed", "worst_cell_vs_best", "mixed", "coverage", "decide_us_p99",
    "decide_us_p99_large",
)  # fmt: skip
"""Of the JSON line; everything else is in the file that `--write` writes."""


def main() -> None:
    """Run the sections, print their tables, then one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under 60 s: little traffic, few policies, same keys")
    parser.add_argument("--sections", default=",".join(FULL), help=f"any of {','.join(FULL)} (all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once (all cores)")
    parser.add_argument("--kept", type=Path, help="folder in which results are kept for the next run")
    parser.add_argument("--write", action="store_true", help="write bench/results/routing.json and docs/routing.md")
    args = parser.parse_args()
    names = args.sections.split(",")
    unknown = [name for name in names if name not in FULL]
    if unknown:
        parser.error(f"--sections: no section {', '.join(unknown)}; there are {', '.join(FULL)}")
    if args.write and args.quick:
        parser.error("--write: a quick run says nothing about the policies; leave one of the two out")
    result: dict[str, Any] = {}
    for name in names:
        kept = args.kept / f"{name}.jsonl" if args.kept else None
        result |= (QUICK if args.quick else FULL)[name](Workers(args.jobs, kept))
    print(report.render(result))
    if args.write:
        write(result, names)
    print(json.dumps({key: _short(key, result[key]) for key in KEYS if key in result}))


def _short(key: str, value: Any) -> Any:
    """`gap_closed` as its means."""
    return {m: x.get("mean") for m, x in value.items()} if key == "gap_closed" else value


def write(result: dict[str, Any], names: list[str]) -> None:
    """Put the sections into the file of results and the page; those of other runs stay."""
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    provenance = old.get("provenance", {}) | {name: provenance_now() for name in names}
    whole = old | result | {"provenance": provenance}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rounded(whole), indent=1, sort_keys=True) + "\n")
    PAGE.write_text(report.insert(PAGE.read_text(), report.render(json.loads(RESULTS.read_text()))))


def rounded(value: Any) -> Any:
    """Floats to six digits, so that the file is readable."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def provenance_now() -> dict[str, str]:
    """Where and of what the figures are."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607  # whichever git made this checkout
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": commit.stdout.strip(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "service_times": "simulated: published tables of Kairos (HPDC 2023), arrivals and sizes from laws",
    }


if __name__ == "__main__":
    main()
