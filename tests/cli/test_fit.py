"""`turnout fit` as it is typed: one document, the files that a config can name, one message."""

from __future__ import annotations

import pytest

from tests.fit.logs import write_log
from turnout import store
from turnout.cli import app
from turnout.errors import ArtefactError
from turnout.fit import Fitted


def command(*arguments):
    """Run the command as the command line does."""
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
