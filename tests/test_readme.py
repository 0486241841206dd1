"""The README's figures come from a stored artefact, and its commands are those that there are."""

from __future__ import annotations

import runpy
from pathlib import Path

from turnout import store
from turnout.measure.artefact import Duel

ROOT = Path(__file__).resolve().parent.parent


def test_the_measured_table_is_what_the_stored_duel_says():
    """Nobody edits a figure: the table is generated, and the artefact names hardware, versions, commit and date."""
    script = runpy.run_path(str(ROOT / "scripts/readme_table.py"))
    duels = [store.load(source, Duel) for source in script["SOURCES"]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert script["insert"](readme, script["render"](duels)) == readme
    for duel in duels:
        provenance = duel.profiles[0].provenance
        assert provenance.kind == "measured"
        assert all((provenance.hardware, provenance.versions, provenance.date, provenance.commit))


def test_the_first_screen_has_the_two_commands():
    """Within the first 45 lines: what it decides, a measured table, `make demo` and `make test`."""
    first = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45])
    for expected in ("make demo", "make test", "CPU or GPU", "<!-- measured"):
        assert expected in first
