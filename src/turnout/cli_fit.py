"""`turnout fit` on the command line: parse, call, print."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter


def register(app: App) -> None:
    """Add the command to `app`."""
    app.command(fit)


def fit(
    log: Path,
    /,
    *,
    out: Path | None = None,
    ignore_truncated_tail: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Refit latency models and the policy's parameters from a recorded log, and say what that would have changed.

    The first 70 % of the requests are fitted to, and the last 30 % judge the fit. Where it is not better there, the
    answer is to keep what you have.

    Args:
        log: A log segment, or a folder of them (the latest run with requests).
        out: Folder for fitted.json and profiles/, which a config can name.
        ignore_truncated_tail: Read a log that a crash cut off, without its last event.
        json: Print one JSON document.
    """
    from rich.console import Console

    from turnout import fit as verb
    from turnout import policies, simulate, store
    from turnout.fit.text import show

    fitted, profiles = verb.run(
        log,
        policies.load,
        simulate.run,
        _grid,
        now=datetime.now(UTC),
        ignore_truncated_tail=ignore_truncated_tail,
    )
    written = verb.save(fitted, profiles, out) if out else []
    if json:
        sys.stdout.write(store.encode(fitted).decode())
    else:
        show(fitted, Console(width=None if sys.stdout.isatty() else 140))
    for path in written:
        sys.stderr.write(f"Wrote {path}\n")


def _grid(policy: str) -> Mapping[str, Sequence[Any]]:
    """The values that a policy declares for its parameters."""
    from turnout.policies import POLICIES

    grid: Mapping[str, Sequence[Any]] = getattr(import_module(POLICIES[policy]), "GRID", {})
    return grid
