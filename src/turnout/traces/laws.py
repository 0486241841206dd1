"""Laws that traffic is drawn from where no trace was recorded: when requests arrive, and how many items they have.

A law is a small frozen value. An arrival law draws times at a mean rate, a size law draws whole numbers of items; both
take a generator, so that the same seed gives the same traffic. `parse_arrivals` and `parse_sizes` read a law from the
text of a flag, and `text` writes it again. Rules: nothing here reads a file or knows a fleet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import log, pi, tau
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.random import Generator

from turnout.core.trace import Floats, Ints, Trace, make
from turnout.errors import ConfigError

ARRIVALS = "poisson, gamma:cv=13.2, diurnal:peak=2,period_s=3600"
"""One example of each arrival law, for messages."""

SIZES = "kairos, deeprecsys, fixed:32, uniform:1-64, normal:165,16, lognormal:5.1,0.2,100-200, choice:1=0.9,64=0.1"
"""One example of each size law, for messages."""

MOST_ITEMS = 1_000_000_000
"""Of one request: more is a slip of the finger."""

HALVINGS = 52
"""Of an interval, until it is as short as a float can tell."""


class ArrivalLaw(Protocol):
    """When requests arrive."""

    @property
    def text(self) -> str:
        """The law as `parse_arrivals` reads it."""

    def draw(self, count: int, rate_per_s: float, rng: Generator) -> Floats:
        """Times (count,) in seconds, ascending, at `rate_per_s` requests per second in the long run."""


class SizeLaw(Protocol):
    """How many items requests have."""

    @property
    def text(self) -> str:
        """The law as `parse_sizes` reads it."""

    def draw(self, count: int, rng: Generator) -> Ints:
        """Items (count,), each at least 1."""


# ---- arrivals --------------------------------------------------------------------------------------------------------


class Poisson(Struct, frozen=True, kw_only=True):
    """Independent requests: exponential gaps."""

    @property
    def text(self) -> str:
        """As a flag has it."""
        return "poisson"

    def draw(self, count: int, rate_per_s: float, rng: Generator) -> Floats:
        """See `ArrivalLaw`."""
        return np.cumsum(rng.exponential(1.0 / rate_per_s, count))


class Gamma(Struct, frozen=True, kw_only=True):
    """Independent gamma gaps with the coefficient of variation `cv`: bursts above 1, Poisson at 1, steadier below."""

    cv: float

    @property
    def text(self) -> str:
        """As a flag has it."""
        return f"gamma:cv={self.cv:g}"

    def draw(self, count: int, rate_per_s: float, rng: Generator) -> Floats:
        """See `ArrivalLaw`."""
        shape = 1.0 / self.cv**2
        return np.cumsum(rng.gamma(shape, 1.0 / (shape * rate_per_s), count))


class Diurnal(Struct, frozen=True, kw_only=True):
    """Day and night: Poisson with the rate 1 + (peak - 1)·sin(2πt / period) times the mean, `peak` from 1 to 2.

    Drawn by inverting the integral of the rate (Çinlar, Introduction to Stochastic Processes, 1975, section 4.7).
    """

    peak: float
    period_s: float

    @property
    def text(self) -> str:
        """As a flag has it."""
        return f"diurnal:peak={self.peak:g},period_s={self.period_s:g}"

    def draw(self, count: int, rate_per_s: float, rng: Generator) -> Floats:
        """See `ArrivalLaw`."""
        wanted_s = np.cumsum(rng.exponential(1.0 / rate_per_s, count))  # when each would come at the mean rate
        swing, turn = self.peak - 1.0, self.period_s / tau
        low, high = np.maximum(wanted_s - self.period_s / pi, 0.0), wanted_s.copy()
        for _ in range(HALVINGS):  # t + swing·turn·(1 - cos(t / turn)) is never less than t, and ascends
            middle = 0.5 * (low + high)
            early = middle + swing * turn * (1.0 - np.cos(middle / turn)) < wanted_s
            np.copyto(low, middle, where=early)
            np.copyto(high, middle, where=~early)
        return np.maximum.accumulate(high)


class Counts(Struct, frozen=True, kw_only=True):
    """Poisson with a rate in proportion to recorded counts, one for each second; after the last it begins again.

    `counts` are whole numbers of at least 0, not all 0; `source` says where they come from.
    """

    counts: tuple[int, ...]
    source: str

    @property
    def text(self) -> str:
        """As a flag has it."""
        return f"counts:{self.source}"

    def draw(self, count: int, rate_per_s: float, rng: Generator) -> Floats:
        """See `ArrivalLaw`."""
        seconds = len(self.counts)
        total = np.concatenate([[0.0], np.cumsum(np.array(self.counts, dtype=np.float64))])
        wanted = np.cumsum(rng.exponential(1.0, count)) * total[-1] / (rate_per_s * seconds)
        rounds, within = np.divmod(wanted, total[-1])
        steps = np.flatnonzero(np.diff(total, prepend=-1.0))  # where nothing arrives there is nothing to invert
        ends = np.append(steps[1:], seconds)
        at = np.searchsorted(total[steps], within, side="right") - 1
        at = np.minimum(at, len(steps) - 2)
        begin = np.maximum(steps[at], ends[at] - 1)  # of a run of empty seconds, the last one before the next arrivals
        share = (within - total[steps[at]]) / (total[steps[at + 1]] - total[steps[at]])
        return np.maximum.accumulate(rounds * seconds + begin + share)


# ---- sizes -----------------------------------------------------------------------------------------------------------


class Fixed(Struct, frozen=True, kw_only=True):
    """Every request has the same number of items."""

    items: int

    @property
    def text(self) -> str:
        """As a flag has it."""
        return f"fixed:{self.items}"

    def draw(self, count: int, rng: Generator) -> Ints:
        """See `SizeLaw`."""
        return np.full(count, self.items, dtype=np.int64)


class Uniform(Struct, frozen=True, kw_only=True):
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int

    @property
    def text(self) -> str:
        """As a flag has it."""
        return f"uniform:{self.low}-{self.high}"

    def draw(self, count: int, rng: Generator) -> Ints:
        """See `SizeLaw`."""
        return rng.integers(self.low, self.high + 1, count)


class Normal(Struct, frozen=True, kw_only=True):
    """Normal with `mean` and `deviation`, held to `low` and `high`.

    The default is DeepRecSys' candidates per query (Gupta et al., ISCA 2020): normal(165, 16), capped at 1024.
    """

    mean: float = 165.0
    deviation: float = 16.0
    low: int = 1
    high: int = 1024

    @property
    def text(self) -> str:
        """As a flag has it."""
        return f"normal:{self.mean:g},{self.deviation:g},{self.low}-{self.high}"

    def draw(self, count: int, rng: Generator) -> Ints:
        """See `SizeLaw`."""
        return _whole(np.rint(rng.normal(self.mean, self.deviation, count)), self.low, self.high)


class LogNormal(Struct, frozen=True, kw_only=True):
    """The exponential of a normal with mean `mu` and deviation `sigma`, held to `low` and `high`."""

    mu: float
    sigma: float
    low: int = 1
    high: int = MOST_ITEMS

    @property
    def text(self) -> str:
        """As a flag has it."""
        return f"lognormal:{self.mu:g},{self.sigma:g},{self.low}-{self.high}"

    def draw(self, count: int, rng: Generator) -> Ints:
        """See `SizeLaw`."""
        return _whole(rng.lognormal(self.mu, self.sigma, count), self.low, self.high)


class Weighted(Struct, frozen=True, kw_only=True):
    """One of `sizes`, with chances in proportion to `weights`."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def text(self) -> str:
        """As a flag has it."""
        pairs = zip(self.sizes, self.weights, strict=True)
        return "choice:" + ",".join(f"{size}={weight:g}" for size, weight in pairs)

    def draw(self, count: int, rng: Generator) -> Ints:
        """See `SizeLaw`."""
        weights = np.array(self.weights)
        return rng.choice(np.array(self.sizes, dtype=np.int64), count, p=weights / weights.sum())


class Kairos(Struct, frozen=True, kw_only=True):
    """The query sizes that Kairos replays (Li et al., HPDC 2023, `helper.py`).

    8 % uniform 1 to 99, 22 % uniform 200 to 599, 5 % uniform 600 to 999, the rest log-normal(5.1, 0.2) held to 100 to
    200.
    """

    @property
    def text(self) -> str:
        """As a flag has it."""
        return "kairos"

    def draw(self, count: int, rng: Generator) -> Ints:
        """See `SizeLaw`."""
        kind = rng.random(count)
        items = _whole(rng.lognormal(5.1, 0.2, count), 100, 200)
        for above, below, low, high in ((0.0, 0.08, 1, 99), (0.08, 0.30, 200, 599), (0.30, 0.35, 600, 999)):
            chosen = (kind >= above) & (kind < below)
            items[chosen] = rng.integers(low, high + 1, int(chosen.sum()))
        return items


def _whole(drawn: Floats, low: int, high: int) -> Ints:
    """Held to the range, and cut to whole numbers."""
    return np.clip(drawn, low, high).astype(np.int64)


# ---- a trace from laws -----------------------------------------------------------------------------------------------


def trace(
    arrivals: ArrivalLaw, sizes: SizeLaw, *, count: int, rate_per_s: float, seed: int, model: str = "model"
) -> Trace:
    """So many requests of one model from two laws; arrivals and sizes have generators of their own from `seed`."""
    when, how_large = np.random.default_rng(seed).spawn(2)
    return make(
        arrivals.draw(count, rate_per_s, when),
        sizes.draw(count, how_large),
        f"{arrivals.text} at {rate_per_s:g} requests/s, sizes {sizes.text}, seed {seed}",
        model,
    )


# ---- texts -----------------------------------------------------------------------------------------------------------


def parse_arrivals(text: str) -> ArrivalLaw:
    """An arrival law from its text, such as "gamma:cv=13.2".

    Raises:
        ConfigError: there is no such law, or its parameters are wrong.
    """
    name, _, said = text.partition(":")
    if name == "poisson" and not said:
        return Poisson()
    if name == "gamma":
        cv = _named(text, said, {"cv": None})["cv"]
        _need(text, 0.01 <= cv <= 1000.0, "cv is 0.01 to 1000")
        return Gamma(cv=cv)
    if name == "diurnal":
        given = _named(text, said, {"peak": 2.0, "period_s": 86_400.0})
        _need(text, 1.0 <= given["peak"] <= 2.0, "peak is the peak's rate over the mean's, 1 to 2")
        _need(text, given["period_s"] > 0.0, "period_s is above 0")
        return Diurnal(peak=given["peak"], period_s=given["period_s"])
    raise ConfigError(f"{text!r} is not an arrival law; such are: {ARRIVALS}")


def parse_sizes(text: str) -> SizeLaw:
    """A size law from its text, such as "uniform:1-64".

    Raises:
        ConfigError: there is no such law, or its parameters are wrong.
    """
    name, _, said = text.partition(":")
    reader = _SIZES.get(name)
    if reader is None or (name in _BARE and said):
        raise ConfigError(f"{text!r} is not a size law; such are: {SIZES}")
    return reader(text, said)


def _fixed(text: str, said: str) -> SizeLaw:
    return Fixed(items=_size(text, said))


def _uniform(text: str, said: str) -> SizeLaw:
    low, high = _range(text, said)
    return Uniform(low=low, high=high)


def _normal(text: str, said: str) -> SizeLaw:
    (mean, deviation), low, high = _two_and_range(text, said, 1, 1024)
    _need(text, deviation >= 0.0, "the deviation is not negative")
    return Normal(mean=mean, deviation=deviation, low=low, high=high)


def _lognormal(text: str, said: str) -> SizeLaw:
    (mu, sigma), low, high = _two_and_range(text, said, 1, MOST_ITEMS)
    _need(text, sigma >= 0.0, "sigma is not negative")
    _need(text, abs(mu) + 10.0 * sigma < log(1e300), "the sizes would have no bound")
    return LogNormal(mu=mu, sigma=sigma, low=low, high=high)


def _choice(text: str, said: str) -> SizeLaw:
    pairs = [part.partition("=") for part in said.split(",")]
    sizes = tuple(_size(text, size) for size, _, _ in pairs)
    weights = tuple(_number(text, weight) for _, _, weight in pairs)
    _need(text, all(weight >= 0.0 for weight in weights) and sum(weights) > 0.0, "weights are not negative, nor all 0")
    return Weighted(sizes=sizes, weights=weights)


_BARE = frozenset({"kairos", "deeprecsys"})

_SIZES: Mapping[str, Callable[[str, str], SizeLaw]] = {
    "kairos": lambda _text, _said: Kairos(),
    "deeprecsys": lambda _text, _said: Normal(),
    "fixed": _fixed,
    "uniform": _uniform,
    "normal": _normal,
    "lognormal": _lognormal,
    "choice": _choice,
}


def _named(text: str, said: str, known: Mapping[str, float | None]) -> dict[str, float]:
    """NAME=VALUE,… with defaults; None where a value is demanded."""
    given: dict[str, float] = {}
    for part in filter(None, said.split(",")):
        name, _, value = part.partition("=")
        if name not in known or name in given:
            raise ConfigError(f"{text!r}: the parameters of this law are {', '.join(known)}, each as NAME=NUMBER")
        given[name] = _number(text, value)
    found = {name: given.get(name, default) for name, default in known.items()}
    absent = [name for name, value in found.items() if value is None]
    if absent:
        raise ConfigError(f"{text!r} needs {absent[0]}=NUMBER")
    return {name: value for name, value in found.items() if value is not None}


def _two_and_range(text: str, said: str, low: int, high: int) -> tuple[tuple[float, float], int, int]:
    """NUMBER,NUMBER[,LOW-HIGH]."""
    parts = said.split(",")
    if len(parts) not in {2, 3}:
        raise ConfigError(f"{text!r} is not two numbers and perhaps a range; size laws are: {SIZES}")
    if len(parts) == 3:
        low, high = _range(text, parts[2])
    return (_number(text, parts[0]), _number(text, parts[1])), low, high


def _range(text: str, said: str) -> tuple[int, int]:
    """LOW-HIGH."""
    low, dash, high = said.partition("-")
    if not dash:
        raise ConfigError(f"{text!r}: {said!r} is not a range such as 1-64")
    first, last = _size(text, low), _size(text, high)
    _need(text, first <= last, f"the range {said} is empty")
    return first, last


def _size(text: str, said: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", said) or not 1 <= int(said) <= MOST_ITEMS:
        raise ConfigError(f"{text!r}: {said!r} is not a number of items, which is at least 1")
    return int(said)


def _number(text: str, said: str) -> float:
    if not re.fullmatch(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?", said):
        raise ConfigError(f"{text!r}: {said!r} is not a number")
    return float(said)


def _need(text: str, holds: bool, said: str) -> None:  # noqa: FBT001  (a condition reads best in place)
    if not holds:
        raise ConfigError(f"{text!r}: {said}")
