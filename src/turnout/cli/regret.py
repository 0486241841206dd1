"""`turnout regret` on the command line: parse, call, print."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from turnout.cli import flags
from turnout.cli.flags import Many, Switch
from turnout.cli.terminal import answer, progress
from turnout.errors import ConfigError


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
    from turnout import regret as verb
    from turnout.regret.text import show

    traffic, own = _asked(log, runs, slo_ms, attainment)
    most = flags.counts("--max-replicas", runs.max_replicas)
    with progress() as told:
        found = verb.run(traffic, own, now=datetime.now(UTC), most=most, progress=told)
    answer(found, show, json=json, written=verb.save(found, out) if out else [])


def _asked(log: LogFlags, runs: FleetFlags, slo_ms: float | None, attainment: float | None) -> Any:
    """The traffic and what serves it, from what the flags name."""
    from turnout.regret import own, traffic, turnout_log
    from turnout.traces import access

    objective = own.Objective(**flags.objective(slo_ms, attainment))
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

    patterns = dict(flags.pairs("--backend", runs.backend))
    prices = flags.prices(runs.price)
    files = [text for text in runs.fleet if text.endswith(".toml")]
    if files:
        if len(runs.fleet) > 1 or runs.published or prices:
            raise ConfigError("--fleet FILE says all of what is run: leave out --published, --price and other --fleet")
        return own.from_config(Path(files[0]), table, objective, patterns)
    said = own.Said(counts=flags.counts("--fleet", runs.fleet), prices=prices, patterns=patterns)
    if runs.published:
        return own.from_published(runs.published, said, table, objective)
    if not prices:
        raise ConfigError(
            "say what you run: --fleet FLEET.toml, --published MODEL --fleet INSTANCE=N,…, or --price "
            f"POOL=DOLLARS_PER_HOUR for each backend in the log ({', '.join(table.backends[:8]) or 'which has none'}); "
            "see docs/regret.md"
        )
    return own.from_log(said, table, objective)
