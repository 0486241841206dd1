"""What is printed: one document or a table, paths on stderr, and progress only for a person."""

from __future__ import annotations

import json

from msgspec import Struct
from rich.text import Text

from turnout import store
from turnout.cli import terminal


class Found(Struct, frozen=True):
    """An answer."""

    number: int = 7


def test_an_answer_is_a_document_or_a_table(capsys, tmp_path):
    """`--json` has the value in its envelope; else it is shown, as wide as was asked; paths go to stderr."""
    terminal.answer(Found(), lambda value, console: None, json=True, written=[tmp_path / "a.json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["body"] == {"number": 7}
    assert out == store.encode(Found()).decode()
    assert err == f"Wrote {tmp_path / 'a.json'}\n"
    terminal.answer(Found(), lambda value, console: console.print(Text(str(console.width))), json=False, width=93)
    assert capsys.readouterr() == ("93\n", "")


def test_progress_is_for_a_person(capsys):
    """Where nobody watches, nothing is written."""
    with terminal.progress() as told:
        told("working", 0.5)
    assert capsys.readouterr() == ("", "")
