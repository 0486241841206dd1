"""What the way you serve costs against the best possible: "should I put a router here?", answered from a log alone.

The busiest part of the log is cut in two. On the first half the policy, its parameters and the fleet are chosen; on the
second everything is judged: theirs as measured and as modelled, the best policy on their fleet, the best fleet, and a
bound that no fleet and no policy can beat. What lies between them is the policy regret, the fleet regret and the gap.

It deploys nothing and changes nothing. Rules: every figure is measured, modelled or a bound, and says which; the
model is held against the log before anybody is to believe it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

import turnout
from turnout import store
from turnout.regret import html, judge, plots
from turnout.regret.artefact import Pool, Regret, Source
from turnout.regret.idle import check_idle
from turnout.regret.own import Own
from turnout.regret.traffic import Traffic, busiest
from turnout.regret.words import verdict

__all__ = ["Own", "Regret", "Traffic", "run", "save"]

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share that is done."""


def run(
    traffic: Traffic, own: Own, *, now: datetime, most: dict[str, int] | None = None, progress: Progress | None = None
) -> Regret:
    """Judge `own`, which served `traffic`, against what would have been best; `now` dates the result.

    `most` limits the replicas of a pool that a fleet may have; the default is twice theirs, or half as many again as
    could do everything, whichever is more.

    Raises:
        ArtefactError: there are too few requests to judge by.
        CheckFailedError: the machines cannot meet the objective even with nothing else to do.
    """
    told = progress or (lambda _what, _share: None)
    first, last = busiest(traffic)
    window = traffic.part(first, last)
    check_idle(window, own)
    half = len(window) // 2
    judged = judge.judge(window.part(0, half), window.part(half, len(window)), own, most or {}, told)
    told("writing it down", 1.0)
    later = window.part(half, len(window))
    regret = Regret(
        date=now.isoformat(timespec="seconds"),
        version=turnout.__version__,
        source=_source(traffic, own, (first, last), float(later.log.at_s[0])),
        service_times=own.service_times,
        deadlines_s={w.name: w.slo.deadline_s for w in own.head.models},
        attainment=own.attainment,
        pools=tuple(_pool(own, i, judged.most[i]) for i in range(len(own.pools))),
        calibration=judged.calibration,
        theirs=judged.theirs,
        same=judged.same,
        best_policy=judged.best_policy,
        best_fleet=judged.best_fleet,
        bound=judged.bound,
        split=judge.split(judged),
        tried=judged.tried,
        series=judged.series,
        curves=plots.curves(own, window),
        crossovers=plots.crossovers(own, window),
        hindsight=judged.hindsight,
        bound_is=judged.bound_is,
        fleets_tried=judged.fleets_tried,
        notes=(*traffic.log.notes, *own.notes, *judged.notes, *_window_note(traffic, window)),
    )
    return _spoken(regret)


def save(regret: Regret, out: Path) -> list[Path]:
    """Write `regret.json`, and `report.html` where plotly is installed, under `out`; returns the paths.

    Raises:
        ArtefactError: the folder cannot be written.
    """
    return store.save_reported(regret, out, "regret.json", html.render)


def _spoken(regret: Regret) -> Regret:
    return replace(regret, verdict=verdict(regret))


def _source(traffic: Traffic, own: Own, window: tuple[int, int], split_s: float) -> Source:
    log = traffic.log
    usd_per_s = sum(pool.replicas * pool.price.usd_per_s for pool in own.pools)
    return Source(
        name=log.source,
        format=log.format,
        time_is=log.time_is,
        columns=log.columns,
        rows=len(log),
        skipped=log.skipped,
        duration_s=traffic.duration_s,
        attainment=float(traffic.met.mean()),
        usd=usd_per_s * traffic.duration_s,
        window=window,
        split_s=split_s,
    )


def _pool(own: Own, index: int, most: int) -> Pool:
    spec = own.pools[index]
    fit = (own.fits or {}).get(spec.name)
    return Pool(
        name=spec.name,
        replicas=spec.replicas,
        usd_per_h=spec.price.usd_per_s * 3600.0,
        most=most,
        fit_error=fit.error if fit else None,
        fit_rows=fit.rows if fit else None,
        largest=fit.largest if fit else None,
    )


def _window_note(traffic: Traffic, window: Traffic) -> tuple[str, ...]:
    if len(window) == len(traffic):
        return ()
    span = f"seconds {window.log.at_s[0]:.6g} to {window.log.at_s[-1]:.6g}"
    return (f"of {len(traffic)} requests the busiest {len(window)} in a row are simulated, {span}",)
