"""Learning off line: refits latency models and policy parameters from a recorded log, and says what is gained.

The first 70 % of the requests are for fitting; the last 30 % judge the result, and nothing is fitted to them. A refit
that is not better there is not recommended: the answer is then to keep what there is. Prediction errors are of
recorded batches; attainment and dollars are modelled, by simulating the recorded arrivals.

It changes no config: `save` writes `fitted.json` and the profiles that are recommended, to be named in one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import turnout
from turnout import store
from turnout.core.latency import fit as fit_model
from turnout.core.profile import Profile, Provenance
from turnout.core.router import LoadPolicy
from turnout.fit import recorded, refit
from turnout.fit.artefact import Fitted
from turnout.fit.tune import Simulate, Tuner
from turnout.fit.words import verdict
from turnout.measure import machine

__all__ = ["Fitted", "run", "save"]

GridOf = Callable[[str], Mapping[str, Sequence[Any]]]
"""The values that a policy's parameters are to be tried at, by its name; {} if it has none."""

HARM = "predicts better, but fewer requests were in time with it in the simulation"


def run(
    log: Path,
    load_policy: LoadPolicy,
    simulated: Simulate,
    grid_of: GridOf,
    *,
    now: datetime,
    ignore_truncated_tail: bool = False,
) -> tuple[Fitted, dict[tuple[str, str], Profile]]:
    """Fit to the first part of `log` (a segment, or a folder of them), and judge by the rest.

    Returns the answer, and the refitted profiles that it recommends by (pool, model).

    `simulated` is `simulate.run`. `now` dates the result.

    Raises:
        ArtefactError: the log cannot be read, is cut off (see `ignore_truncated_tail`), has too little in it, or its
            fleet or models changed on the way.
    """
    found = recorded.read(log, ignore_truncated_tail=ignore_truncated_tail)
    head = found.configured
    refits, profiles = refit.refit_all(found, _provenance(found, now))
    better = {key: fit_model(profile) for key, profile in profiles.items()}
    tuner = Tuner(load_policy, simulated)
    tuning = tuner.tune(found.fitting, better, grid_of(head.policy))
    change = tuner.compare(found.held_out, better, tuning.best)
    if change.models_do_harm:
        refits = tuple(replace(r, better=False, why=r.why or HARM) for r in refits)
        profiles = {}
    fitted = Fitted(
        log=Path(found.path).name,
        origin=head.origin,
        date=now.isoformat(timespec="seconds"),
        version=turnout.__version__,
        first_s=found.first_s,
        split_s=found.split_s,
        last_s=found.last_s,
        requests=found.requests,
        models=refits,
        tuning=tuning,
        change=change,
        use_models=tuple(profiles),
        use_params=tuning.best if change.params_help else None,
        truncated=found.truncated,
    )
    return replace(fitted, verdict=verdict(fitted)), profiles


def save(fitted: Fitted, profiles: Mapping[tuple[str, str], Profile], out: Path) -> list[Path]:
    """Write `fitted.json` and `profiles/POOL-MODEL.json` under `out`; returns the paths.

    Raises:
        ArtefactError: the folder cannot be written.
    """
    paths = [out / "fitted.json"]
    store.save(fitted, paths[0])
    for (pool, model), profile in profiles.items():
        paths.append(out / "profiles" / re.sub(r"[^\w.-]", "_", f"{pool}-{model}.json"))
        store.save(profile, paths[-1])
    return paths


def _provenance(found: recorded.Run, now: datetime) -> Provenance:
    """What the profiles say of where they come from; a log of a simulation measures nothing."""
    head = found.configured
    live = head.origin == "live"
    return Provenance(
        kind="measured" if live else "modelled",
        source=f"turnout fit of the log {Path(found.path).name} ({head.origin or 'of unknown origin'})",
        date=head.epoch or now.isoformat(timespec="seconds"),
        hardware="",
        versions={"turnout": turnout.__version__},
        commit=machine.commit(),
    )
