"""Which ways of running a model exist here, loaded and probed: devices, threads, int8.

A device that was named is demanded: if it is absent, or its work lands elsewhere, that is an error. With "auto" what is
not here is not in the duel, and what falls back is reported as refused. Nothing is timed under another's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnout.core.profile import Cold, Parity
from turnout.errors import CapabilityError, ConfigError, ModelError, TurnoutError
from turnout.measure import inputs, machine, parity
from turnout.measure.artefact import Refusal
from turnout.measure.words import SOFTWARE
from turnout.pools import loader
from turnout.pools.base import LoadedModel, Outcome, Tensors

ACCELERATORS = ("cuda", "webgpu")
"""Device kinds besides the CPU, in the order of the report."""

WARMED_BELOW_S = 0.02
"""Runs shorter than this get an untimed run before each timed one; in longer ones cold caches do not show."""


class Candidate(Struct, frozen=True, kw_only=True):
    """One way to run the model, not loaded yet. `precision` picks the parity tolerance; `threads` is 0 if unknown."""

    label: str
    backend: str
    device: str
    variant: str
    precision: str
    options: dict[str, Any]
    threads: int = 0
    demanded: bool = False
    software: bool = False


class Contender:
    """A loaded candidate with the inputs of every batch size; what the duel runs.

    `before_bytes` is the process's memory before it was loaded: what a run adds to that is its own.
    """

    def __init__(
        self, candidate: Candidate, model: LoadedModel, feeds: Mapping[int, Tensors], before_bytes: int | None
    ) -> None:
        self.candidate = candidate
        self.label = candidate.label
        self.model = model
        self.feeds = feeds
        self.before_bytes = before_bytes
        self.rival = True
        self.cold: Cold | None = None
        self.parity: Parity | None = None
        self.peaks: dict[int, int | None] = {}
        self.probe_s: dict[int, float] = {}
        self.bytes_out = 0

    def run(self, items: int) -> Outcome:
        """Run one batch; the outputs are dropped, since a thousand of them would fill the memory.

        The contender before has filled the caches with its own: a short run is preceded by an untimed one, as in a
        pool that serves one model. Without it the duel read 5 % more than a plain loop at 4 ms a run.
        """
        if self.probe_s.get(items, 0.0) < WARMED_BELOW_S:
            self.model.run(self.feeds[items])
        return replace(self.model.run(self.feeds[items]), outputs={})

    def probe(self, items: int) -> Tensors:
        """First contact with a batch size: warm it up, note its time and peak memory, return its outputs."""
        watched = machine.reset_peak()
        first = self.model.run(self.feeds[items])
        if self.cold is None:
            self.bytes_out = inputs.item_bytes(first.outputs, items)
            self.cold = Cold(load_s=self.model.load_s, first_run_s=first.service_s)
        warm = self.model.run(self.feeds[items])
        self.probe_s[items] = warm.service_s
        self.peaks[items] = warm.peak_bytes
        if warm.peak_bytes is None and watched and self.before_bytes is not None:
            self.peaks[items] = max((machine.memory_bytes("VmHWM") or 0) - self.before_bytes, 0)
        return first.outputs


def for_onnx(
    devices: Sequence[str], threads: Sequence[int], *, int8: bool, partial: bool, environ: Mapping[str, str]
) -> list[Candidate]:
    """Ways to run an ONNX file here; the first is the reference: the CPU in float32.

    `devices` holds kinds ("cpu", "cuda", "webgpu"), "backend:kind" to force a backend ("torch:cpu"), or "auto".

    Raises:
        ConfigError: a name that is no device.
        ExtraMissingError: ONNX Runtime is not installed.
    """
    loader("onnx")
    auto = "auto" in devices
    counts = list(dict.fromkeys(threads or (machine.cores(), 1)))
    candidates = [_onnx_cpu("fp32", count) for count in counts]
    if int8:
        candidates.append(_onnx_cpu("int8", counts[0]))
    wanted = [d for d in devices if d not in {"auto", "cpu"}]
    found = [d for d in ACCELERATORS if auto and d not in wanted and (d in _onnx_devices() or _torch_has(d))]
    for name in wanted + found:
        backend, _, kind = name.rpartition(":")
        if kind not in {"cpu", *ACCELERATORS}:
            raise ConfigError(f"no device is called {name!r}; there are: auto, cpu, {', '.join(ACCELERATORS)}")
        if not backend:
            backend = "torch" if kind == "cuda" and kind not in _onnx_devices() and _torch_has(kind) else "onnx"
        candidates.append(
            _accelerator(backend, kind, counts[0], demanded=name in wanted, partial=partial, environ=environ)
        )
    return candidates


def for_callable(source: str, devices: Sequence[str]) -> list[Candidate]:
    """Ways to run `module:function` here: on every device it says it knows, as far as that was asked for."""
    from turnout.pools.callable import devices as known
    from turnout.pools.callable import resolve

    offered = known(resolve(source))
    wanted = [d for d in devices if d != "auto"]
    chosen = ["cpu", *(d for d in (*wanted, *(offered if "auto" in devices else ())) if d != "cpu")]
    return [
        Candidate(
            label=f"{device} as is",
            backend="callable",
            device=device,
            variant="as is",
            precision="fp32",
            options={},
            demanded=device in wanted,
        )
        for device in dict.fromkeys(chosen)
    ]


def load(candidate: Candidate, source: str, *, needed: bool = False) -> LoadedModel | Refusal:
    """Load a candidate, or say why it is not in the duel.

    Raises:
        TurnoutError: the candidate is `needed` or was asked for by name, and cannot be had.
    """
    try:
        return loader(candidate.backend)(source, candidate.device, candidate.options)
    except (CapabilityError, ModelError) as error:
        if needed or candidate.demanded:
            raise
        return Refusal(label=candidate.label, reason=str(error))


def probe(
    contender: Contender, sizes: Sequence[int], reference: Mapping[int, Tensors], most_s: float
) -> tuple[dict[int, Tensors], list[Refusal]]:
    """Probe ascending `sizes` while a run stays under `most_s`; compare outputs with the reference's where given.

    Returns the outputs by size, and refusals of the sizes that were too slow or failed.

    Raises:
        ModelError: not even the smallest size runs.
    """
    outputs: dict[int, Tensors] = {}
    found: list[Parity] = []
    refusals: list[Refusal] = []
    for items in sizes:
        if refusals or _expected_s(contender.probe_s, items) > most_s:
            reason = refusals[0].reason if refusals else "ten rounds would not fit; raise --budget-s"
            refusals.append(Refusal(label=contender.label, reason=reason, items=items))
            continue
        try:
            outputs[items] = contender.probe(items)
        except TurnoutError as error:
            if not outputs:
                raise
            refusals.append(Refusal(label=contender.label, reason=str(error), items=items))
            continue
        if items in reference:
            found.append(parity.compare(outputs[items], reference[items], contender.candidate.precision))
    if found:
        contender.parity = parity.merge(found)
        contender.rival = contender.parity.ok
    return outputs, refusals


def _expected_s(probe_s: Mapping[int, float], items: int) -> float:
    """What a run of `items` will take, from the largest size probed, if time grows in proportion at most."""
    if not probe_s:
        return 0.0
    largest = max(probe_s)
    return probe_s[largest] * items / largest


def _onnx_cpu(precision: str, threads: int) -> Candidate:
    """A CPU variant; spinning is off, since several sessions share the cores here as they do in a gateway."""
    variant = f"{precision} threads={threads}"
    return Candidate(
        label=f"cpu {variant}",
        backend="onnx",
        device="cpu",
        variant=variant,
        precision=precision,
        options={"threads": threads, "variant": precision},
        threads=threads,
    )


def _accelerator(
    backend: str, device: str, threads: int, *, demanded: bool, partial: bool, environ: Mapping[str, str]
) -> Candidate:
    """A device besides the CPU (or another backend on the CPU)."""
    software = device == "webgpu" and machine.software_gpu(environ)
    variant = "fp32" + (" torch" if backend == "torch" else "") + (" partly on CPU" if partial else "")
    return Candidate(
        label=f"{device} {variant}" + (SOFTWARE if software else ""),
        backend=backend,
        device=device,
        variant=variant,
        precision="fp32",
        options={"threads": threads} | ({"allow_partial": partial} if backend == "onnx" else {}),
        threads=threads if device == "cpu" else 0,
        demanded=demanded,
        software=software,
    )


def _onnx_devices() -> tuple[str, ...]:
    """Device kinds that the installed ONNX Runtime was built for."""
    from turnout.pools.onnx import devices

    return devices()


def _torch_has(device: str) -> bool:
    """Whether a GPU is here and torch, with onnx2torch, sees it. Importing torch takes seconds, so it comes last."""
    if device != "cuda" or not machine.gpu_here() or find_spec("torch") is None or find_spec("onnx2torch") is None:
        return False
    from turnout.pools.torch import devices

    return device in devices()
