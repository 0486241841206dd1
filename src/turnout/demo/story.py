"""The demo in words: blocks of sentences with one table each, every one with the origin of its figures.

Plain text only; `text` shows the blocks in a terminal and `page` in a browser, so that both say the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct

from turnout import plan
from turnout.core import events as ev
from turnout.core.account import Summary
from turnout.demo import elsewhere
from turnout.demo.advice import ATTAINMENT, Advice, named
from turnout.demo.elsewhere import Contest
from turnout.demo.here import LOAD_SHARE, Here, Traffic

HERE, ELSEWHERE, MODELLED, PUBLISHED = "measured here", "measured elsewhere", "modelled", "published"
MIXED = f"{MODELLED} on times {ELSEWHERE}"

INTRODUCTION = (
    "CPU or GPU? Part 1 measures this machine. Parts 2 and 3 need no GPU: they run Turnout's router on a virtual "
    "clock, with service times that others measured on real GPU and CPU machines."
)


class Line(NamedTuple):
    """A sentence and the origin of its figures ("": it has none)."""

    text: str
    origin: str = ""


class Block(Struct, frozen=True, kw_only=True):
    """Sentences, a table, and remarks below it. `origin` is the table's; `best` are rows to point out."""

    title: str
    origin: str
    lines: tuple[Line, ...]
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    best: tuple[int, ...] = ()
    remarks: tuple[Line, ...] = ()


def duel(here: Here) -> Block:
    """Ways to run the model on this machine."""
    found = here.duel.verdict
    return Block(
        title="1. This machine: which way is faster",
        origin=HERE,
        lines=(
            Line(
                f"Model: magika, which tells a file's type; input: real files of this disk. On {here.duel.hardware}.",
                HERE,
            ),
            Line(found.headline, f"{HERE}, dollars {MODELLED}" if here.duel.prices else HERE),
            Line("fp32 is the model as shipped, int8 a copy with rounded weights; threads is the cores per batch."),
            Line(f"Bottleneck: {found.bottleneck}", HERE),
            *(Line(f"Mind: {warning}", HERE) for warning in found.warnings),
        ),
    )


def traffic(here: Here) -> Block:
    """Live traffic through the gateway, beside what was predicted for it."""
    seen, predicted, deadline = here.traffic, here.predicted, f"{here.deadline_s * 1e3:.0f} ms"
    again = here.recorded.retried_batches
    covered = here.recorded.coverage_p99
    reasons = ", ".join(f"{why} {number}" for why, number in here.recorded.rejects.items())
    return Block(
        title="   This machine: live traffic, and a worker killed",
        origin=f"{HERE}, prediction {MODELLED}",
        lines=(
            Line(
                f"{count(seen.requests, 'request')} for {count(seen.items, 'file')} came in bursts over "
                f"{seen.duration_s:.0f} s, at {LOAD_SHARE * 100:.0f} % of the {seen.capacity_items_per_s:.0f} files/s "
                f"that the gateway managed when flooded; deadline {deadline}.",
                HERE,
            ),
            Line(f"{here.killed[:1].upper()}{here.killed[1:]}; {count(again, 'batch', 'batches')} ran again.", HERE),
            Line(
                f"Every request was answered: {count(seen.answered - seen.rejected, 'result')}, "
                f"{count(seen.rejected, 'early refusal')}{reasons and f' ({reasons})'}, {seen.lost} lost.",
                HERE,
            ),
            Line("File types found: " + ", ".join(f"{n} {name}" for name, n in seen.types.items()) + ".", HERE),
        ),
        head=(f"deadline {deadline}", "median", "99 % within", "in time", "origin"),
        rows=(
            ("predicted before the run", *_figures(predicted), MODELLED),
            ("seen by the client", *_figures(seen), HERE),
        ),
        remarks=(
            Line(
                f"With every worker busy a batch takes {here.slowdown:.2f} times what it takes alone, since workers, "
                "gateway and client share this machine's cores; the prediction has that in it, but no other program "
                "that runs meanwhile.",
                HERE,
            ),
            *(
                ()
                if covered is None
                else (Line(f"{percent(covered)} of batches took at most the time predicted for 99 % of them.", HERE),)
            ),
            Line(explain(here.receipt), f"{HERE}, prediction {MODELLED}"),
            Line(
                f"Replayed: {count(here.replay.events, 'logged event')} through a fresh router gave the identical "
                f"{count(here.replay.actions, 'action')}.",
                HERE,
            ),
        ),
    )


def _figures(run: Summary | Traffic) -> tuple[str, str, str]:
    """Median, 99th percentile and share in time."""
    return milliseconds(run.latency_p50_s), milliseconds(run.latency_p99_s), percent(run.attainment)


def explain(receipt: dict[str, Any]) -> str:
    """A decision receipt in a sentence or two."""
    if not receipt["attempts"]:
        return f"Why {receipt['client_id']} was refused: {receipt['outcome']}. {receipt['detail']}".rstrip()
    last = receipt["attempts"][-1]
    others = [c for c in last["candidates"] if c["replica"] != last["replica"]]
    against = "".join(f"; {c['pool']} would have taken {milliseconds(c['mean_s'])}" for c in others)
    return (
        f"Why {receipt['client_id']} ran on {last['replica']}: {last['binding']}{against}. Its "
        f"{count(receipt['items'], 'file')}, due in {milliseconds(receipt['deadline_s'] - receipt['arrived_s'])}, "
        f"waited {milliseconds(last['waited_s'])}; their batch of {last['batch_items']} was predicted to take "
        f"{milliseconds(last['predicted']['service_s'])} and took {milliseconds(last['actual']['service_s'])}."
    )


def explain_choice(dispatch: ev.Dispatch) -> str:
    """A decision between pools in a sentence; times count from the moment of the decision."""
    chosen, *others = dispatch.why.options
    now_s = min(o.start_s for o in dispatch.why.options)
    against = "; ".join(
        f"{o.pool} would have been done in {milliseconds(o.start_s - now_s + o.p99_s)}"
        f"{'' if o.feasible else ', too late for the oldest of them'}"
        for o in others
    )
    return (
        f"One decision: {count(len(dispatch.parts), 'waiting query', 'waiting queries')} went to {chosen.pool} as one "
        f"batch, sure to 99 % to be done in {milliseconds(chosen.start_s - now_s + chosen.p99_s)}; {against}. "
        f"What decided: {dispatch.why.binding}{_prices(dispatch.why)}."
    )


def _prices(why: ev.Why) -> str:
    """List prices beside each other, where they decided."""
    if why.binding != "cost":
        return ""
    chosen, *others = (f"${1e6 * option.list_usd / option.items:.2g}" for option in why.options)
    return f", {chosen} per million items at list price in place of {' or '.join(others)}"


def contest(found: Contest) -> Block:
    """Policies side by side on one fleet."""
    setting = found.setting
    most = max(summary.met for _, summary in found.lines)
    return Block(
        title="2. Real GPUs: what the router is worth",
        origin=MIXED,
        lines=(
            Line(
                f"{count(found.gpu, 'GPU machine')} ({elsewhere.GPU}, one T4 each) and "
                f"{count(found.cpu, 'CPU machine')} ({elsewhere.CPU}) serve the recommendation model "
                f"{named(setting.model)} at {setting.rate_qps:.0f} queries/s; "
                f"deadline {setting.deadline_s * 1e3:.0f} ms.",
                f"times {ELSEWHERE}",
            ),
            Line(
                "Same machines and traffic in every row: only the policy, which picks the machine, differs. "
                "'Pool only' leaves the other machines idle. $/million counts the queries answered in time.",
                MODELLED,
            ),
        ),
        head=("policy", "in time", "99 % within", "refused", "$/million"),
        rows=tuple(
            (
                label,
                percent(s.attainment),
                milliseconds(s.latency_p99_s),
                str(sum(s.rejects.values())),
                "-" if s.usd_per_million_met is None else f"{s.usd_per_million_met:.2f}",
            )
            for label, s in found.lines
        ),
        best=tuple(i for i, (_, summary) in enumerate(found.lines) if summary.met == most),
        remarks=(() if found.example is None else (Line(explain_choice(found.example), MIXED),)),
    )


def rent(advice: Advice) -> Block:
    """The cheapest fleets over traffic."""
    setting = advice.setting
    cpu, gpu = elsewhere.CPU_PRICE, elsewhere.GPU_PRICE
    return Block(
        title="3. What to rent",
        origin=MIXED,
        lines=(
            Line(
                f"The cheapest fleets that answer {ATTAINMENT * 100:.0f} % of queries to {named(setting.model)} within "
                f"{setting.deadline_s * 1e3:.0f} ms. CPU and GPU stand for whole machines.",
                MIXED,
            ),
            Line(
                f"CPU: {elsewhere.CPU} at ${cpu.usd_per_s * 3600:.3f}/h; GPU: {elsewhere.GPU} with one T4 at "
                f"${gpu.usd_per_s * 3600:.3f}/h. AWS on demand, {gpu.date}: renew the prices before you buy.",
                PUBLISHED,
            ),
        ),
        head=("queries/s", "cheapest", "$/h", "next best", "$/h"),
        rows=tuple(
            (f"{row.rate_qps:.0f}", *(cell for q in row.quotes[:2] for cell in (machines(q), f"{q.usd_per_h:.3f}")))
            for row in advice.rows
        ),
        best=tuple(i for i, row in enumerate(advice.rows) if row.rate_qps == setting.rate_qps),
    )


def machines(quote: plan.Quote) -> str:
    """A fleet in few characters: "4 CPU + 1 GPU"."""
    return " + ".join(f"{n} {kind}" for n, kind in ((quote.cpu, "CPU"), (quote.gpu, "GPU")) if n)


def count(number: int, one: str, many: str = "") -> str:
    """A number and its noun."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A share of requests; never rounded up to all of them."""
    return f"{int(share * 1e4) / 100:.2f} %"


def milliseconds(seconds: float | None) -> str:
    """Three figures and the unit; "-" where nothing was answered."""
    return "-" if seconds is None else f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds * 1e3:.0f} ms"
