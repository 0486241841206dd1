"""`turnout measure` on the command line: parse, call, print."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from turnout.cli.flags import Many, Switch
from turnout.cli.terminal import answer, progress
from turnout.errors import ConfigError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DuelFlags:
    """Who takes part in a duel, and for how long."""

    devices: str = "auto"
    """Comma-separated: auto, cpu, cuda, webgpu, torch:cpu, torch:cuda. A device named is demanded."""
    batch: str = ""
    """Comma-separated batch sizes; 1 to 64 in powers of two, as far as the budget goes."""
    budget_s: float = 60.0
    """Seconds for the interleaved rounds."""
    threads: str = ""
    """Comma-separated thread counts of the CPU variants; all cores and 1."""
    int8: bool = True
    """Try the dynamic int8 variant on the CPU."""
    allow_partial: Switch = False
    """Time a graph that is partly on the CPU, labelled as that."""
    pre: str = ""
    """module:function that makes the model's inputs: times the whole request path."""
    post: str = ""
    """module:function that reads the model's outputs."""
    price: Many = ()
    """DEVICE=DOLLARS_PER_HOUR of a whole machine, such as cpu=0.10; else the dated card in the package."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InputFlags:
    """What a model is fed in a duel."""

    input: Many = ()
    """NAME=[SHAPE][:DTYPE][@VALUE] of one input, such as input=Nx576:float32 or sr=@16000."""
    inputs: Path | None = None
    """An .npz with real inputs, one array per input."""
    dim: Many = ()
    """SYMBOL=SIZE of an open dimension, such as sequence_length=128."""
    seed: int = 0
    """Of the inputs, the order of the rounds and the bootstrap."""


def measure(
    model: str,
    /,
    *,
    who: DuelFlags = DuelFlags(),
    fed: InputFlags = InputFlags(),
    out: Path | None = None,
    json: Switch = False,
) -> None:
    """Duel: run one model on every device and variant here, and say who is faster, who is cheaper, from which batch on.

    Args:
        model: An ONNX file, or module:function (see docs/measure.md for what the function may look like).
        who: Who takes part.
        fed: What the model is fed.
        out: Folder for duel.json, report.html and profiles/; out/measure/MODEL.
        json: Print the duel as one JSON document.
    """
    from turnout import measure as verb
    from turnout.measure.text import show

    sys.path.insert(0, str(Path.cwd()))  # module:function names the user's own file
    options = _duel_options(who, fed)
    with progress() as told:
        duel = verb.run(model, options, now=datetime.now(UTC), environ=os.environ, progress=told)
    written = verb.save(duel, out or Path("out/measure") / Path(model.replace(":", "-")).stem)
    answer(duel, show, json=json, written=written)


def _duel_options(who: DuelFlags, fed: InputFlags) -> Any:
    """Flags to the verb's options."""
    from turnout.measure import SIZES, Options
    from turnout.measure.inputs import parse_override
    from turnout.measure.prices import parse as parse_prices

    return Options(
        devices=tuple(who.devices.split(",")),
        sizes=_counts("--batch", who.batch) or SIZES,
        budget_s=who.budget_s,
        threads=_counts("--threads", who.threads),
        int8=who.int8,
        allow_partial=who.allow_partial,
        pre=who.pre,
        post=who.post,
        prices=parse_prices(who.price),
        inputs_file=str(fed.inputs or ""),
        overrides=dict(parse_override(text) for text in fed.input),
        dims=dict(_dim(text) for text in fed.dim),
        seed=fed.seed,
    )


def _counts(flag: str, text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers, () for none."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ConfigError(f"{flag} {text!r} is not a list of whole numbers such as 1,2,4") from None


def _dim(text: str) -> tuple[str, int]:
    """One SYMBOL=SIZE."""
    name, _, size = text.partition("=")
    if not name or not re.fullmatch("0*[1-9][0-9]{0,8}", size):
        raise ConfigError(f"--dim {text!r} is not SYMBOL=SIZE, such as sequence_length=128")
    return name, int(size)
