"""Writes `access.jsonl`, the log of a service that nobody runs, for docs/regret.md: synthetic, and exact from a seed.

A ranking service on one GPU and four CPU machines, behind a rule that somebody once wrote: requests of 128 items and
more go to the GPU, all others to the CPU machines in turn, each of which works first come, first served. Run it with
the file to write: `python examples/access_log.py access.jsonl`.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

REQUESTS = 3000
RATE_PER_S = 70.0
SEED = 7
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

CPUS = 4
THRESHOLD = 128


def lines() -> list[str]:
    """One JSON object per request, in the order in which they ended, as a server writes them."""
    rng = np.random.default_rng(SEED)
    free_s = dict.fromkeys(["gpu-0", *(f"cpu-{i}" for i in range(CPUS))], 0.0)
    rows = []
    at_s, turn = 0.0, 0
    for _ in range(REQUESTS):
        at_s += float(rng.exponential(1.0 / RATE_PER_S))
        kind = rng.random()
        items = int(
            rng.integers(1, 17) if kind < 0.7 else rng.integers(32, 128) if kind < 0.95 else rng.integers(256, 513)
        )
        if items >= THRESHOLD:
            backend, mean_s = "gpu-0", 0.012 + 0.00012 * items
        else:
            backend, mean_s = f"cpu-{turn % CPUS}", 0.003 + 0.0009 * items
            turn += 1
        service_s = mean_s * float(rng.lognormal(0.0, 0.06))
        end_s = free_s[backend] = max(at_s, free_s[backend]) + service_s
        rows.append((end_s, at_s, items, backend, service_s))
    return [
        json.dumps(
            {
                "time": (START + timedelta(seconds=at_s)).isoformat(timespec="microseconds"),
                "backend": backend,
                "items": items,
                "status": 200,
                "service_ms": round(1e3 * service_s, 3),
                "latency_ms": round(1e3 * (end_s - at_s), 3),
            }
        )
        for end_s, at_s, items, backend, service_s in sorted(rows)
    ]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join(lines()) + "\n", encoding="utf-8")
