"""Part three of the demo: what to rent at this traffic and objective, where that flips, and what would flip it.

All of it is modelled: fleets are tried in the simulation of part two, priced by its dated price card.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from turnout import plan
from turnout.demo import elsewhere
from turnout.demo.elsewhere import Setting

OFFER = plan.Offer(
    cpu_usd_per_h=elsewhere.CPU_PRICE.usd_per_s * 3600,
    gpu_usd_per_h=elsewhere.GPU_PRICE.usd_per_s * 3600,
    cpu_max=24,
    gpu_max=4,
)
RATES_QPS = (20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
DEADLINE_FACTORS = (0.8, 0.6, 1.5, 2.0, 4.0)
ATTAINMENT = 0.99
REFINEMENTS = 3
"""Bisections of the interval in which the verdict flips."""


KINDS = {
    "cpu-only": "CPU machines only",
    "gpu-only": "GPU machines only",
    "hybrid": "CPU and GPU machines together",
}
"""Kinds of fleet in words."""


MODELS = {"wnd": "Wide & Deep"}
"""Models of the published study that have a name people know."""


class Row(Struct, frozen=True, kw_only=True):
    """The cheapest fleet of each kind at one rate, cheapest first."""

    rate_qps: float
    quotes: tuple[plan.Quote, ...]


class Advice(Struct, frozen=True, kw_only=True):
    """The answer. `flips` are (below, above, kind above); `levers` say in words what else would change the answer."""

    setting: Setting
    rows: tuple[Row, ...]
    best: plan.Quote
    flips: tuple[tuple[float, float, str], ...]
    levers: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """One sentence to act on."""
        rate, last = f"{self.setting.rate_qps:.0f} queries/s", f"{self.rows[-1].rate_qps:.0f} queries/s"
        flips = ", ".join(
            f"above {low:.0f}-{high:.0f}{'' if i else ' queries/s'} to {KINDS.get(kind, kind)}"
            for i, (low, high, kind) in enumerate(self.flips)
        )
        levers = " or ".join(self.levers)
        return (
            f"At {rate} to {named(self.setting.model)}, {ATTAINMENT * 100:.0f} % of them answered within "
            f"{self.setting.deadline_s * 1e3:.0f} ms, rent "
            f"{fleet(self.best)} for ${self.best.usd_per_h:.3f}/h; "
            f"{'the answer flips ' + flips if flips else 'no traffic up to ' + last + ' flips that'}; "
            f"{f'at {rate} it flips with {levers}' if levers else f'at {rate} no price or deadline tried flips it'}."
        )


def named(model: str) -> str:
    """A model of the published study by the name people know."""
    return f"{MODELS[model]} ({model})" if model in MODELS else model


def fleet(quote: plan.Quote) -> str:
    """A fleet in words."""
    parts = ((quote.cpu, "CPU", elsewhere.CPU), (quote.gpu, "GPU", elsewhere.GPU))
    return " and ".join(f"{n} {kind} machine{'s' * (n > 1)} ({name})" for n, kind, name in parts if n)


def advise(setting: Setting, progress: Callable[[str, float], None]) -> Advice:
    """Search fleets over traffic, find where the cheapest kind changes, and what else would change it."""
    steps = len(RATES_QPS) + len(DEADLINE_FACTORS) + 2 * REFINEMENTS
    done = 0

    def quotes(changed: Setting) -> tuple[plan.Quote, ...]:
        nonlocal done
        progress(f"fleets for {changed.rate_qps:.0f} queries/s within {changed.deadline_s * 1e3:.0f} ms", done / steps)
        done += 1
        return tuple(plan.quotes(OFFER, lambda cpu, gpu: elsewhere.attempt(changed, cpu, gpu), ATTAINMENT))

    rows = tuple(Row(rate_qps=r, quotes=quotes(replace(setting, rate_qps=r))) for r in RATES_QPS)
    here = next(row for row in rows if row.rate_qps == setting.rate_qps)
    flips = []
    for below, above in pairwise(rows):
        if _kind(below.quotes) != _kind(above.quotes):
            flips.append(_flip(setting, below, above, quotes))
    return Advice(
        setting=setting,
        rows=rows,
        best=here.quotes[0],
        flips=tuple(flips),
        levers=(*_price_lever(here), *_deadline_levers(setting, here, quotes)),
    )


def _kind(quotes: tuple[plan.Quote, ...]) -> str:
    return quotes[0].kind if quotes else "no fleet tried"


def _flip(
    setting: Setting, below: Row, above: Row, quotes: Callable[[Setting], tuple[plan.Quote, ...]]
) -> tuple[float, float, str]:
    """Narrow the interval in which the kind of `below` stops being the cheapest."""
    low, high, kind = below.rate_qps, above.rate_qps, _kind(above.quotes)
    for _ in range(REFINEMENTS):
        middle = (low + high) / 2
        found = _kind(quotes(replace(setting, rate_qps=middle)))
        if found == _kind(below.quotes):
            low = middle
        else:
            high, kind = middle, found
    return low, high, kind


def _price_lever(here: Row) -> tuple[str, ...]:
    """The GPU price at which the cheapest fleet with a GPU would cost what the cheapest without does."""
    best = here.quotes[0]
    other = next((q for q in here.quotes if (q.gpu > 0) != (best.gpu > 0)), None)
    if other is None:
        return ()
    with_gpu, without = (best, other) if best.gpu else (other, best)
    usd_per_h = (without.usd_per_h - with_gpu.cpu * OFFER.cpu_usd_per_h) / with_gpu.gpu
    if usd_per_h <= 0.0:
        return ()
    side = "above" if best.gpu else "below"
    return (f"a GPU machine {side} ${usd_per_h:.3f}/h (now ${OFFER.gpu_usd_per_h:.3f})",)


def _deadline_levers(
    setting: Setting, here: Row, quotes: Callable[[Setting], tuple[plan.Quote, ...]]
) -> tuple[str, ...]:
    """The nearest tighter and looser deadlines tried at which another kind is the cheapest."""
    said = []
    for factors in ([f for f in DEADLINE_FACTORS if f < 1], [f for f in DEADLINE_FACTORS if f > 1]):
        for factor in factors:
            deadline_s = setting.deadline_s * factor
            kind = _kind(quotes(replace(setting, deadline_s=deadline_s)))
            if kind != _kind(here.quotes):
                said.append(f"a deadline of {deadline_s * 1e3:.0f} ms ({KINDS.get(kind, kind)})")
                break
    return tuple(said)
