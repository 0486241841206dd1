"""Outputs that must not change unseen, in plain text. Seeds fix them; who changes a meaning changes these files.

`GOLDEN=write pytest tests/test_golden.py` writes them anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from tests.fleets import arrived, configured
from turnout import plan, policies, simulate
from turnout.core import events as ev
from turnout.core.account import Account
from turnout.core.router import Router
from turnout.serve.receipts import Receipts
from turnout.telemetry import Counters

FOLDER = Path(__file__).parent / "golden"


def compare(name, text):
    """The text is that of the golden file, or becomes it."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "if this is meant: GOLDEN=write pytest tests/test_golden.py"


def lines(value, indent=""):
    """A value as one indented line per number; six digits, since the last ones are the machine's."""
    text = ""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, dict | list | tuple):
            text += f"{indent}{key}\n{lines(inner, indent + '  ')}"
        else:
            text += f"{indent}{key}  {format(inner, '.6g') if isinstance(inner, float) else repr(inner)}\n"
    return text


@pytest.mark.parametrize("policy", ["turnout", "earliest"])
def test_the_summary_of_a_seeded_run(policy):
    """The same arrivals, the same killed replica and the same seed come to the same summary."""
    config = configured(policy=policy, seed=11)
    draws = {(name, w.name): simulate.from_model(model) for w in config.models for name, model in w.latency.items()}
    traffic = [arrived(i, at_s=i * 0.003, items=1 + i * i % 13, slack_s=0.04) for i in range(500)]
    faults = [
        ev.ReplicaDown(at_s=0.3, replica="cpu-0", why="killed"),
        ev.ReplicaUp(at_s=0.6, replica="cpu-0", pool="cpu"),
    ]
    summary = simulate.run(config, traffic, draws, policies.load, faults=faults)
    compare(f"summary_{policy}", lines(msgspec.to_builtins(summary)))


def test_the_quotes_for_a_known_demand():
    """Fleets that must carry ten units, where a CPU carries one and a GPU six: the cheapest of each kind, in order."""
    nothing = msgspec.to_builtins(Account().summary())

    def attempt(cpu, gpu):
        met = min((cpu + 6 * gpu) / 10, 1.0)
        return msgspec.convert(nothing | {"attainment": met}, type(Account().summary()))

    offer = plan.Offer(cpu_usd_per_h=0.1, gpu_usd_per_h=0.45, cpu_max=16, gpu_max=4)
    found = plan.quotes(offer, attempt, 0.99)
    compare("quotes", "".join(f"{q.kind}: {q.cpu} cpu + {q.gpu} gpu, ${q.usd_per_h:.3f}/h\n" for q in found))


def test_a_receipt_in_words():
    """One request of two items, decided between a CPU and a GPU, with what it took."""
    from turnout.demo.story import explain

    router, counters = Router(policies.load), Counters()
    receipts = Receipts(10, counters)
    events = [
        configured(),
        ev.ReplicaUp(at_s=0.0, replica="cpu-0", pool="cpu"),
        ev.ReplicaUp(at_s=0.0, replica="gpu-0", pool="gpu"),
        arrived(1, at_s=1.0, items=2),
        ev.Decide(at_s=1.001),
        ev.Finished(at_s=1.006, batch=1, service_s=0.005),
    ]
    for event in events:
        records = [event, *router.handle(event)]
        counters.add(records)
        receipts.add(records)
    receipts.name(1, "mine")
    receipt = receipts.find("mine", 2.0)
    compare("receipt", lines(receipt))
    compare("receipt_in_words", explain(receipt) + "\n")
