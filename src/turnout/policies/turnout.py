"""Turnout's own policy: the least marginal price that keeps the deadlines, and the dearest stands back in a rush.

- *Batches* (`quanta`, `batching`): joining a batch costs b·n, opening one a + b·n, so batches are filled, up to the
  size that takes about half of the deadline; large requests are split over replicas.
- *Marginal price*: machines whose use adds to no bill come first. Dearer ones, by use or for what else they could do,
  get only what the cheaper ones cannot finish in time, and of that the largest requests, which is the least of them.
- *Rush* (`triage`): when not all that waits can be in time, the requests that need most work stand back, since each
  of them would cost several others their deadline.
- *Deficit*: while more is missed than the objective allows, the cheaper machines are trusted with less.
- *Unlike models* (`parting`): models whose batches are too long for each other's deadlines get replicas of their own.
- *Single requests* (`matching`, `shadow`): what may not share a batch is matched with replicas all at once, at the
  shadow prices of the pools; replicas that are idle then take what can only be late, or in time when it is cut.
- *Exploration*: a small share of decisions takes the second choice where that is safe, to keep predictions honest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import ceil, inf
from typing import Any

from msgspec import Struct
from numpy.random import Generator

from turnout.core.events import Option, Why
from turnout.core.policy import Choice, Hold, Policy, PoolView, Run, View, Waiting
from turnout.policies.batching import Lane, Queue, lanes_of, queues, serve
from turnout.policies.matching import Solve, assign, solver
from turnout.policies.parting import NOT_PARTED, lent, parted
from turnout.policies.quanta import SHARE, Quanta
from turnout.policies.shadow import prices
from turnout.policies.triage import triage

NEW = {"prices": None, "parting": None}
"""The state before there was need for either."""

REFRESH_S = 1.0
"""Seconds for which shadow prices are used."""

SEATS = 2
WINDOW = 3
"""Single requests that are matched at once, per replica."""

FULL_DEFICIT = 20.0
"""Misses beyond the objective at which cheaper machines are trusted with half of their capacity."""


class Params(Struct, frozen=True, forbid_unknown_fields=True):
    """`share` of the deadline that a batch may take. `explore_share` of decisions try the second choice."""

    share: float = SHARE
    explore_share: float = 0.0


def policy(params: Params) -> Policy:
    """The policy. Its state are the shadow prices, and how replicas are parted, each with when that was found.

    Raises:
        ExtraMissingError: scipy is not installed.
    """
    solve = solver()

    def decide(view: View, state: Any, rng: Generator) -> tuple[Sequence[Choice], Any]:
        if not any(r.slots_left for r in view.replicas):  # the usual tick under overload
            return [], state
        lanes = lanes_of(view)
        choices: list[Choice] = []
        single = [w for w in view.waiting if not view.workloads[w.model].mergeable]
        left: list[Waiting] = []
        if single:
            state = _priced(view, state)
            choices, left = _match(view, single, lanes, state["prices"]["price"], solve)
        merged = [w for w in view.waiting if view.workloads[w.model].mergeable] if single else view.waiting
        parting = NOT_PARTED
        if merged and len(view.workloads) > 1:
            state = state or NEW
            parting = parted(view, merged, params.share, state["parting"])
            state = {**state, "parting": parting}
        quanta = Quanta(view, params.share, parting["groups"] if parting["group_of"] else ())
        explores = merged and params.explore_share and rng.random() < params.explore_share and _in_credit(view)
        for work, own in lent(lanes, parting, merged):
            if explores:
                choices += serve(view, queues(view, work), own, _second, quanta)
            else:
                choices += _spill(view, work, own, quanta)
        if left:
            choices += serve(view, queues(view, left), lanes, _cost, quanta)
        return choices, state

    return decide


def _spill(view: View, waiting: Sequence[Waiting], lanes: Sequence[Lane], quanta: Quanta) -> list[Choice]:
    """Serve from the cheapest level of lanes up; each leaves to the next what it cannot finish in time."""
    levels = _levels(view, waiting[0].model, lanes, quanta)
    choices: list[Choice] = []
    for depth, level in enumerate(levels[:-1], start=1):
        able = _able(waiting, level)
        back = triage(able, level, quanta, _trust(view))
        kept = {(w.rid, w.start) for w in able}.difference(back)
        found = queues(view, [w for w in waiting if (w.rid, w.start) in kept])
        choices += serve(view, found, level, _cost, quanta)
        choices += _holds(view, found, [lane for above in levels[depth:] for lane in above])
        waiting = [w for w in waiting if (w.rid, w.start) not in kept]
        if not waiting:
            return choices
    back = triage(waiting, levels[-1], quanta) if len(waiting) > 1 else ()
    if not back:
        return choices + serve(view, queues(view, waiting), levels[-1], _cost, quanta)
    ordered = sorted(waiting, key=lambda w: (w.rid, w.start) in back)  # stable: by deadline within both
    found = queues(view, ordered)
    for queue in found:
        queue.back = sum((w.rid, w.start) in back for w in queue.waiting)
    return choices + serve(view, found, levels[-1], _cost, quanta)


def _levels(view: View, model: str, lanes: Sequence[Lane], quanta: Quanta) -> list[list[Lane]]:
    """The lanes by marginal dollars per item, cheapest first; lanes of equal price are one level."""
    price: dict[str, float] = {}
    for pool in {lane.pool.spec.name: lane.pool for lane in lanes}.values():
        items = quanta.items(pool, model) if pool.serves(model) else 1
        busy_s = pool.mean_s(model, items) if pool.serves(model) else 1.0
        price[pool.spec.name] = pool.marginal_usd(busy_s) / items
    if len(set(price.values())) == 1:
        return [list(lanes)]
    return [[lane for lane in lanes if price[lane.pool.spec.name] == p] for p in sorted(set(price.values()))]


def _able(waiting: Sequence[Waiting], level: Sequence[Lane]) -> list[Waiting]:
    """What some lane of this level can take and finish in time, in as many pieces as it may still be cut into."""
    firsts: dict[str, tuple[PoolView, float]] = {}
    for lane in level:
        name = lane.pool.spec.name
        firsts[name] = lane.pool, min(lane.free_s, firsts[name][1] if name in firsts else inf)

    def reached(w: Waiting) -> bool:
        items = ceil(w.items / (w.ranges_left + 1))
        nbytes = w.nbytes * items // w.items
        return any(
            pool.serves(w.model)
            and name not in w.barred
            and items <= pool.spec.max_items
            and free_s + pool.p99_s(w.model, items, nbytes) <= w.deadline_s
            for name, (pool, free_s) in firsts.items()
        )

    return [w for w in waiting if reached(w)]


def _trust(view: View) -> float:
    """The share of a cheaper level's capacity that is counted on: less while misses exceed what the SLOs allow."""
    deficit = -min((standing.credit for standing in view.standings.values()), default=0.0)
    return 1.0 - 0.5 * min(max(deficit, 0.0) / FULL_DEFICIT, 1.0)


def _holds(view: View, found: Sequence[Queue], above: Sequence[Lane]) -> list[Choice]:
    """Wake in time to use a dearer lane for what a cheaper one was trusted with and has not begun."""
    holds: list[Choice] = []
    for queue in found:
        if queue.at < len(queue.waiting):
            head = queue.waiting[queue.at]
            times = [
                lane.pool.p99_s(head.model, min(head.items, lane.pool.spec.max_items))
                for lane in above
                if lane.pool.spec.name in queue.pools
            ]
            until_s = head.deadline_s - min(times, default=0.0)
            if times and until_s > view.now_s:
                holds.append(Hold(rids=(head.rid,), until_s=until_s))
    return holds


def _match(
    view: View, single: Sequence[Waiting], lanes: list[Lane], price: dict[str, float], solve: Solve
) -> tuple[list[Choice], list[Waiting]]:
    """Match single requests with lanes, run those whose lane has a slot now, and say which are not for matching.

    Those are what cannot be in time whole and alone: it is served late where the model asks for that, or is cut where
    it may be, on lanes that are idle then.
    """
    overdue = bisect_right(single, view.now_s, key=lambda w: w.deadline_s)
    timely = single[overdue : overdue + WINDOW * len(lanes)]
    pairs = dict(assign(solve, timely, lanes, price, now_s=view.now_s, seats=SEATS)) if timely else {}
    left = [
        w
        for i, w in enumerate(timely)
        if i not in pairs
        and (w.ranges_left or view.workloads[w.model].late == "serve")
        and not any(_in_time(w, lane) for lane in lanes)
    ]
    choices: list[Choice] = []
    for i, j in pairs.items():
        if lanes[j].slots_left > 0:
            choices.append(_alone(timely[i], lanes[j]))
    return choices, [*single[:overdue], *left]


def _in_time(w: Waiting, lane: Lane) -> bool:
    """Whether this lane would finish the whole request in time, on average."""
    pool = lane.pool
    if not pool.serves(w.model) or w.items > pool.spec.max_items or pool.spec.name in w.barred:
        return False
    return lane.free_s + pool.mean_s(w.model, w.items, w.nbytes) <= w.deadline_s


def _alone(w: Waiting, lane: Lane) -> Run:
    """Run a request as a batch of its own, and take the slot."""
    mean_s, p99_s = lane.pool.mean_s(w.model, w.items, w.nbytes), lane.pool.p99_s(w.model, w.items, w.nbytes)
    option = Option(
        pool=lane.pool.spec.name,
        replica=lane.replica,
        items=w.items,
        start_s=lane.free_s,
        mean_s=mean_s,
        p99_s=p99_s,
        marginal_usd=lane.pool.marginal_usd(mean_s, w.nbytes),
        list_usd=lane.pool.price.list_usd(mean_s),
        feasible=p99_s <= w.deadline_s - lane.free_s,
    )
    lane.slots_left -= 1
    lane.free_s += mean_s
    return Run(parts=(w.part,), replica=lane.replica, why=Why(binding="matching", options=(option,)))


def _priced(view: View, state: dict[str, Any] | None) -> dict[str, Any]:
    """The state with shadow prices that are fresh: of the same pools, and of the last second."""
    state = state or NEW
    replicas: dict[str, int] = {}
    for r in view.replicas:
        replicas[r.pool] = replicas.get(r.pool, 0) + 1
    arrivals = sum(standing.arrivals for standing in view.standings.values())
    known = state["prices"]
    if (
        known is not None
        and known["replicas"] == replicas
        and (view.now_s < known["at_s"] + REFRESH_S or arrivals == known["arrivals"])
        and arrivals < 2 * known["arrivals"]
    ):
        return state
    found = {"at_s": view.now_s, "arrivals": arrivals, "replicas": replicas, "price": prices(view, replicas)}
    return {**state, "prices": found}


def _in_credit(view: View) -> bool:
    return all(standing.credit >= 0.0 for standing in view.standings.values())


def _cost(option: Option) -> tuple[bool, float, bool, float, float]:
    """In time before late, then cheap, then idle, then the machine that is less of a loss to occupy."""
    finish_s = option.start_s + option.mean_s
    if not option.feasible:
        return True, finish_s, option.busy, 0.0, 0.0
    return False, option.marginal_usd / option.items, option.busy, option.list_usd / option.items, finish_s


def _second(option: Option) -> tuple[bool, bool, float]:
    """The dearest of what is safe and idle."""
    return not option.feasible, option.busy, -option.list_usd / option.items
