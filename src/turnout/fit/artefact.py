"""What `turnout fit` leaves behind: frozen values, stored by `store`, printed by `text`. No behaviour.

Errors and coverage are of recorded batches that the refit has not seen. Attainment and dollars are modelled: the
recorded arrivals through the simulator, with service times drawn from what the log recorded.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Way = Literal["log", "scaled"]


class Prediction(Struct, frozen=True, kw_only=True):
    """How good one latency model was on held-out batches.

    `error` is the mean of |ln(taken / predicted mean)|; `bias` is all seconds taken over all seconds predicted, less 1;
    `coverage_p99` is the share of batches that took at most the model's own p99, without any live correction.
    `form` and the knots (items, seconds) are the model itself.
    """

    error: float
    bias: float
    coverage_p99: float
    form: str
    knot_items: tuple[float, ...]
    knot_s: tuple[float, ...]


class Refit(Struct, frozen=True, kw_only=True):
    """One model in one pool: the latency model in the log's head beside the one fitted to the log's first part.

    `way` is how the new one came about: "log" from recorded times alone where there are any, "scaled" from the old
    model times what the log says of it. `gain` is the old error less the new, averaged over held-out batches, and
    `gain_error` its standard error. `live_coverage_p99` is the share of held-out batches within the p99 that the
    running router predicted for them, live corrections included. Where `why` says that nothing could be fitted, `new`
    is None. `better` is that the new one is to be used.
    """

    pool: str
    model: str
    batches: int
    held_out: int
    old: Prediction | None = None
    new: Prediction | None = None
    way: Way | None = None
    gain: float = 0.0
    gain_error: float = 0.0
    live_coverage_p99: float | None = None
    better: bool = False
    why: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """What held-out traffic comes to, modelled; means over `seeds` runs. Dollars are the bill of all pools."""

    attainment: float
    usd: float
    usd_per_million_met: float | None


class Trial(Struct, frozen=True, kw_only=True):
    """One set of parameters on the part of the log that is for fitting, modelled."""

    params: dict[str, Any]
    attainment: float
    usd_per_million_met: float | None


class Tuning(Struct, frozen=True, kw_only=True):
    """The policy's parameters: those of the log, those that did best on its first part, and all that were tried."""

    policy: str
    old: dict[str, Any]
    best: dict[str, Any]
    trials: tuple[Trial, ...]


class Change(Struct, frozen=True, kw_only=True):
    """What would have changed on the held-out traffic, all modelled.

    `as_recorded` keeps the log's latency models and parameters, `refitted` has the new models where they are better,
    `tuned` also the best parameters. `models_do_harm` is that the new models, though they predict better, meet fewer
    deadlines; they are not recommended then, and `tuned` is without them. `params_help` is that the best parameters
    are better in every run. `recommended` is what is left of both; under it, `elsewhere` of `requests` would have gone
    to another pool than as recorded.
    """

    requests: int
    elsewhere: int
    seeds: int
    as_recorded: Outcome
    refitted: Outcome
    tuned: Outcome
    recommended: Outcome
    models_do_harm: bool = False
    params_help: bool = False


class Fitted(Struct, frozen=True, kw_only=True):
    """The whole answer. `use_models` (pool, model) and `use_params` are the recommendation; both empty is "keep".

    `split_s` is the second of the log at which the part for fitting ends, `first_s` and `last_s` its first and last
    arrival. `origin` is what drove the recorded router. `truncated` is that the log was cut off, and read up to there.
    """

    log: str
    origin: str
    date: str
    version: str
    first_s: float
    split_s: float
    last_s: float
    requests: int
    models: tuple[Refit, ...]
    tuning: Tuning
    change: Change
    use_models: tuple[tuple[str, str], ...]
    use_params: dict[str, Any] | None
    truncated: bool = False
    verdict: tuple[str, ...] = ()
