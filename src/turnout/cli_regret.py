"""`turnout regret` on the command line: parse, call, print."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from turnout.errors import ConfigError

Many = Annotated[tuple[str, ...], Parameter(negative=())]
Switch = Annotated[bool, Parameter(negative=())]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogFlags:
    """The log, and how it is to be read."""

    from_: Annotated[Path, Parameter(name="--from")]
    """An access log (JSON lines, CSV, Parquet, nginx, Envoy, OTLP JSON), or a log of `turnout serve`."""
    map: Many = ()
    """ROLE=COLUMN[:UNIT],… for time, latency, items, status, backend, service, model; such as latency=dur:ms."""
    time_is: Literal["start", "end"] | None = None
    """When a row's time was taken; the default is the format's."""
    skip_bad: Switch = False
    """Leave out rows that cannot be read, and say how many."""
    ignore_truncated_tail: Switch = False
    """Read a Turnout log that a crash cut off, without its last event."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FleetFlags:
    """What is run now. Without --fleet FILE and --published it is fitted to the log."""

    fleet: Many = ()
    """A TOML config with [[models]] and [[pools]]; or POOL=REPLICAS,… beside --published or --price."""
    published: str = ""
    """Model of the published tables in the package, such as rm2, on the instances of --fleet."""
    price: Many = ()
    """POOL=DOLLARS_PER_HOUR of one replica."""
    backend: Many = ()
    """POOL=PATTERN: which backends of the log belong to a pool, such as 'gpu=10.0.1.*'."""
    max_replicas: Many = ()
    """POOL=N,…: the most replicas that the best fleet may have."""


def register(app: App) -> None:
    """Add the command to `app`."""
    app.command(regret)


def regret(
    *,
    log: LogFlags,
    runs: FleetFlags = FleetFlags(),
    slo_ms: float | None = None,
    attainment: float | None = None,
    out: Path | None = None,
    json: Switch = False,
) -> None:
    """What the way you serve costs against the best possible, from your access log alone. Nothing is deployed.

    Args:
        log: The log.
        runs: What you run.
        slo_ms: Milliseconds within which a request is to be answered, in place of the config's.
        attainment: Share of all requests that must be, in place of the config's; 0.99.
        out: Folder for regret.json and report.html.
        json: Print one JSON document.
    """
    from rich.console import Console

    from turnout import regret as verb
    from turnout import store
    from turnout.regret.text import show

    traffic, own = _asked(log, runs, slo_ms, attainment)
    most = {name: _count("--max-replicas", text) for name, text in _pairs("--max-replicas", runs.max_replicas)}
    found = verb.run(traffic, own, now=datetime.now(UTC), most=most)
    written = verb.save(found, out) if out else []
    if json:
        sys.stdout.write(store.encode(found).decode())
    else:
        show(found, Console(width=None if sys.stdout.isatty() else 140))
    for path in written:
        sys.stderr.write(f"Wrote {path}\n")


def _asked(log: LogFlags, runs: FleetFlags, slo_ms: float | None, attainment: float | None) -> Any:
    """The traffic and what serves it, from what the flags name."""
    from turnout.regret import own, traffic, turnout_log
    from turnout.traces import access

    if slo_ms is not None and slo_ms <= 0.0:
        raise ConfigError(f"--slo-ms {slo_ms:g} is not positive")
    if attainment is not None and not 0.0 < attainment <= 1.0:
        raise ConfigError(f"--attainment {attainment:g} is not above 0 and at most 1")
    objective = own.Objective(deadline_s=None if slo_ms is None else slo_ms / 1e3, attainment=attainment)
    if turnout_log.is_turnout_log(log.from_):
        if runs.fleet or runs.published or runs.price:
            raise ConfigError("a log of turnout serve says what was run: leave out --fleet, --published and --price")
        return turnout_log.read(log.from_, objective, ignore_truncated_tail=log.ignore_truncated_tail)
    table = access.read(log.from_, access.parse_map(log.map), time_is=log.time_is, skip_bad=log.skip_bad)
    served = _served(runs, table, objective)
    return traffic.of(table, served.head.models, served.max_parts), served


def _served(runs: FleetFlags, table: Any, objective: Any) -> Any:
    """What is run: a config, published tables, or what the log itself shows."""
    from turnout.regret import own

    patterns = dict(_pairs("--backend", runs.backend))
    prices = {name: _usd(text) for name, text in _pairs("--price", runs.price)}
    files = [text for text in runs.fleet if text.endswith(".toml")]
    if files:
        if len(runs.fleet) > 1 or runs.published or prices:
            raise ConfigError("--fleet FILE says all of what is run: leave out --published, --price and other --fleet")
        return own.from_config(Path(files[0]), table, objective, patterns)
    counts = {name: _count("--fleet", text) for name, text in _pairs("--fleet", runs.fleet)}
    said = own.Said(counts=counts, prices=prices, patterns=patterns)
    if runs.published:
        return own.from_published(runs.published, said, table, objective)
    if not prices:
        raise ConfigError(
            "say what you run: --fleet FLEET.toml, --published MODEL --fleet INSTANCE=N,…, or --price "
            f"POOL=DOLLARS_PER_HOUR for each backend in the log ({', '.join(table.backends[:8]) or 'which has none'}); "
            "see docs/regret.md"
        )
    return own.from_log(said, table, objective)


def _pairs(flag: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """NAME=VALUE,… of a flag that may be repeated."""
    found = []
    for text in (part.strip() for whole in texts for part in whole.split(",")):
        name, _, value = text.partition("=")
        if not name or not value:
            raise ConfigError(f"{flag} {text!r} is not NAME=VALUE")
        found.append((name, value))
    return found


def _count(flag: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,4}", text):
        raise ConfigError(f"{flag}: {text!r} is not a number of replicas")
    return int(text)


def _usd(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?|\.[0-9]+", text):
        raise ConfigError(f"--price: {text!r} is not an amount in dollars an hour, such as 0.526")
    return float(text)
