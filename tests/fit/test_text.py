"""What a person reads: the recommendation first, and for every figure whether it was recorded or modelled."""

from __future__ import annotations

import sys

import pytest
from cyclopts import App
from rich.console import Console

from tests.fit.logs import write_log
from tests.fit.test_fit import run
from turnout import cli_fit, store
from turnout.errors import ArtefactError
from turnout.fit import Fitted
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


def command(*arguments):
    """Run the command as the command line does."""
    app = App()
    cli_fit.register(app)
    app(["fit", *map(str, arguments)], exit_on_error=False, result_action="return_value")


def test_the_command_prints_json_and_writes_files(tmp_path, capsys):
    """`--json` is the artefact itself, and `--out` has it with the profiles."""
    write_log(tmp_path / "log", factor={"cpu": 1.5})
    command(tmp_path / "log", "--json", "--out", tmp_path / "out")
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "out/fitted.json").read_text()
    assert store.load(tmp_path / "out/fitted.json", Fitted).use_models
    assert (tmp_path / "out/profiles/cpu-m.json").is_file()


def test_the_command_says_what_is_wrong(tmp_path):
    """A log that is not there is an error for the person who gave it."""
    with pytest.raises(ArtefactError, match=r"nowhere\.jsonl"):
        command(tmp_path / "nowhere.jsonl")
