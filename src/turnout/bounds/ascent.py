"""Maximise a concave, piecewise linear function of a few prices by cutting planes (Kelley, SIAM J. 8(4), 1960).

The bounds here are linear programmes with one row per request and one price per pool. Their Lagrangian dual is a
concave function of the prices alone, which one pass over the requests evaluates. So a programme with 200,000 variables
becomes a master problem with as many variables as there are pools, which scipy's HiGHS solves. By weak duality every
price that was tried gives a valid bound; the best of them is returned, and the master's value tells how far it can be
from the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.errors import ExtraMissingError

Floats = NDArray[np.float64]
Oracle = Callable[[Floats], tuple[float, Floats]]
"""`oracle(price)` gives (constant, slope): the function is constant + slope · price there, and no more elsewhere."""

TOLERANCE = 1e-7
"""Relative gap at which a price counts as the best."""

TINY = 1e-300
"""Keeps a division by the largest of all zeros defined."""

MAX_CUTS = 200
"""Prices tried at most; what is not closed by then is reported as the gap."""


def optimiser() -> Any:
    """`scipy.optimize`.

    Raises:
        ExtraMissingError: scipy is not installed.
    """
    try:
        from scipy import optimize
    except ImportError as error:
        raise ExtraMissingError("scipy", "match", "a bound") from error
    return optimize


@dataclass(frozen=True, slots=True, kw_only=True)
class Ascent:
    """The best price found and its value; no price has more than `value + gap`.

    `weights` (cuts,) are the master's multipliers of the cuts in the order they were tried: they sum to 1 and mix the
    solutions behind the cuts into one that is optimal within the gap.
    """

    price: Floats
    value: float
    gap: float
    weights: Floats


def ascend(oracle: Oracle, starts: Sequence[Floats], most: Floats, normal: Floats | None = None) -> Ascent:
    """Maximise over 0 <= price <= `most` (pools,), with `normal` · price = 1 if `normal` (pools,) is given.

    `starts` are prices in that set at which the function is cut first; there must be one at least.
    """
    cuts: list[tuple[float, Floats]] = []
    best, best_price = -np.inf, starts[0]
    pending = list(starts)
    ceiling, weights = np.inf, np.ones(1)
    while len(cuts) < MAX_CUTS:
        price = pending.pop(0) if pending else best_price
        constant, slope = oracle(price)
        cuts.append((constant, slope))
        value = constant + float(slope @ price)
        if value > best:
            best, best_price = value, price
        if pending:
            continue
        ceiling, proposal, weights = _master(cuts, most, normal)
        if ceiling - best <= TOLERANCE * max(abs(best), TOLERANCE):
            break
        pending.append(proposal)
    return Ascent(price=best_price, value=best, gap=max(ceiling - best, 0.0), weights=weights)


def _master(cuts: list[tuple[float, Floats]], most: Floats, normal: Floats | None) -> tuple[float, Floats, Floats]:
    """The largest value that the cuts allow, the price there, and the multipliers of the cuts."""
    constants = np.array([constant for constant, _ in cuts])
    slopes = np.array([slope for _, slope in cuts]) * most  # prices as shares of the most they can be: well scaled
    scale = max(float(np.abs(constants).max()), float(np.abs(slopes).max()), TINY)
    found = optimiser().linprog(
        np.concatenate([[-1.0], np.zeros(len(most))]),
        A_ub=np.column_stack([np.ones(len(cuts)), -slopes / scale]),
        b_ub=constants / scale,
        A_eq=None if normal is None else np.concatenate([[0.0], normal * most])[None, :],
        b_eq=None if normal is None else np.ones(1),
        bounds=[(None, None), *((0.0, 1.0) for _ in most)],
        method="highs",
    )
    assert found.status == 0, found.message
    price = np.maximum(found.x[1:], 0.0) * most
    if normal is not None:
        price /= float(normal @ price)
    return -float(found.fun) * scale, price, -np.asarray(found.ineqlin.marginals)
