"""What a person reads: the recommendation first, and for every figure whether it was recorded or modelled."""

from __future__ import annotations

import sys

from rich.console import Console

from tests.fit.logs import write_log
from tests.fit.test_fit import run
from turnout.fit.text import show


def test_the_recommendation_comes_first_and_figures_say_what_they_are(tmp_path):
    """The first line is what to do; tables are marked as recorded or modelled."""
    write_log(tmp_path, factor={"cpu": 1.5})
    fitted, _ = run(tmp_path)
    console = Console(width=160, record=True, file=sys.stderr)
    show(fitted, console)
    text = console.export_text()
    assert text.startswith("Use the refitted profile of m on cpu")
    assert "[recorded]" in text
    assert "[modelled]" in text
    assert "as recommended" in text
