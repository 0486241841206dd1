"""Recorded logs to fit to: a simulated run whose real times are not what its head predicts."""

from __future__ import annotations

from pathlib import Path

from tests.fleets import arrived, configured
from turnout import policies, simulate, telemetry
from turnout.core import events as ev


def write_log(folder: Path, config=None, *, factor=None, requests=1500, gap_s=0.006, faults=(), largest=40) -> Path:
    """A run as the gateway writes it; `factor` by pool is how much longer batches take than the head says."""
    config = config or configured(origin="live")
    writer = telemetry.LogWriter(folder, "run")
    path = writer.start(config)

    def slowed(model, times):
        draw = simulate.from_model(model)
        return lambda items, key, now_s: times * draw(items, key, now_s)

    draws = {
        (name, w.name): slowed(model, (factor or {}).get(name, 1.0))
        for w in config.models
        for name, model in w.latency.items()
    }
    traffic = [arrived(i, at_s=i * gap_s, items=1 + simulate.key(i) % largest) for i in range(requests)]

    def observe(event, actions):
        if not isinstance(event, ev.Configured):
            writer.write([event, *actions])

    simulate.run(config, traffic, draws, policies.load, faults=faults, observe=observe)
    writer.close()
    return path
