"""Values of flags that several verbs read alike: pairs, numbers, objectives, TOML.

Every function raises `ConfigError` where the text is not what the flag takes; the message has both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf
from typing import Annotated, Any

from cyclopts import Parameter

from turnout.errors import ConfigError

Many = Annotated[tuple[str, ...], Parameter(negative=())]
"""A flag that may be repeated."""

Switch = Annotated[bool, Parameter(negative=())]
"""A flag without a value, off unless it is given."""


def pairs(flag: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """NAME=VALUE,… of a flag that may be repeated."""
    found = []
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        name, _, value = text.partition("=")
        if not name or not value:
            raise ConfigError(f"{flag} {text!r} is not NAME=VALUE")
        found.append((name, value))
    return found


def counts(flag: str, texts: Sequence[str]) -> dict[str, int]:
    """POOL=REPLICAS,… of a flag that may be repeated."""
    found = {}
    for name, text in pairs(flag, texts):
        if not re.fullmatch("[0-9]{1,4}", text):
            raise ConfigError(f"{flag}: {text!r} is not a number of replicas")
        found[name] = int(text)
    return found


def prices(texts: Sequence[str]) -> dict[str, float]:
    """POOL=DOLLARS_PER_HOUR,… of `--price`."""
    return {name: amount("--price", text, "an amount in dollars an hour") for name, text in pairs("--price", texts)}


def amount(flag: str, text: str, what: str) -> float:
    """A number that is not negative; `what` it is to be, for the message."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?|\.[0-9]+", text):
        raise ConfigError(f"{flag}: {text!r} is not {what}, such as 0.526")
    return float(text)


def objective(slo_ms: float | None, attainment: float | None) -> dict[str, float]:
    """Those that were given of `deadline_s` (`--slo-ms`) and `attainment`."""
    if slo_ms is not None and not 0.0 < slo_ms < inf:
        raise ConfigError(f"--slo-ms {slo_ms:g} is not positive and finite")
    if attainment is not None and not 0.0 < attainment <= 1.0:
        raise ConfigError(f"--attainment {attainment:g} is not above 0 and at most 1")
    asked = {"deadline_s": None if slo_ms is None else slo_ms / 1e3, "attainment": attainment}
    return {name: value for name, value in asked.items() if value is not None}


def toml(flag: str, text: str) -> dict[str, Any]:
    """The lines of a TOML table."""
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{flag} {text!r} is not TOML, such as 'items = 64': {error}") from None
