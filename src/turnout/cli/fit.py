"""`turnout fit` on the command line: parse, call, print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from turnout.cli.flags import Switch
from turnout.cli.terminal import answer


def fit(
    log: Path,
    /,
    *,
    out: Path | None = None,
    ignore_truncated_tail: Switch = False,
    json: Switch = False,
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
    from turnout import fit as verb
    from turnout import policies, simulate
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
    answer(fitted, show, json=json, written=written)


def _grid(policy: str) -> Mapping[str, Sequence[Any]]:
    """The values that a policy declares for its parameters."""
    from turnout.policies import POLICIES

    grid: Mapping[str, Sequence[Any]] = getattr(import_module(POLICIES[policy]), "GRID", {})
    return grid
