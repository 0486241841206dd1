"""How far the duel's figures are from an independent loop over the same model, options and inputs.

`agreement`: the relative difference between the duel's CPU median and that of a plain loop written here, which shares
no code with the duel; median over five interleaved runs, the larger of batch 1 and 8. Aim: at most 0.05 (5 %).
Prints a table, then one JSON line. `--quick` takes under a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime as ort

from turnout import measure
from turnout.measure import machine

RUNS = 5
SIZES = (1, 8)
LABEL = "cpu fp32 threads=1"


def main() -> None:
    """Run duel and loop in turn, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    budget_s = 3.0 if quick else 15.0
    model = bundled()
    session = plain_session(model)
    found: dict[int, list[tuple[float, float]]] = {items: [] for items in SIZES}
    print(f"{'batch':>5} {'run':>3} {'duel ms':>10} {'loop ms':>10} {'difference':>10}")
    for run in range(RUNS):
        options = measure.Options(sizes=SIZES, budget_s=budget_s, threads=(1,), devices=("cpu",), seed=run)
        before = {items: plain_median_s(session, items, run, budget_s / 8.0) for items in SIZES}
        duel = measure.run(model, options, now=datetime.now(UTC), environ=os.environ)
        after = {items: plain_median_s(session, items, run, budget_s / 8.0) for items in SIZES}
        profile = next(entry.profile for entry in duel.entries if entry.label == LABEL)
        for samples in profile.samples:
            items = samples.items
            ours_s, plain_s = median(samples.service_s), (before[items] + after[items]) / 2.0
            found[items].append((ours_s, plain_s))
            difference = abs(ours_s - plain_s) / plain_s
            print(f"{items:>5} {run:>3} {ours_s * 1e3:>10.4f} {plain_s * 1e3:>10.4f} {difference:>10.2%}")
    by_size = {
        items: median(abs(ours_s - plain_s) / plain_s for ours_s, plain_s in pairs) for items, pairs in found.items()
    }
    for items, difference in by_size.items():
        print(f"median of {RUNS} at batch {items}: {difference:.2%}")
    print(
        json.dumps(
            {
                "agreement": round(max(by_size.values()), 4),
                "agreement_batch_1": round(by_size[1], 4),
                "agreement_batch_8": round(by_size[8], 4),
                "runs": RUNS,
                "model": Path(model).name,
                "hardware": machine.hardware(),
                "quick": quick,
            }
        )
    )


def bundled() -> str:
    """The model inside the package magika."""
    spec = find_spec("magika")
    if spec is None or spec.origin is None:
        raise SystemExit("bench/measure.py needs the package magika: pip install 'turnout[demo]'")
    return str(next(Path(spec.origin).parent.glob("models/*/model.onnx")))


def plain_session(model: str) -> Any:
    """A session made here with the options that the duel's documentation states."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def plain_median_s(session: Any, items: int, seed: int, budget_s: float) -> float:
    """Median seconds of back-to-back runs for `budget_s`."""
    feeds = {"bytes": np.random.default_rng([seed, items]).integers(0, 100, (items, 2048)).astype(np.int32)}
    session.run(None, feeds)
    times_s = []
    end_s = time.perf_counter() + budget_s
    while time.perf_counter() < end_s:
        start_s = time.perf_counter()
        session.run(None, feeds)
        times_s.append(time.perf_counter() - start_s)
    return median(times_s)


if __name__ == "__main__":
    main()
