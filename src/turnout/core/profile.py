"""What was measured: service times of one workload on one device, as raw samples with their provenance.

A profile knows nothing of prices, traffic or objectives. It is measured once, saved, and viewed in many ways:
`latency.fit` turns it into a predictor, `measure` renders it, `simulate` draws realised times from it.
Rules: samples are kept raw and in the order taken; every profile says where its figures come from.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["measured", "modelled", "published"]


class Provenance(Struct, frozen=True, kw_only=True):
    """Where a figure comes from; printed beside it wherever it is shown.

    `kind` is "measured" (by Turnout, on `hardware`), "modelled" (computed) or "published" (by others: see `source`).
    `date` is ISO 8601. `versions` maps package or driver to version. `commit` is Turnout's own.
    `software_device` marks a device emulated on the CPU: its timings say nothing about real hardware.
    """

    kind: Kind
    source: str
    date: str
    hardware: str
    versions: dict[str, str] = {}
    commit: str = ""
    software_device: bool = False


class Samples(Struct, frozen=True, kw_only=True):
    """Raw timings at one batch size, in the order they were taken.

    `service_s` is the warm time of a whole call on the device, host to host; the phases, where the device can tell
    them apart, are sequences of the same length whose sum is close to it. `peak_bytes` is the peak of the device's
    memory; on the host, of what the model and the run added to the process.
    """

    items: int
    service_s: tuple[float, ...]
    copy_in_s: tuple[float, ...] = ()
    compute_s: tuple[float, ...] = ()
    copy_out_s: tuple[float, ...] = ()
    peak_bytes: int | None = None


class Cold(Struct, frozen=True, kw_only=True):
    """Seconds before the first warm call: loading and compiling the model, then the first run."""

    load_s: float
    first_run_s: float


class Parity(Struct, frozen=True, kw_only=True):
    """Outputs compared with those of the CPU in float32 on the same inputs.

    A value agrees when |x - reference| <= atol + rtol * |reference|; `ok` is that all do. `worst` is the largest
    |x - reference| / (atol + rtol * |reference|), so it is at most 1 when `ok`.
    """

    ok: bool
    worst: float
    max_abs: float
    atol: float
    rtol: float
    note: str = ""


class Profile(Struct, frozen=True, kw_only=True):
    """Measured service times of one workload on one device in one variant.

    `device` is the kind (`cpu`, `cuda`, `webgpu`); `variant` says how it was run ("fp32 threads=2"); two profiles
    with the same `device_key` are of the same hardware. `placement` counts graph nodes by execution provider.
    `item_bytes_in` and `item_bytes_out` are the tensor bytes of one item. `parity` is None for the reference itself.
    """

    model: str
    model_digest: str
    device: str
    device_key: str
    variant: str
    provenance: Provenance
    samples: tuple[Samples, ...]
    cold: Cold | None = None
    parity: Parity | None = None
    placement: dict[str, int] = {}
    item_bytes_in: int = 0
    item_bytes_out: int = 0

    @property
    def routable(self) -> bool:
        """True unless the outputs were compared with the reference and disagreed."""
        return self.parity is None or self.parity.ok

    @property
    def max_items(self) -> int:
        """The largest batch that was measured."""
        return max(s.items for s in self.samples)


class ProfileTable(Struct, frozen=True, kw_only=True):
    """Several profiles in one artefact, such as a published table of measurements."""

    profiles: tuple[Profile, ...]
