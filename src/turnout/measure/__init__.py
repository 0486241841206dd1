"""`turnout measure`: the duel. The same inputs through every device and variant here, and a verdict with its receipt.

It times; it does not plan fleets, route requests or remember prices. See `conduct.run` for the order of events.
"""

from __future__ import annotations

import re
from pathlib import Path

from turnout import store
from turnout.measure.artefact import Duel
from turnout.measure.conduct import SIZES, Options, run

__all__ = ["SIZES", "Duel", "Options", "run", "save"]


def save(duel: Duel, folder: Path) -> tuple[Path, ...]:
    """Write duel.json, profiles/<contender>.json and report.html into `folder`; returns what was written.

    Raises:
        ArtefactError: the folder cannot be written.
        ExtraMissingError: plotly, for the report, is not installed; the artefacts are written by then.
    """
    from turnout.measure import html

    written = [folder / "duel.json"]
    store.save(duel, written[0])
    for entry in duel.entries:
        slug = re.sub(r"[^a-z0-9]+", "-", entry.label.lower()).strip("-")
        written.append(folder / "profiles" / f"{slug}.json")
        store.save(entry.profile, written[-1])
    written.append(folder / "report.html")
    store.write_bytes(html.render(duel).encode(), written[-1])
    return tuple(written)
