"""What `turnout regret` leaves behind: frozen values, stored by `store`, printed by `text` and `html`. No behaviour.

Every line says where its figures come from: "measured" is counted from the log, "modelled" is simulated, "bound" is
proven for the modelled service times. Dollars are hourly prices times the hours of the part of the log that is judged.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

HOPELESS = 0.25
"""Share of misses with which a policy is not worth a longer run."""

Origin = Literal["measured", "modelled", "bound"]


class Line(Struct, frozen=True, kw_only=True):
    """One way to serve the judged part. `fleet` is replicas by pool; `meets` is that the objective is met.

    `usd_per_million_met` is the dollars of the fleet, idle time included, per million requests in time; None if none
    was. Of a bound it is the least that any fleet can come to.
    """

    label: str
    origin: Origin
    fleet: dict[str, int]
    policy: str
    params: dict[str, Any]
    attainment: float | None
    usd_per_h: float
    usd_per_million_met: float | None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    meets: bool = True


class Pool(Struct, frozen=True, kw_only=True):
    """One kind of machine. `fit_error` is that of a latency model fitted to this log, on rows it has not seen.

    `fit_rows` rows were fitted to; `largest` is the largest request that they had. All None if nothing was fitted.
    """

    name: str
    replicas: int
    usd_per_h: float
    most: int
    fit_error: float | None = None
    fit_rows: int | None = None
    largest: int | None = None


class Calibration(Struct, frozen=True, kw_only=True):
    """The same fleet, run as they run it, in the simulation, against what the log saw, over the judged part.

    `how` says which way to run was taken for theirs. `trusted` is that attainment, p50 and p99 are all close.
    """

    how: str
    observed_attainment: float
    modelled_attainment: float
    observed_p50_s: float | None
    modelled_p50_s: float | None
    observed_p99_s: float | None
    modelled_p99_s: float | None
    trusted: bool


class Tried(Struct, frozen=True, kw_only=True):
    """A policy with its best parameters on their fleet: attainment on the part for choosing, and on the judged part.

    None where the run was ended because more than `HOPELESS` of the requests were missed.
    """

    policy: str
    params: dict[str, Any]
    chosen_on: float | None
    judged_on: float | None


class Split(Struct, frozen=True, kw_only=True):
    """What lies between theirs and the bound, in dollars per million requests in time; the four add up.

    `model_error` is theirs as measured less theirs as modelled; it is no regret. None where nothing was in time.
    `fleet_usd_per_h` and `gap_usd_per_h` are the same in dollars per hour, where the policy changes nothing.
    """

    model_error: float | None
    policy_regret: float | None
    fleet_regret: float | None
    gap: float | None
    policy_attainment: float
    fleet_usd_per_h: float | None
    gap_usd_per_h: float | None


class Series(Struct, frozen=True, kw_only=True):
    """Attainment over the judged part: `at_s` are the middles of equal spans, None where nothing arrived."""

    label: str
    origin: Origin
    at_s: tuple[float, ...]
    attainment: tuple[float | None, ...]


class Curve(Struct, frozen=True, kw_only=True):
    """Predicted mean seconds of one request alone, by its size, of one model on one pool."""

    pool: str
    model: str
    items: tuple[int, ...]
    seconds: tuple[float, ...]


class Crossover(Struct, frozen=True, kw_only=True):
    """The size from which on `pool` is faster, or cheaper per request, than `than`; None if it never is."""

    model: str
    pool: str
    than: str
    faster_from: int | None
    cheaper_from: int | None


class Source(Struct, frozen=True, kw_only=True):
    """The log. `window` are the first and the last row that were simulated, of `rows`; `split_s` ends the first half.

    Attainment and dollars here are of the whole log, and seconds count from its first arrival.
    """

    name: str
    format: str
    time_is: str
    columns: dict[str, str]
    rows: int
    skipped: int
    duration_s: float
    attainment: float
    usd: float
    window: tuple[int, int]
    split_s: float


class Regret(Struct, frozen=True, kw_only=True):
    """The whole answer. `theirs` is measured; `same` is theirs as modelled; deadlines are seconds by model.

    `best_fleet` is None if no fleet within `most` replicas per pool meets the objective. `hindsight` is that it was
    chosen knowing the judged part, since what the first part chose did not meet there.
    """

    date: str
    version: str
    source: Source
    service_times: str
    deadlines_s: dict[str, float]
    attainment: float
    pools: tuple[Pool, ...]
    calibration: Calibration
    theirs: Line
    same: Line
    best_policy: Line
    best_fleet: Line | None
    bound: Line
    split: Split
    tried: tuple[Tried, ...]
    series: tuple[Series, ...]
    curves: tuple[Curve, ...]
    crossovers: tuple[Crossover, ...]
    hindsight: bool = False
    bound_is: str = ""
    fleets_tried: int = 0
    notes: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()
