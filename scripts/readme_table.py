"""Write the README's measured table from the stored duels: `.venv/bin/python scripts/readme_table.py`.

The table stands between two markers; `tests/test_readme.py` fails if it is not what this script makes of the artefacts.
"""

from __future__ import annotations

from pathlib import Path

from turnout import store
from turnout.measure.artefact import Duel, Entry, Row
from turnout.measure.words import dollars

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (ROOT / "docs/measured/magika.json", ROOT / "docs/measured/silero_vad.json")
BEGIN, END = "<!-- measured: scripts/readme_table.py -->\n", "<!-- /measured -->\n"
SIZES = (1, 8, 32)


def render(duels: list[Duel]) -> str:
    """Markdown: milliseconds with their 95 % interval by batch size, cost, and whether the answers agree."""
    sizes = " | ".join(f"batch {n}, ms" for n in SIZES)
    lines = [f"| model, device | {sizes} | $ per million | answers |", f"|---|{'--:|' * len(SIZES)}--:|---|"]
    for duel in duels:
        rows = {(row.label, row.items): row for row in duel.verdict.rows}
        for entry in duel.entries:
            cells = [_milliseconds(rows.get((entry.label, items))) for items in SIZES]
            first = rows[entry.label, SIZES[0]]
            usd = dollars(first.usd_per_million.mid) if first.usd_per_million else "not priced"
            name = f"{Path(duel.model).stem}, {entry.label}"
            lines.append(f"| {name} | {' | '.join(cells)} | {usd} | {_answers(entry)} |")
    first_duel = duels[0]
    price = "; ".join(f"${p.usd_per_h:.4g}/h, {p.source}, {p.date}" for p in first_duel.prices)
    lines.append("")
    lines.append(
        f"Measured {first_duel.date[:10]} on {first_duel.hardware}: median and 95 % interval; dollars at batch 1. "
        f"Price: {price}."
    )
    return "\n".join(lines) + "\n"


def _milliseconds(row: Row | None) -> str:
    if row is None:
        return "-"
    low, mid, high = (f"{v * 1e3:.3g}" for v in (row.seconds.low, row.seconds.mid, row.seconds.high))
    return f"{mid} ({low}-{high})"


def _answers(entry: Entry) -> str:
    parity = entry.profile.parity
    if parity is None:
        return "reference"
    return "agree" if parity.ok else "disagree: never routed to"


def insert(readme: str, table: str) -> str:
    """The README with the table between its markers."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + table + END + tail


def main() -> None:
    """Rewrite README.md."""
    path = ROOT / "README.md"
    table = render([store.load(source, Duel) for source in SOURCES])
    path.write_text(insert(path.read_text(encoding="utf-8"), table), encoding="utf-8")
    print(table, end="")


if __name__ == "__main__":
    main()
