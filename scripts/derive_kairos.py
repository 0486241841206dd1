"""Derive the compact latency table that ships in the package from the published Kairos measurements.

Input: the archive of measured latencies (ms, 100 samples per model, instance and batch size; MIT licence) of
Li et al., "Kairos", HPDC 2023. Service time is computation plus input loading of the same run, element by element,
without the single largest, as the authors' own server counts it. Kept per batch size: evenly spaced order statistics.

    .venv/bin/python scripts/derive_kairos.py ../shared/data/perf/kairos_hpdc23_data.tar.gz
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

from turnout import store
from turnout.core.profile import Profile, ProfileTable, Provenance, Samples

OUT = Path(__file__).parents[1] / "src/turnout/data/kairos.json"
MODELS = ("rm2", "dien", "wnd", "mtwnd", "ncf")
INSTANCES = {"g4dn.xlarge": ("cuda", "NVIDIA T4 (AWS g4dn.xlarge)"), "r5n.large": ("cpu", "2 vCPU (AWS r5n.large)")}
SIZES = (
    10,
    20,
    30,
    40,
    60,
    80,
    100,
    130,
    160,
    200,
    250,
    300,
    350,
    400,
    450,
    500,
    560,
    620,
    680,
    740,
    800,
    870,
    940,
    1000,
)
KEPT = 20
"""Order statistics per batch size: enough for a 95 % quantile, small enough to ship."""


def service_s(archive: tarfile.TarFile, model: str, instance: str, items: int) -> tuple[float, ...]:
    """The kept order statistics of one cell, in seconds to the microsecond."""
    name = f"{instance}/{model}_{items}_1.json"
    compute_ms, load_ms = (read(archive, f"data/{folder}{name}") for folder in ("", "logs_load/"))
    total_ms = sorted(c + i for c, i in zip(compute_ms, load_ms, strict=True))[:-1]
    step = (len(total_ms) - 1) / (KEPT - 1)
    return tuple(round(total_ms[round(i * step)] / 1e3, 6) for i in range(KEPT))


def read(archive: tarfile.TarFile, name: str) -> list[float]:
    """One JSON array of the archive."""
    file = archive.extractfile(name)
    assert file is not None, name
    values: list[float] = json.load(file)
    return values


def main(path: str) -> None:
    """Write the table."""
    provenance = Provenance(
        kind="published",
        source="Li et al., Kairos, HPDC 2023; github boringlee24/hpdc23-kairos fa20590f, MIT",
        date="2023-06-20",
        hardware="",
    )
    profiles = []
    with tarfile.open(path) as archive:
        for model in MODELS:
            for instance, (device, hardware) in INSTANCES.items():
                samples = tuple(Samples(items=n, service_s=service_s(archive, model, instance, n)) for n in SIZES)
                profiles.append(
                    Profile(
                        model=model,
                        model_digest="",
                        device=device,
                        device_key=instance,
                        variant="as published",
                        provenance=Provenance(
                            kind=provenance.kind, source=provenance.source, date=provenance.date, hardware=hardware
                        ),
                        samples=samples,
                    )
                )
    store.save(ProfileTable(profiles=tuple(profiles)), OUT)
    print(f"{OUT.name}: {len(profiles)} profiles, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
