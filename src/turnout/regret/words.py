"""The answer in sentences, the money first; and figures as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnout.regret.artefact import Crossover, Line, Regret

SAME = 0.005
"""Shares of cost below this are not worth a word."""


def verdict(regret: Regret) -> tuple[str, ...]:
    """What to do, and why."""
    lines = []
    if not regret.calibration.trusted:
        lines.append(
            "The model does not reproduce what the log saw (see the calibration): do not act on what is modelled below."
        )
    lines.append(_now(regret))
    lines.append(_policy(regret))
    lines.append(_fleet(regret))
    lines.append(_gap(regret))
    return tuple(lines)


def _now(regret: Regret) -> str:
    theirs = regret.theirs
    stands = "meets" if theirs.meets else "misses"
    return (
        f"What you run costs {dollars(theirs.usd_per_h)} an hour and {stands} the objective: "
        f"{share(theirs.attainment)} in time, {share(regret.attainment)} asked (measured)."
    )


def _policy(regret: Regret) -> str:
    best, same = regret.best_policy, regret.same
    gained = (best.attainment or 0.0) - (same.attainment or 0.0)
    if gained <= 0.0005:
        return (
            f"No policy does better on your machines: the best, {named(best)}, has {share(best.attainment)} in time, "
            f"and yours {share(same.attainment)} (both modelled)."
        )
    return (
        f"Policy regret: on the same machines, {named(best)} has {share(best.attainment)} in time in place of "
        f"{share(same.attainment)} (both modelled){_saved(regret.split.policy_regret)}."
    )


def _saved(usd: float | None) -> str:
    return "" if usd is None or usd <= 0.0 else f", {dollars(usd)} less per million requests in time"


def _fleet(regret: Regret) -> str:
    best, theirs = regret.best_fleet, regret.theirs
    if best is None:
        most = ", ".join(f"{pool.name} {pool.most}" for pool in regret.pools)
        return f"No fleet meets the objective with at most this many replicas: {most} (modelled)."
    extra = " (chosen in hindsight: what the first half chose did not hold on the second)" if regret.hindsight else ""
    found = f"{fleet(best.fleet)} under {named(best)} meets it for {dollars(best.usd_per_h)} an hour (modelled){extra}"
    saved = theirs.usd_per_h - best.usd_per_h
    if saved > SAME * theirs.usd_per_h:
        return f"Fleet regret: {found}, {dollars(saved)} an hour or {saved / theirs.usd_per_h:.0%} less than yours."
    if saved < -SAME * theirs.usd_per_h:
        return f"The objective needs more machines: {found}, {dollars(-saved)} an hour more than yours."
    return f"Your fleet is as cheap as any that was found: {found}."


def _gap(regret: Regret) -> str:
    bound, best = regret.bound, regret.best_fleet
    if best is None:
        return f"No fleet and no policy can meet it for less than {dollars(bound.usd_per_h)} an hour (bound)."
    gap = (best.usd_per_h - bound.usd_per_h) / best.usd_per_h if best.usd_per_h > 0.0 else 0.0
    return (
        f"No fleet and no policy can meet it for less than {dollars(bound.usd_per_h)} an hour (bound), "
        f"so at most {gap:.0%} of the best fleet's price is left to find."
    )


def crossover(found: Crossover) -> str:
    """One crossover as a sentence."""
    faster, cheaper = _when(found.faster_from), _when(found.cheaper_from)
    return f"{found.model}: {found.pool} is {faster} faster than {found.than}, {cheaper} cheaper."


def _when(items: int | None) -> str:
    return "never" if items is None else "always" if items == 1 else f"from {items} items on"


def named(line: Line) -> str:
    """A policy with its parameters, as they stand in a config."""
    return " ".join(filter(None, (line.policy, params(line.params))))


def params(values: Mapping[str, Any]) -> str:
    """Parameters as they stand in a config, "" if there are none."""
    return ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in values.items())


def fleet(counts: Mapping[str, int]) -> str:
    """Replicas by pool; those with none are left out."""
    return " + ".join(f"{count} {name}" for name, count in counts.items() if count) or "-"


def dollars(usd: float | None) -> str:
    """An amount, or "-"."""
    return "-" if usd is None else f"${usd:,.4g}" if abs(usd) < 1000 else f"${usd:,.0f}"


def signed(usd: float | None) -> str:
    """A difference, or "-"."""
    return "-" if usd is None else f"{'-' if usd < 0 else '+'}{dollars(abs(usd))}"


def share(value: float | None) -> str:
    """A share, with the digits that an objective of 0.999 needs."""
    return "-" if value is None else f"{100 * value:.2f} %"


def milliseconds(seconds: float | None) -> str:
    """A duration, or "-"."""
    return "-" if seconds is None else f"{1e3 * seconds:,.4g} ms"
