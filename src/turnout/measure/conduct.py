"""Conducts a duel from a model to its artefact: who is here, do they agree, fight, judge.

It reads no clock for dates, no environment and no arguments of the process: all of that is passed in by the command.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
from msgspec import Struct

from turnout.core.profile import Profile, Provenance, Samples
from turnout.errors import ConfigError, ModelError
from turnout.measure import contenders, duel, inputs, machine, parity, phases, prices, verdict
from turnout.measure.artefact import Branching, Duel, Entry, PriceTag, Refusal, Stop
from turnout.measure.contenders import Candidate, Contender
from turnout.measure.path import End, as_feeds
from turnout.pools import source
from turnout.pools.base import Outcome, Tensors

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes of a duel where none are given; those that do not fit the budget are left out and said."""

SLOWEST_SHARE = 0.25
"""A contender's ten rounds at one size may take this share of the budget; the reference's may take twice that."""

PROBE_SHARE = 0.9
"""Ten rounds at all sizes must fit in this share of the budget, else the largest sizes go."""

Progress = Callable[[str, float], None]


class Options(Struct, frozen=True, kw_only=True):
    """What the user chose. `devices` as in `contenders.for_onnx`; `prices` are dollars per hour by device.

    `budget_s` bounds the interleaved rounds; loading, probing and profiling come on top.
    """

    devices: tuple[str, ...] = ("auto",)
    sizes: tuple[int, ...] = SIZES
    budget_s: float = 60.0
    threads: tuple[int, ...] = ()
    int8: bool = True
    allow_partial: bool = False
    seed: int = 0
    pre: str = ""
    post: str = ""
    prices: dict[str, float] = {}
    inputs_file: str = ""
    overrides: dict[str, inputs.Override] = {}
    dims: dict[str, int] = {}


class _Field(Struct, kw_only=True):
    """Everything on the field before the fight: contenders loaded and probed, ends of the path, refusals."""

    contenders: list[Contender]
    ends: list[End]
    refusals: list[Refusal]
    words: dict[str, str]
    sizes: list[int]


def run(
    model: str,
    options: Options,
    *,
    now: datetime,
    environ: Mapping[str, str],
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = lambda _what, _share: None,
) -> Duel:
    """Measure `model` (an ONNX file or `module:function`) on every device here, and judge.

    Raises:
        ConfigError: an option is out of range or names nothing.
        ModelError: the model cannot be loaded or run on the CPU, or its outputs are not finite there.
        CapabilityError: a device named in the options is not here, or its work lands elsewhere.
    """
    _check(options)
    field = _muster(model, options, environ, progress)
    try:
        _check_prices(options, field)
        lanes = _lanes(field, options.budget_s)
        timings, closed = duel.fight(
            lanes,
            budget_s=options.budget_s,
            clock=clock,
            rng=np.random.default_rng(options.seed),
            on_round=lambda items, used: progress(f"duel, batch {items}", min(used, 1.0)),
        )
        progress("profiling", 1.0)
        branching = _branching(model, field, timings)
        return _settle(model, options, field=field, timings=timings, closed=closed, branching=branching, now=now)
    finally:
        for contender in field.contenders:
            contender.model.close()


def _check(options: Options) -> None:
    """Refuse numbers that no duel can be run with."""
    if not options.sizes or min(options.sizes) < 1:
        raise ConfigError(f"--batch needs sizes of at least 1, got {list(options.sizes)}")
    if not 0.0 < options.budget_s < math.inf:  # false for NaN too
        raise ConfigError(f"--budget-s must be a number of seconds above 0, got {options.budget_s}")
    if options.seed < 0:
        raise ConfigError(f"--seed must be at least 0, got {options.seed}")
    if any(count < 1 for count in options.threads):
        raise ConfigError(f"--threads needs counts of at least 1, got {list(options.threads)}")


def _check_prices(options: Options, field: _Field) -> None:
    """Refuse a price of what is no device: a slip of the pen must not leave the real one on its list price."""
    known = dict.fromkeys(("cpu", *contenders.ACCELERATORS, *(c.candidate.device for c in field.contenders)))
    unknown = [name for name in options.prices if name not in known]
    if unknown:
        raise ConfigError(f"--price names {', '.join(unknown)}, and the devices are: {', '.join(known)}")


def _muster(model: str, options: Options, environ: Mapping[str, str], progress: Progress) -> _Field:
    """Load and probe everyone; the reference first, since its inputs and outputs are everyone's."""
    is_callable = ":" in model and not Path(model).exists()
    if is_callable:
        candidates = contenders.for_callable(model, options.devices)
    else:
        candidates = contenders.for_onnx(
            options.devices, options.threads, int8=options.int8, partial=options.allow_partial, environ=environ
        )
    field = _Field(contenders=[], ends=[], refusals=[], words={}, sizes=sorted(set(options.sizes)))
    feeds: dict[int, Tensors] = {}
    reference: dict[int, Tensors] = {}
    for done, candidate in enumerate(candidates):  # the first is the reference: without it there is no duel
        progress(f"loading {candidate.label}", done / len(candidates))
        before_bytes = machine.memory_bytes("VmRSS")
        loaded = contenders.load(candidate, model, needed=done == 0)
        if isinstance(loaded, Refusal):
            field.refusals.append(loaded)
            continue
        contender = Contender(candidate, loaded, feeds, before_bytes)
        if not field.contenders:
            _make_feeds(contender, model, options, field, feeds, is_callable=is_callable)
        progress(f"probing {candidate.label}", (done + 0.5) / len(candidates))
        outputs = _probe(contender, field, reference, options.budget_s)
        if not reference:
            reference = outputs
            for size_outputs in outputs.values():
                parity.require_finite(size_outputs)
    _add_post(field, options, reference)
    return field


def _probe(
    contender: Contender, field: _Field, reference: Mapping[int, Tensors], budget_s: float
) -> dict[int, Tensors]:
    """Probe one contender; one that fails outright is refused, unless it is the reference or was asked for."""
    share = SLOWEST_SHARE if reference else 2.0 * SLOWEST_SHARE
    try:
        outputs, refusals = contenders.probe(contender, field.sizes, reference, share * budget_s / duel.LOOKS[0])
    except ModelError as error:
        if not reference and contender.candidate.backend != "callable":
            given = "; ".join(f"{name} {text}" for name, text in field.words.items())
            raise ModelError(f"{error} (they were {given}; --input, --dim and --inputs change them)") from error
        if not reference or contender.candidate.demanded:
            raise
        field.refusals.append(Refusal(label=contender.label, reason=str(error)))
        contender.model.close()
        return {}
    field.contenders.append(contender)
    field.refusals += refusals
    if not reference:
        field.sizes = sorted(outputs)
    return outputs


def _make_feeds(
    first: Contender, model: str, options: Options, field: _Field, feeds: dict[int, Tensors], *, is_callable: bool
) -> None:
    """Fill `feeds` for all sizes from the maker, through `pre` where there is one."""
    make = _maker(first, model, options, field, is_callable=is_callable)
    pre = End("pre", options.pre) if options.pre else None
    for items in field.sizes:
        if pre is None:
            feeds[items] = make(items)
        else:
            feeds[items] = as_feeds(pre.give(items, pre.raw(items, options.seed, make)), options.pre)
    if pre is not None:
        field.ends.append(pre)
        field.words = {}
    if not field.words:
        field.words = {name: f"{array.dtype} {list(array.shape)}" for name, array in feeds[field.sizes[0]].items()}


def _maker(first: Contender, model: str, options: Options, field: _Field, *, is_callable: bool) -> inputs.Maker:
    """What makes the inputs: the function's own maker, a file, or a generator that knows the model's shapes."""
    if is_callable:
        own = first.model.make_inputs  # type: ignore[attr-defined]
        return lambda items: own(items, np.random.default_rng([options.seed, items]))
    specs = first.model.inputs
    if specs and all(spec.batch_axis is None for spec in specs):
        field.sizes = [1]
        field.refusals.append(Refusal(label="larger batches", reason="the model's inputs have a fixed batch"))
    if options.inputs_file:
        make, field.words = inputs.from_file(Path(options.inputs_file), specs)
        return make
    from turnout.pools.onnx import index_limits

    make, field.words = inputs.maker(
        specs, seed=options.seed, overrides=options.overrides, dims=options.dims, limits=index_limits(Path(model))
    )
    return make


def _add_post(field: _Field, options: Options, reference: Mapping[int, Tensors]) -> None:
    """Set up `post` on the reference's outputs."""
    if options.post:
        post = End("post", options.post)
        for items in field.sizes:
            post.give(items, reference[items])
        field.ends.append(post)


def _lanes(field: _Field, budget_s: float) -> dict[int, Sequence[duel.Contender]]:
    """Who runs at which size; the largest sizes whose ten rounds do not fit the budget are left out and said."""
    lanes: dict[int, Sequence[duel.Contender]] = {}
    needed_s = 0.0
    for items in field.sizes:
        here = [c for c in field.contenders if items in c.probe_s]
        needed_s += duel.LOOKS[0] * sum(c.probe_s[items] for c in here)
        if lanes and needed_s > PROBE_SHARE * budget_s:
            reason = "ten rounds of all sizes would not fit; raise --budget-s"
            field.refusals.append(Refusal(label="everyone", reason=reason, items=items))
            continue
        lanes[items] = [*here, *field.ends]
    return lanes


def _branching(model: str, field: _Field, timings: duel.Timings) -> Branching:
    """Profile the reference, and the ends of the path with it, at the smallest size."""
    reference, items = field.contenders[0], field.sizes[0]
    if reference.candidate.backend == "onnx":
        split = phases.of_onnx(model, reference.feeds[items], reference.candidate.threads)
    else:
        split = phases.of_function(lambda: reference.run(items), model)
    ends = {
        end.label: (
            float(np.median([o.service_s for o in timings[end.label][items]])),
            phases.of_function(lambda end=end: end.call(items), end.source),  # type: ignore[misc]
        )
        for end in field.ends
    }
    if not ends:
        return split
    model_s = float(np.median([o.service_s for o in timings[reference.label][items]]))
    return phases.combine(split, ends, model_s)


def _settle(
    model: str,
    options: Options,
    *,
    field: _Field,
    timings: duel.Timings,
    closed: Sequence[duel.Closed],
    branching: Branching,
    now: datetime,
) -> Duel:
    """Put everything into the artefact, the verdict last."""
    digest = source.digest(model)
    entries = tuple(
        Entry(label=c.label, threads=c.candidate.threads, profile=_profile(model, digest, c, timings, now))
        for c in field.contenders
        if c.label in timings
    )
    ends = {end.label: timings[end.label] for end in field.ends}
    path = {
        label: {items: tuple(o.service_s for o in outcomes) for items, outcomes in sizes.items()}
        for label, sizes in ends.items()
    }
    tags = _price_tags(entries, options.prices, now)
    stops = tuple(Stop(items=c.items, rounds=c.rounds, why=c.why) for c in closed)
    return Duel(
        model=model,
        model_digest=digest,
        inputs=field.words,
        seed=options.seed,
        date=now.isoformat(timespec="seconds"),
        hardware=machine.hardware(),
        reference=entries[0].label,
        entries=entries,
        refusals=tuple(field.refusals),
        stops=stops,
        prices=tags,
        path=path,
        branching=branching,
        verdict=verdict.judge(
            entries,
            prices=tags,
            path=path,
            branching=branching,
            stops=stops,
            refusals=field.refusals,
            seed=options.seed,
            random_inputs=_random(options, field),
        ),
    )


def _random(options: Options, field: _Field) -> bool:
    """Whether the inputs were made from the model's description alone."""
    return not (options.inputs_file or options.pre or field.contenders[0].candidate.backend == "callable")


def _profile(model: str, digest: str, contender: Contender, timings: duel.Timings, now: datetime) -> Profile:
    """One contender's profile from its raw timings."""
    candidate, (smallest, feeds) = contender.candidate, next(iter(contender.feeds.items()))
    return Profile(
        model=Path(model).stem if Path(model).is_file() else model,
        model_digest=digest,
        device=candidate.device,
        device_key=_device_key(candidate),
        variant=candidate.variant,
        provenance=Provenance(
            kind="measured",
            source=f"turnout measure {model}",
            date=now.isoformat(timespec="seconds"),
            hardware=_hardware(candidate),
            versions=machine.versions(),
            commit=machine.commit(),
            software_device=candidate.software,
        ),
        samples=tuple(
            _samples(items, outcomes, contender.peaks.get(items))
            for items, outcomes in sorted(timings[contender.label].items())
        ),
        cold=contender.cold,
        parity=contender.parity,
        placement=dict(contender.model.placement),
        item_bytes_in=inputs.item_bytes(feeds, smallest),
        item_bytes_out=contender.bytes_out,
    )


def _samples(items: int, outcomes: Sequence[Outcome], peak_bytes: int | None) -> Samples:
    """Raw timings at one size; phases only where every run told them apart."""
    split = all(o.copy_in_s is not None for o in outcomes)
    return Samples(
        items=items,
        service_s=tuple(o.service_s for o in outcomes),
        copy_in_s=tuple(o.copy_in_s or 0.0 for o in outcomes) if split else (),
        compute_s=tuple(o.compute_s or 0.0 for o in outcomes) if split else (),
        copy_out_s=tuple(o.copy_out_s or 0.0 for o in outcomes) if split else (),
        peak_bytes=peak_bytes,
    )


def _hardware(candidate: Candidate) -> str:
    """The hardware a contender runs on, in one line; an emulated device is called software here as everywhere."""
    if candidate.device == "cpu":
        return machine.hardware()
    if candidate.software:
        return f"software GPU (emulated) on {machine.hardware()}"
    return f"{machine.gpu_name()} in {machine.hardware()}"


def _device_key(candidate: Candidate) -> str:
    """Equal for equal hardware."""
    if candidate.device == "cpu":
        return f"cpu/{machine.cpu_name()}/{machine.cores()}"
    return f"{candidate.device}/{'software' if candidate.software else machine.gpu_name()}"


def _price_tags(entries: Sequence[Entry], given: Mapping[str, float], now: datetime) -> tuple[PriceTag, ...]:
    """A price for every device in the duel that has one."""
    tags = []
    for device in dict.fromkeys(e.profile.device for e in entries if not e.profile.provenance.software_device):
        name = "" if device == "cpu" else machine.gpu_name()
        if (tag := prices.tag(device, name, machine.cores(), given, now.date())) is not None:
            tags.append(tag)
    return tuple(tags)
