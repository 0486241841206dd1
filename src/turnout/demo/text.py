"""The demo as a person reads it in a terminal: sentences and tables on the left, where they come from on the right.

The last line is the one to act on. Nothing is computed or worded here; `story` does that.
"""

from __future__ import annotations

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from turnout.demo import Demo, story

WIDTH = 100
"""Columns used at most; longer lines are hard to read."""

ORIGIN_WIDTH = len(story.ELSEWHERE)


def show(demo: Demo, console: Console) -> None:
    """Print the three parts and what to do."""
    width = min(console.width, WIDTH)
    console.print(Text(story.INTRODUCTION), width=width)
    here = demo.here
    for block in (story.duel(here), story.traffic(here), story.contest(demo.contest), story.rent(demo.advice)):
        console.print()
        console.print(Text(block.title, style="bold"))
        console.print(_grid(block, width))
    console.print()
    console.print(Text.assemble(("What to do", "bold"), (f"  [{story.MIXED}]", "cyan")), width=width)
    console.print(Text(demo.advice.sentence, style="bold"), width=width)


def _grid(block: story.Block, width: int) -> Table:
    """A block, with the origin of each line beside it."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=width - ORIGIN_WIDTH - 2)
    grid.add_column(width=ORIGIN_WIDTH, style="cyan")
    above, below = _items(block.lines), _items(block.remarks)
    middle: list[tuple[RenderableType, str]] = []
    if block.rows:
        middle = [("", ""), (_table(block), block.origin), ("", "")]
    for shown, origin in (*above, *middle, *below):
        grid.add_row(shown, origin)
    return grid


def _items(lines: tuple[story.Line, ...]) -> list[tuple[RenderableType, str]]:
    """Sentences with a mark, so that a wrapped one is told from the next."""
    items: list[tuple[RenderableType, str]] = []
    for sentence, origin in lines:
        item = Table.grid(padding=(0, 1, 0, 0))
        item.add_row("-", Text(sentence))
        items.append((item, origin))
    return items


def _table(block: story.Block) -> Table:
    """The block's table; words to the left, figures to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, column in enumerate(block.head):
        figures = any(
            row[i][:1].isdigit() and not row[i].endswith(("CPU", "GPU")) for row in block.rows if i < len(row)
        )
        table.add_column(column, justify="right" if figures else "left")
    for i, row in enumerate(block.rows):
        table.add_row(*row, style="bold green" if i in block.best else "")
    return table
