"""Whether the machines can meet the objective at all, and whether there are enough requests to say so.

The seconds of a request on an idle fleet are those of `simulate.idle`. What may be missed is counted over all models
together here, as everywhere in a regret.
"""

from __future__ import annotations

import numpy as np

from turnout.errors import ArtefactError, CheckFailedError
from turnout.regret.own import Own
from turnout.regret.traffic import Traffic
from turnout.simulate.idle import idle_s, least_deadline_s

LEAST_ROWS = 200
"""Requests; with fewer, half of them say nothing of a share of 0.99."""


def check_idle(traffic: Traffic, own: Own) -> None:
    """Refuse an objective that no routing can meet, with the smallest deadline that could be.

    Raises:
        ArtefactError: too few requests.
        CheckFailedError: more requests than may be missed take too long on every pool even at their usual speed.
    """
    if len(traffic) < LEAST_ROWS:
        raise ArtefactError(f"{traffic.log.source} has {len(traffic)} requests, and it takes {LEAST_ROWS} to judge by")
    trace = traffic.trace
    usual_s = idle_s(own.head, trace, own.max_parts)
    late = usual_s > traffic.deadline_s
    if late.mean() <= 1.0 - own.attainment + 1e-12:
        return
    too_large = int(np.isinf(usual_s).sum())
    largest = f" ({too_large} of them are larger than any pool's largest batch)" if too_large else ""
    present = set(np.unique(trace.model).tolist())
    least_ms = {
        name: 1e3 * least_deadline_s(own.head, trace, name, own.max_parts)
        for index, name in enumerate(trace.models)
        if index in present
    }
    least = ", ".join(f"{name}: {f'{ms:.4g} ms' if np.isfinite(ms) else 'none'}" for name, ms in least_ms.items())
    raise CheckFailedError(
        f"the objective cannot be met: {late.mean():.1%} of the requests{largest} take longer than their deadline on "
        f"every pool, even with nothing else to do, and {1.0 - own.attainment:.1%} may. The smallest deadline that an "
        f"idle fleet keeps at the 99 % quantile is {least}"
    )
