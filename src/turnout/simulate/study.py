"""Every policy on every seed, one after the other or in several processes, to one `Simulated`.

Each run is a function of what is given, the policy and the seed, so how many processes there are changes nothing.
What is hopeless is said before anything runs: sizes that were never measured, and deadlines that an idle fleet misses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import turnout
from turnout import policies, store
from turnout.core.trace import Trace
from turnout.errors import CapabilityError, ConfigError, ExtraMissingError
from turnout.simulate import faults as breaks
from turnout.simulate import given as setting
from turnout.simulate import html, run, tails
from turnout.simulate.arrivals import arrivals
from turnout.simulate.artefact import Mark, Run, Simulated, Traffic
from turnout.simulate.faults import Fault
from turnout.simulate.given import Given
from turnout.simulate.idle import check_idle
from turnout.simulate.tails import Tail
from turnout.simulate.traffic import Source
from turnout.simulate.watch import Watch
from turnout.simulate.words import verdict

Progress = Callable[[str, float], None]
"""Called with what is being done, and the share that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy with its parameters."""

    policy: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked beside fleet, traffic and policies. `jobs` is the number of processes."""

    seeds: tuple[int, ...] = (0,)
    tails: tuple[Tail, ...] = ()
    faults: tuple[Fault, ...] = ()
    extrapolate: bool = False
    max_missed: int | None = None
    jobs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run, as another process takes it."""

    given: Given
    contender: Contender
    seed: int
    trace: Trace
    options: Options


def study(
    given: Given,
    source: Source,
    contenders: Sequence[Contender],
    options: Options,
    *,
    now: datetime,
    progress: Progress | None = None,
) -> Simulated:
    """Run every contender on every seed; `now` dates the result.

    Raises:
        ArtefactError: a request is larger than any batch measured, and nothing asks to extrapolate.
        CheckFailedError: the fleet cannot meet the objective even idle.
        ConfigError: a policy or its parameters are wrong, or the trace is of models that are not served.
    """
    told = progress or (lambda _what, _share: None)
    told("drawing the traffic", 0.0)
    for contender in contenders:
        policies.load(contender.policy, contender.params)
    traces = _traces(source, options.seeds)
    first = next(iter(traces.values()))
    for trace in {id(trace): trace for trace in traces.values()}.values():
        if options.extrapolate:
            given = setting.extrapolated(given, trace)
        else:
            setting.check_sizes(given, trace)
    check_idle(given.head, first, given.max_parts)
    tasks = [
        Task(given=given, contender=contender, seed=seed, trace=traces[seed], options=options)
        for contender in contenders
        for seed in options.seeds
    ]
    runs = _here(tasks, told) if options.jobs == 1 or len(tasks) == 1 else _elsewhere(tasks, options.jobs, told)
    simulated = _simulated(given, first, options, runs, redrawn=source.redrawn, now=now)
    return replace(simulated, verdict=verdict(simulated))


def save(simulated: Simulated, out: Path) -> list[Path]:
    """Write `simulated.json`, and `report.html` where plotly is installed, under `out`; returns the paths.

    Raises:
        ArtefactError: the folder cannot be written.
    """
    return store.save_reported(simulated, out, "simulated.json", html.render)


def _traces(source: Source, seeds: Sequence[int]) -> dict[int, Trace]:
    """The requests of each seed; one trace for all where nothing in it is drawn."""
    if source.redrawn:
        return {seed: source.draw(seed) for seed in seeds}
    trace = source.draw(seeds[0])
    return dict.fromkeys(seeds, trace)


# ---- one run ---------------------------------------------------------------------------------------------------------


def simulate_one(task: Task, progress: Callable[[float], None] | None = None) -> Run:
    """One policy on one seed; `progress` is told the share that is done."""
    given, options, trace = task.given, task.options, task.trace
    head = replace(given.head, policy=task.contender.policy, params=dict(task.contender.params), seed=task.seed)
    ends_s = float(trace.at_s[-1]) + _longest_s(given, trace)
    watch = Watch(head.fleet, ends_s, given.largest, progress)
    summary = run(
        head,
        arrivals(trace, given.slo_s, given.max_parts, given.priority),
        given.draws(options.tails, options.faults, task.seed, extrapolate=options.extrapolate),
        policies.load,
        faults=[event for event in breaks.events(options.faults, head.fleet) if event.at_s <= ends_s],
        observe=watch.observe,
        slow=breaks.slow(options.faults),
        max_missed=options.max_missed,
    )
    return Run(
        policy=task.contender.policy,
        params=dict(task.contender.params),
        seed=task.seed,
        summary=summary,
        timeline=watch.timeline(),
        deciles=watch.deciles(),
        latencies=watch.latencies(),
        beyond_profile=watch.beyond_profile,
    )


def _longest_s(given: Given, trace: Trace) -> float:
    """The longest deadline of a request: after it, nothing that happens to a replica changes an answer."""
    return max(given.slo_s.values()) if trace.deadline_s is None else float(trace.deadline_s.max())


def _here(tasks: Sequence[Task], told: Progress) -> list[Run]:
    """One after the other."""
    runs = []
    for number, task in enumerate(tasks):
        what = f"{task.contender.policy}, seed {task.seed}"
        runs.append(simulate_one(task, lambda share, n=number, w=what: told(w, (n + share) / len(tasks))))  # type: ignore[misc]
    return runs


def _elsewhere(tasks: Sequence[Task], jobs: int, told: Progress) -> list[Run]:
    """In several processes; the runs come back in the order of the tasks."""
    with _processes(min(jobs, len(tasks))) as pool:
        futures = [pool.submit(_in_worker, task) for task in tasks]
        for done, _ in enumerate(as_completed(futures), 1):
            told(f"{done} of {len(tasks)} runs done", done / len(tasks))
        return [future.result() for future in futures]


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes that does not outlive an interrupt."""
    context = get_context("spawn")
    before = set(context.active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=context)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(context.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown()


def _in_worker(task: Task) -> Run:
    """One run; what is missing here is said in an error that can be sent back."""
    try:
        return simulate_one(task)
    except ExtraMissingError as error:
        raise CapabilityError(str(error)) from None


# ---- the result ------------------------------------------------------------------------------------------------------


def _simulated(
    given: Given, trace: Trace, options: Options, runs: Sequence[Run], *, redrawn: bool, now: datetime
) -> Simulated:
    """All of it, without the verdict."""
    traffic = Traffic(
        source=trace.source,
        requests=len(trace),
        duration_s=trace.duration_s,
        rate_per_s=trace.rate_per_s,
        mean_items=float(trace.items.mean()),
        largest_items=int(trace.items.max()),
        redrawn=redrawn,
    )
    marks = tuple(
        Mark(from_s=breaks.spans(fault)[0], until_s=breaks.spans(fault)[1], text=breaks.text(fault))
        for fault in options.faults
    )
    return Simulated(
        date=now.isoformat(timespec="seconds"),
        version=turnout.__version__,
        origin="modelled",
        service_times=setting.service_times(given),
        traffic=traffic,
        pools=setting.pools(given),
        objectives=setting.objectives(given),
        seeds=options.seeds,
        tails=tuple(tails.text(tail) for tail in options.tails),
        faults=marks,
        runs=tuple(runs),
        max_missed=options.max_missed,
        notes=_notes(options, trace, runs),
    )


def _notes(options: Options, trace: Trace, runs: Sequence[Run]) -> tuple[str, ...]:
    """What a reader must know of the figures."""
    notes = []
    beyond = sum(one.beyond_profile for one in runs)
    if options.extrapolate:
        batches = sum(one.summary.batches for one in runs)
        notes.append(f"{beyond} of {batches} batches were beyond the profile: their times are extrapolated")
    if options.max_missed is not None and any(one.summary.stopped_early for one in runs):
        notes.append(f"runs were stopped once more than {options.max_missed} requests had missed; their shares are of "
                     "the part before")  # fmt: skip
    late = [breaks.text(fault) for fault in options.faults if breaks.spans(fault)[0] > trace.at_s[-1]]
    if late:
        notes.append(f"after the last request, and so without effect: {', '.join(late)}")
    return tuple(notes)


def contenders(names: Sequence[str], params: Mapping[str, Any], given: Given) -> list[Contender]:
    """The policies asked for, or the config's own; `params` are those of the only one, or tables by policy.

    Raises:
        ConfigError: parameters that belong to none of several policies.
    """
    if not names:
        return [Contender(policy=given.head.policy, params=dict(params) or given.head.params)]
    if len(names) == 1 and names[0] not in params:
        own = given.head.params if names[0] == given.head.policy and not params else params
        return [Contender(policy=names[0], params=dict(own))]
    strange = [key for key, value in params.items() if key not in names or not isinstance(value, dict)]
    if strange:
        raise ConfigError(
            f"--params: {strange[0]!r} is none of the policies; with several, say whose it is, such as "
            f"'{names[0]}.{strange[0]} = …'"
        )
    return [
        Contender(
            policy=name,
            params=params.get(name, given.head.params if name == given.head.policy else {}),
        )
        for name in names
    ]
