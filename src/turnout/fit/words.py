"""The answer of a fit in sentences, the recommendation first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnout.fit.artefact import Fitted, Refit


def verdict(fitted: Fitted) -> tuple[str, ...]:
    """What to do, and what it would have changed."""
    lines = [f"Use the refitted profile of {r.model} on {r.pool}: {_errors(r)}." for r in fitted.models if r.better]
    if fitted.use_params is not None:
        old = params(fitted.tuning.old) or "the defaults"
        lines.append(f"Set {params(fitted.use_params)} for the policy {fitted.tuning.policy}, in place of {old}.")
    if not lines:
        return (f"Keep what you have: {_why_keep(fitted)}.",)
    return (*lines, _changed(fitted))


def params(values: Mapping[str, Any]) -> str:
    """Parameters as they stand in a config, "" if there are none."""
    return ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items())


def _errors(found: Refit) -> str:
    assert found.old is not None
    assert found.new is not None
    return (
        f"on {found.held_out} batches that it has not seen, the mean error is {found.new.error:.1%} "
        f"in place of {found.old.error:.1%}"
    )


def _why_keep(fitted: Fitted) -> str:
    """Why nothing is recommended."""
    judged = [found for found in fitted.models if found.old is not None]
    if not judged:
        return "no model has enough batches in this log to be fitted"
    if fitted.change.models_do_harm:
        return "the refitted models predict better, but fewer requests were in time with them in the simulation"
    tried = len(fitted.tuning.trials)
    tuned = f", nor is any of {tried} settings of the policy" if tried else ""
    return f"no refitted model is surely better on the batches held out{tuned}"


def _changed(fitted: Fitted) -> str:
    change = fitted.change
    old, new = change.as_recorded, change.recommended
    share = change.elsewhere / change.requests
    cost = ""
    if old.usd_per_million_met is not None and new.usd_per_million_met is not None:
        cost = (
            f", and a million requests in time would have cost ${new.usd_per_million_met:.4g} "
            f"in place of ${old.usd_per_million_met:.4g}"
        )
    return (
        f"Of the last {change.requests} requests, {change.elsewhere} ({share:.1%}) would have gone elsewhere; "
        f"attainment would have been {new.attainment:.4f} in place of {old.attainment:.4f}{cost} (modelled)."
    )
