"""Each policy's parameters, chosen on the training trace alone, by the same procedure for all.

Parameters are tuned one after the other, in the order of the policy's grid: of the values, the one with the most
requests met at a rate just above the highest that the policy holds so far; where there are several, then once more at
the rate that this gives.
"""

from __future__ import annotations

from typing import Any

import baselines
from msgspec import Struct
from msgspec.structs import replace

from study.runs import PRECISION, Run, highest_rate, simulated
from study.setting import TRAIN_SEED

PRESS = 1.02
"""Candidates are compared at so many times the highest rate held, where they differ."""

COARSE = 0.02
"""Precision of a rate while tuning."""

ROUNDS = 2
"""Of all parameters, where there are several."""


class Tuned(Struct, frozen=True, kw_only=True):
    """What was chosen; `rate_per_s` is the highest that it held on the training trace, to begin a search from.

    `precision` is that of the search.
    """

    params: dict[str, Any]
    rate_per_s: float
    precision: float = PRECISION


def tuned(run: Run, count: int) -> Tuned:
    """The best parameters for `run`'s policy, model, regime and fleet; `count` requests of the training trace."""
    train = replace(run, seed=TRAIN_SEED, count=count)
    grid = baselines.grid(run.policy)
    if not run.regime.merge:
        grid = {name: values for name, values in grid.items() if name not in {"share", "merge"}}
    start = highest_rate(train, COARSE) or run.rate_per_s
    for _ in range(min(ROUNDS, len(grid))):
        for name, values in grid.items():
            pressed = replace(train, rate_per_s=PRESS * start)
            runs = [replace(pressed, params={**train.params, name: value}) for value in values]
            train = max(runs, key=lambda r: simulated(r).met)
        start = highest_rate(replace(train, rate_per_s=start), COARSE) or start
    return Tuned(params=train.params, rate_per_s=start)
