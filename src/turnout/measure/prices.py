"""Prices of the devices in a duel: given by the user, else from the dated card in the package, else none.

A device emulated in software has no price. A price older than `STALE_DAYS` is used and said to be stale.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.resources import files

from turnout.errors import ConfigError
from turnout.measure.artefact import PriceTag

STALE_DAYS = 548
"""Eighteen months: list prices of accelerators have fallen by a third in less."""


def parse(flags: Sequence[str]) -> dict[str, float]:
    """Read `DEVICE=USD_PER_HOUR` flags.

    Raises:
        ConfigError: a flag does not have that form, or its price is negative.
    """
    prices: dict[str, float] = {}
    for flag in flags:
        device, _, text = flag.partition("=")
        try:
            usd_per_h = float(text)
        except ValueError:
            usd_per_h = -1.0
        if not device or not 0.0 <= usd_per_h < float("inf"):
            raise ConfigError(f"--price {flag!r} is not DEVICE=DOLLARS_PER_HOUR, such as cpu=0.10")
        prices[device] = usd_per_h
    return prices


def tag(device: str, name: str, cores: int, given: Mapping[str, float], today: date) -> PriceTag | None:
    """The price of `device`, whose hardware is called `name`, on a host of `cores`; None when nothing is known.

    A CPU's price is for all of its `cores`: the card's per vCPU times those.
    """
    if device in given:
        return PriceTag(
            device=device,
            usd_per_h=given[device],
            cores=cores if device == "cpu" else 0,
            source="given by --price",
            date=today.isoformat(),
        )
    for row in tomllib.loads(files("turnout").joinpath("data/prices.toml").read_text())["price"]:
        if row["device"] == device and row["match"] in name:
            units = cores if device == "cpu" else 1
            return PriceTag(
                device=device,
                usd_per_h=row["usd_per_h"] / row["units"] * units,
                cores=cores if device == "cpu" else 0,
                source=f"{row['instance']} on demand, {units} of {row['units']} units ({row['source']})",
                date=row["date"],
                stale=(today - date.fromisoformat(row["date"])).days > STALE_DAYS,
            )
    return None


def usd_per_second(price: PriceTag, threads: int) -> float:
    """Dollars per busy second of one contender: a CPU variant bears the share of the cores that it uses."""
    share = min(threads, price.cores) / price.cores if price.cores and threads else 1.0
    return price.usd_per_h * share / 3600.0
