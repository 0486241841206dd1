"""Contenders and duels made by hand, for tests of what is said about them."""

import numpy as np

from turnout.core.profile import Parity, Profile, Provenance, Samples
from turnout.measure import verdict
from turnout.measure.artefact import Duel, Entry, PriceTag

SIZES = (1, 2, 4, 8, 16, 32, 64)
AGREES = Parity(ok=True, worst=0.1, max_abs=1e-6, atol=1e-5, rtol=1e-3)
DISAGREES = Parity(ok=False, worst=7.0, max_abs=1.0, atol=1e-5, rtol=1e-3)
DATE = "2026-12-01"


def entry(label, seconds, *, threads=0, parity=AGREES, software=False, rounds=40, noise=0.02, seed=0):
    """A contender that takes about seconds(items), with log-normal noise."""
    device, _, variant = label.partition(" ")
    rng = np.random.default_rng([seed, *label.encode()])
    samples = tuple(
        Samples(items=n, service_s=tuple((seconds(n) * rng.lognormal(0.0, noise, rounds)).tolist()))
        for n in SIZES
        if seconds(n) is not None
    )
    source = Provenance(kind="measured", source="test", date=DATE, hardware="h", software_device=software)
    profile = Profile(
        model="m",
        model_digest="d",
        device=device,
        device_key=device,
        variant=variant,
        provenance=source,
        samples=samples,
        parity=parity,
    )
    return Entry(label=label, threads=threads, profile=profile)


def price(device, usd_per_h, cores=0, *, stale=False):
    """A price tag."""
    return PriceTag(device=device, usd_per_h=usd_per_h, cores=cores, source="test", date=DATE, stale=stale)


PRICES = (price("cpu", 0.1, 1), price("cuda", 1.0))


def judge(*entries, **more):
    """The verdict on contenders, with nothing else known unless given."""
    known = {"prices": PRICES, "path": {}, "branching": None, "stops": (), "refusals": (), "seed": 0}
    return verdict.judge(entries, **(known | more))


def duel(*entries, prices=PRICES, branching=None):
    """A whole duel between contenders."""
    return Duel(
        model="models/m.onnx",
        model_digest="sha256:0",
        inputs={"x": "Nx4 float32 random"},
        seed=0,
        date=DATE,
        hardware="h",
        reference=entries[0].label,
        entries=entries,
        refusals=(),
        stops=(),
        prices=prices,
        path={},
        branching=branching,
        verdict=judge(*entries, prices=prices, branching=branching),
    )
