"""Slow service that profiles have too little of, as flags name it: noise of every batch, and slow spells of a pool.

lognormal=0.2        log-normal noise of mean 1; the deviation of its logarithm
two-state=4,30,2     four times as slow in spells of 2 seconds on average, 30 seconds apart on average
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from turnout.errors import ConfigError
from turnout.simulate.draws import Draw, key, lognormal, two_state

FORMS = "lognormal=SIGMA, such as lognormal=0.2; two-state=FACTOR,FAST_S,SLOW_S, such as two-state=4,30,2"
"""For messages."""

_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_LOGNORMAL = re.compile(f"lognormal={_NUMBER}")
_TWO_STATE = re.compile(f"two-state={_NUMBER},{_NUMBER},{_NUMBER}")


class LogNormalTail(Struct, frozen=True, kw_only=True, tag="lognormal"):
    """Noise of every batch."""

    sigma: float


class TwoStateTail(Struct, frozen=True, kw_only=True, tag="two-state"):
    """Slow spells of a whole pool; each pool has its own."""

    factor: float
    fast_s: float
    slow_s: float


Tail = LogNormalTail | TwoStateTail


def parse(text: str) -> Tail:
    """One tail from its text.

    Raises:
        ConfigError: it has none of the forms, or a spell of no length.
    """
    noise, spells = _LOGNORMAL.fullmatch(text), _TWO_STATE.fullmatch(text)
    if noise is not None and float(noise[1]) <= 5.0:
        return LogNormalTail(sigma=float(noise[1]))
    if spells is not None:
        factor, fast_s, slow_s = map(float, spells.groups())
        if factor > 0.0 and fast_s > 0.0 and slow_s > 0.0:
            return TwoStateTail(factor=factor, fast_s=fast_s, slow_s=slow_s)
    raise ConfigError(f"--tail {text!r} is none of: {FORMS}; numbers are above 0, and sigma is at most 5")


def text(tail: Tail) -> str:
    """The tail as `parse` reads it."""
    if isinstance(tail, LogNormalTail):
        return f"lognormal={tail.sigma:g}"
    return f"two-state={tail.factor:g},{tail.fast_s:g},{tail.slow_s:g}"


def with_tails(draw: Draw, tails: Sequence[Tail], *, seed: int, pool: int) -> Draw:
    """`draw` of a model on the pool of that number in the fleet, with all tails."""
    for number, tail in enumerate(tails):
        if isinstance(tail, LogNormalTail):
            draw = lognormal(draw, tail.sigma)
        else:
            draw = two_state(draw, tail.factor, tail.fast_s, tail.slow_s, key(seed, number, pool))
    return draw
