"""The sentences of a verdict. Pure text from figures; what is not known is said, never filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from turnout.core.latency import fit
from turnout.measure.artefact import (
    Branching,
    Criterion,
    Crossover,
    CrossoverState,
    Entry,
    Interval,
    PriceTag,
    Refusal,
    Row,
    Share,
    Stop,
)

SOFTWARE = " (software)"
"""Follows the name of a device that is emulated on the CPU, wherever it is shown."""

FIXED_SHARE = 0.5
"""Above this share of a batch of one, the fixed cost of a call is named as the bottleneck."""

BRANCHING_SHARE = 0.2
"""Above this share, branching work is named in the bottleneck."""


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best, with three figures."""
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * scale >= 1.0:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def dollars(usd: float) -> str:
    """Dollars with three figures, small sums included."""
    return f"${usd:,.2f}" if usd >= 100.0 else f"${usd:.3g}"


def sizes_text(sizes: Sequence[int]) -> str:
    """Batch sizes as people say them: "batch 4", "batches 1 to 64"."""
    return f"batch {sizes[0]}" if len(sizes) == 1 else f"batches {sizes[0]} to {sizes[-1]}"


def crossover(
    device: str,
    criterion: Criterion,
    state: CrossoverState,
    sizes: Sequence[int],
    at: tuple[float, float, float] | None = None,
) -> str:
    """One crossover in words."""
    better = "faster" if criterion == "seconds" else "cheaper"
    if state == "at" and at:
        return f"{device} is {better} than the CPU from batch {at[0]:.3g} on (95 %: {at[1]:.3g} to {at[2]:.3g})"
    return {
        "always": f"{device} is {better} than the CPU at every measured size" + _measured(sizes),
        "never": f"{device} is never {better} than the CPU at the measured sizes" + _measured(sizes),
        "too_close": f"whether {device} becomes {better} than the CPU is too close to call" + _measured(sizes),
        "not_priced": f"whether {device} is cheaper is not priced: "
        + ("an emulated device has no price" if SOFTWARE in device else "give --price DEVICE=DOLLARS_PER_HOUR"),
        "not_measured": f"{device} and the CPU have no batch size in common",
    }[state]


def headline(entries: Sequence[Entry], rows: Sequence[Row], crossovers: Sequence[Crossover]) -> str:
    """The answer in one or two sentences."""
    if not crossovers:
        wrong = [e.label for e in entries if e.profile.device != "cpu"]
        lead = (
            f"{', '.join(wrong)} gives other answers than the CPU and is out. "
            if wrong
            else "No accelerator was measured. "
        )
        lead += "This compares ways to run on the CPU. "
    else:
        lead = "; ".join(c.text for c in crossovers if c.state != "not_priced") + ". "
    text = f"{lead}Fastest: {_leaders(rows, lambda row: row.seconds)}."
    if not crossovers and any(row.usd_per_million for row in rows):
        text += f" Cheapest per item: {_leaders(rows, lambda row: row.usd_per_million)}."
    return text


def bottleneck(entries: Sequence[Entry], shares: Sequence[Share], branching: Branching | None) -> str:
    """What takes the time, and so what could and could not help."""
    parts = [_ends(shares[0])] if shares else []
    if not shares:
        parts.append(_fixed_cost(entries[0]))
        parts += [text for entry in entries if (text := _copies(entry))]
        parts.append("Only the model was timed: --pre and --post would show its share of the whole request.")
    if branching is not None and branching.share >= BRANCHING_SHARE:
        named = ", ".join(f"{name} {share:.0%}" for name, share in list(branching.operators.items())[:4])
        parts.append(
            f"{branching.share:.0%} of the CPU's time branches or is Python ({named}): accelerators do it badly."
        )
    return " ".join(parts)


def warnings(
    entries: Sequence[Entry],
    prices: Sequence[PriceTag],
    stops: Sequence[Stop],
    refusals: Sequence[Refusal],
    *,
    random_inputs: bool = False,
) -> tuple[str, ...]:
    """Everything that limits what the figures say, one sentence each."""
    said = []
    for entry in entries:
        parity = entry.profile.parity
        if parity is not None and not parity.ok:
            said.append(
                f"{entry.label} disagrees with {entries[0].label} (largest difference {parity.max_abs:.3g}, "
                f"{parity.worst:.3g} times the tolerance): never routed to. {parity.note}".rstrip()
            )
        elif parity is not None and random_inputs and entry.profile.variant.startswith("int8"):
            said.append(
                f"{entry.label} agrees on random inputs, where rounding may not show: compare on real ones (--inputs) "
                "before it serves."
            )
        if entry.profile.provenance.software_device:
            said.append(f"{entry.label} is emulated on the CPU: its times say nothing about a real GPU.")
    for why, text in (
        ("noisy", "the machine is too noisy to order all contenders"),
        ("budget", "the time ran out before the order could settle; raise --budget-s"),
    ):
        sizes = [stop.items for stop in stops if stop.why == why]
        if sizes:
            said.append(f"At batch {_and(sizes)} {text}.")
    said += [
        f"The price of {price.device} is stale: {price.date}, {price.source}. Give --price."
        for price in prices
        if price.stale
    ]
    left_out: dict[tuple[str, str], list[int]] = {}
    for refusal in refusals:
        left_out.setdefault((refusal.label, refusal.reason), []).extend([refusal.items] if refusal.items else [])
    for (label, reason), sizes in left_out.items():
        said.append(f"{label}{f' at batch {_and(sizes)}' if sizes else ''} was not timed: {reason}.")
    return tuple(said)


def _and(sizes: Sequence[int]) -> str:
    """Sizes in a row."""
    return ", ".join(map(str, sizes))


def _measured(sizes: Sequence[int]) -> str:
    """The measured range in brackets, nothing when there is none."""
    return f" ({sizes_text(sizes)})" if sizes else ""


def _leaders(rows: Sequence[Row], figure: Callable[[Row], Interval | None]) -> str:
    """Who leads by a figure over which sizes, runs of the same leader joined.

    The leader of the size before stays as long as its interval reaches the best's: a change has to be told apart.
    """
    winners: list[tuple[str, int]] = []
    for items in sorted({row.items for row in rows}):
        found = {r.label: value for r in rows if r.items == items and r.routable and (value := figure(r))}
        if not found:
            continue
        best = min(found, key=lambda label: found[label].mid)
        before = winners[-1][0] if winners else best
        stays = before in found and found[before].low <= found[best].high
        winners.append((before if stays else best, items))
    return ", ".join(
        f"{label} at {sizes_text([items for _, items in run])}"
        for label, run in ((key, list(group)) for key, group in groupby(winners, key=lambda winner: winner[0]))
    )


def _ends(share: Share) -> str:
    """The request path's ends against the model, at the smallest size."""
    total_s = share.pre_s + share.model_s + share.post_s
    low, high = share.model_share.low, share.model_share.high
    text = (
        f"At batch {share.items} the model takes {share.model_share.mid:.0%} ({low:.0%} to {high:.0%}) of the "
        f"request's {duration(total_s)}; pre takes {share.pre_s / total_s:.0%} and post {share.post_s / total_s:.0%}."
    )
    if share.most_gain is None:
        return text
    return f"{text} So no device for the model can speed the request up by more than {share.most_gain:.3g}x."


def _fixed_cost(entry: Entry) -> str:
    """Whether a call's fixed cost or the work per item dominates on the reference."""
    if len(entry.profile.samples) < 2:
        return f"Only one batch size was measured on {entry.label}, so fixed and per-item cost cannot be told apart."
    model = fit(entry.profile)
    share = min(model.mean_s(0) / model.mean_s(1), 1.0)
    if share >= FIXED_SHARE:
        return f"{share:.0%} of a batch of one on {entry.label} is the fixed cost of a call: batching helps first."
    return f"On {entry.label} {1.0 - share:.0%} of a batch of one is work per item: compute or memory limits it."


def _copies(entry: Entry) -> str:
    """The share of copies on a device that tells phases apart, at its smallest size."""
    sample = entry.profile.samples[0]
    if not sample.copy_in_s:
        return ""
    share = (sum(sample.copy_in_s) + sum(sample.copy_out_s)) / sum(sample.service_s)
    return f"On {entry.label} {share:.0%} of a batch of {sample.items} is copying to and from the device."
