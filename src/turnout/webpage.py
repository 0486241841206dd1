"""One self-contained HTML page with plotly figures: nothing from the network, dark or light as the reader prefers.

Figures are plain plotly JSON, so that the Python side of plotly is never imported; its script comes from its wheel.
It knows nothing of what the figures show. Rules: words pass through `text`, since a model or a file may be called
anything; every `section` with figures names their origin.
"""

from __future__ import annotations

import html as markup
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

import msgspec

from turnout.errors import ExtraMissingError

PALETTE = ("#3b82c4", "#e08a2e", "#4ca66b", "#a66bc2", "#c9564f", "#7d8790")
"""Readable on dark and on light."""

Figure = dict[str, Any]


def render(title: str, headline: str, origin: str, body: str, figures: Mapping[str, Figure]) -> str:
    """The whole page; `origin` is the headline's. `body` is HTML with a `place(name, …)` for each of `figures`.

    Raises:
        ExtraMissingError: plotly is not installed.
    """
    page = Template(files("turnout").joinpath("data/page.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=text(title),
        headline=text(headline),
        origin=_label(origin),
        body=body,
        figures=msgspec.json.encode(figures).decode().replace("<", "\\u003c"),  # cannot end its script element
        plotly=plotly_js(),
    )


def plotly_js() -> str:
    """Plotly's script from its wheel.

    Raises:
        ExtraMissingError: plotly is not installed.
    """
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ExtraMissingError("plotly", "report", "the HTML report")
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def section(title: str, origin: str, content: str, style: str = "") -> str:
    """A block with its title and the origin of its figures ("" where it has none); `content` is HTML."""
    return f'<section class="{style}"><h2>{text(title)}{_label(origin)}</h2>{content}</section>'


def place(name: str, figure: Figure) -> str:
    """Where figure `name` is drawn."""
    return f'<div class="figure" id="{name}" style="height: {figure["layout"]["height"]}px"></div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], styles: Sequence[str] = ()) -> str:
    """A table of plain text; `styles` are classes of its rows."""
    body = "".join(
        f'<tr class="{styles[i] if i < len(styles) else ""}">{"".join(f"<td>{text(cell)}</td>" for cell in row)}</tr>'
        for i, row in enumerate(rows)
    )
    titles = "".join(f"<th>{text(cell)}</th>" for cell in head)
    return f'<div class="wide"><table><tr>{titles}</tr>{body}</table></div>'


def listing(lines: Iterable[str], style: str = "") -> str:
    """A list of plain text, nothing when empty."""
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<ul class="{style}">{items}</ul>' if items else ""


def paragraph(line: str, origin: str = "") -> str:
    """A paragraph of plain text, with the origin of its figures where it is not that of the whole section."""
    return f"<p>{text(line)}{_label(origin)}</p>"


def text(words: str) -> str:
    """Text made safe for HTML."""
    return markup.escape(words)


def _label(origin: str) -> str:
    """An origin in its frame, nothing when there is none."""
    return f' <span class="origin">{text(origin)}</span>' if origin else ""
