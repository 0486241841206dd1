"""`turnout demo` on the command line: parse, call, print."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from turnout.cli.flags import Switch
from turnout.cli.terminal import answer, progress


def demo(*, out: Path = Path("out/demo"), json: Switch = False) -> None:
    """The whole of Turnout in two minutes: a duel here, live traffic with a killed replica, real GPUs, and advice.

    Args:
        out: Folder for the artefacts and report.html.
        json: Print the result as one JSON document.
    """
    from turnout import demo as verb
    from turnout.demo.text import show

    with progress() as told:
        result = verb.run(out, now=datetime.now(UTC), environ=os.environ, progress=told)
    answer(result, show, json=json)
    if not json:
        print(f"Report: {out / 'report.html'}")
