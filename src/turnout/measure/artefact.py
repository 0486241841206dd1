"""What a duel leaves behind: frozen values, stored by `store`, viewed by `html` and `text`. No behaviour.

Everything a person is shown comes from here, so that a report can be made again from the file alone.
Labels name a contender ("cpu fp32 threads=2", "webgpu fp32 (software)") and tie its profile to comparisons and stops.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from turnout.core.profile import Profile

Criterion = Literal["seconds", "usd"]
CrossoverState = Literal["always", "never", "at", "too_close", "not_priced", "not_measured"]


class Entry(Struct, frozen=True, kw_only=True):
    """One contender: its label and its profile. `threads` (0: not known) is its share of a CPU's price."""

    label: str
    threads: int
    profile: Profile


class Refusal(Struct, frozen=True, kw_only=True):
    """A contender that was not timed, or not at one batch size, and why."""

    label: str
    reason: str
    items: int | None = None


class Stop(Struct, frozen=True, kw_only=True):
    """Why the duel stopped at a batch size: the order "settled", was too "noisy", or the "budget" ran out first."""

    items: int
    rounds: int
    why: Literal["settled", "noisy", "budget", "alone"]


class PriceTag(Struct, frozen=True, kw_only=True):
    """Dollars per hour of a whole machine with this device, and where the figure comes from.

    `cores` is how many threads share it (0: the device is one unit, whatever its host's cores).
    """

    device: str
    usd_per_h: float
    cores: int
    source: str
    date: str
    stale: bool = False


class Interval(Struct, frozen=True, kw_only=True):
    """A median with its 95 % bootstrap interval."""

    mid: float
    low: float
    high: float


class Comparison(Struct, frozen=True, kw_only=True):
    """Two contenders at one batch size. `ratio` is rival / incumbent: below 1 the rival is better.

    `winner` is a label, or "" when the interval holds 1: too close to call.
    """

    items: int
    criterion: Criterion
    incumbent: str
    rival: str
    ratio: Interval
    winner: str


class Crossover(Struct, frozen=True, kw_only=True):
    """From which batch size on a device beats the CPU; `items`, `low` and `high` only in the state "at"."""

    device: str
    criterion: Criterion
    state: CrossoverState
    text: str
    items: float | None = None
    low: float | None = None
    high: float | None = None


class Share(Struct, frozen=True, kw_only=True):
    """The model's share of the whole request path at one batch size, and so the most that any device could gain.

    `most_gain` is Amdahl's bound 1 / (1 - share); None where nothing but the model was timed.
    """

    items: int
    pre_s: float
    model_s: float
    post_s: float
    model_share: Interval
    most_gain: float | None


class Branching(Struct, frozen=True, kw_only=True):
    """Share of the time in work that branches or chases indices, which accelerators do badly.

    `operators` has the share of each such operator or function; `tensor` the largest of the others, for contrast.
    """

    share: float
    operators: dict[str, float]
    tensor: dict[str, float]
    source: str


class Row(Struct, frozen=True, kw_only=True):
    """One contender at one batch size, as tables and charts show it; `usd_per_million` only where it has a price."""

    label: str
    items: int
    seconds: Interval
    usd_per_million: Interval | None
    routable: bool


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer in words and figures; computed by `verdict.judge` from the profiles alone."""

    headline: str
    rows: tuple[Row, ...]
    comparisons: tuple[Comparison, ...]
    crossovers: tuple[Crossover, ...]
    path: tuple[Share, ...]
    bottleneck: str
    warnings: tuple[str, ...]


class Duel(Struct, frozen=True, kw_only=True):
    """A whole duel. `path` has seconds of the request path's ends per batch size: "pre" and "post"."""

    model: str
    model_digest: str
    inputs: dict[str, str]
    seed: int
    date: str
    hardware: str
    reference: str
    entries: tuple[Entry, ...]
    refusals: tuple[Refusal, ...]
    stops: tuple[Stop, ...]
    prices: tuple[PriceTag, ...]
    path: dict[str, dict[int, tuple[float, ...]]]
    branching: Branching | None
    verdict: Verdict

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of all contenders, the reference first."""
        return tuple(entry.profile for entry in self.entries)
